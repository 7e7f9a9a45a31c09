"""Several servers on one PostgreSQL: any of them answers for all, and one may stop under load (B5, G9)."""

import asyncio
from pathlib import Path

import httpx

from tests.integration.server.running import Server, server
from tests.unit.server.serving import Served, problem, served

CLIENTS = 4
EVENTS = 25


def test_the_same_statuses_as_on_every_store(postgres_url: str) -> None:
    async def test(app: Served) -> None:
        assert [(await app.start(cents=5)).status_code for _ in range(2)] == [201, 200]
        headers = {"Idempotency-Key": "k"}
        first = await app.send("REMARK", headers=headers, note="\u00e4'; --")
        again = await app.send("REMARK", headers=headers, note="\u00e4'; --")
        assert again.json() == first.json() | {"duplicate": True}
        problem(await app.send("REMARK", headers=headers, note="other"), 422, "key-reused")
        problem(await app.send("SUBMIT", headers={"If-Match": '"1"'}, cents=5), 412, "version-conflict")
        problem(await app.send("CHARGED"), 409, "invalid-transition")
        problem(await app.send("CANCEL", "nobody"), 404, "workflow-not-found")
        assert (await app.get("/readyz")).json() == {"status": "ok"}
        found = (await app.get("/v1/workflows?machine=order")).json()["items"]
        assert [each["context"]["note"] for each in found] == ["\u00e4'; --"]
        body = {"statements": [{"sql": "CREATE TABLE t (n int)"}, {"sql": "INSERT INTO t VALUES (1) RETURNING n"}]}
        path = "/v1/databases/stock_{}/transactions".format(postgres_url.rpartition("_")[2])
        done = await app.post(path, json=body)
        assert done.json()["results"][1]["rows"] == [{"n": 1}], done.text
        own = postgres_url.rpartition("=")[2]
        problem(await app.post(f"/v1/databases/{own}/transactions", json=body), 404, "database-not-found")

    served(test, url=postgres_url, home=postgres_url)


def test_a_rolling_restart_loses_nothing_that_has_a_key(postgres_url: str, tmp_path: Path) -> None:
    """A client with keys goes on at the other server; every event applies once."""
    del tmp_path
    with server(postgres_url) as first, server(postgres_url) as second:
        asyncio.run(_loaded(first, second))
        assert first.process.returncode == 0


async def _loaded(first: Server, second: Server) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        for number in range(CLIENTS):
            await client.post(f"{first.url}/v1/machines/order/workflows", json={"id": f"o-{number}"})
        half = asyncio.Event()

        async def send(number: int) -> None:
            for at in range(EVENTS):
                if at == EVENTS // 2:
                    half.set()
                body = {"event": "REMARK", "data": {"note": str(at)}}
                for url in (first.url, second.url, second.url):
                    try:
                        answer = await client.post(
                            f"{url}/v1/workflows/o-{number}/events", json=body, headers={"Idempotency-Key": f"k-{at}"}
                        )
                    except httpx.TransportError:
                        continue  # It has stopped: the other one knows whether it was applied.
                    if answer.status_code == 200:
                        break
                else:
                    raise AssertionError("nobody took the event")

        async def stop() -> None:
            await half.wait()
            code, said = await asyncio.to_thread(first.stop)
            assert code == 0, said

        await asyncio.gather(stop(), *(send(number) for number in range(CLIENTS)))
        for number in range(CLIENTS):
            view = (await client.get(f"{second.url}/v1/workflows/o-{number}")).json()
            assert view["version"] == EVENTS + 1
