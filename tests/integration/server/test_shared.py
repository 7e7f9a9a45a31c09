"""Several servers on one PostgreSQL: any of them answers for all, and one may stop under load (B5, G9)."""

import asyncio
import uuid
from pathlib import Path

import httpx
import pytest

from interlock.store.postgres.migrations import migrate
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


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM {home}.workflows",
        'SELECT * FROM "{home}"."security_documents"',
        "DELETE FROM {home}.security_audit",
        "CREATE VIEW v AS SELECT * FROM {home}.workflows",
        "CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM {home}.workflows'",
        "SELECT set_config('search_path', '{home}', false)",
        "SET search_path TO {home}",
        "SELECT query_to_xml('SELECT * FROM {home}.workflows', true, true, '')",
        "DO 'BEGIN DELETE FROM {home}.workflows; END'",
        "SELECT most_common_vals FROM pg_stats",
        "SELECT 1 --\rUNION SELECT count(*) FROM {home}.workflows",
        "ALTER TABLE t SET SCHEMA {home}",
        "SELECT q.ts_stat FROM unnest(ARRAY['SELECT to_tsvector(name) FROM {home}.security_documents']) AS q",
    ],
)
def test_sql_does_not_reach_the_schema_of_the_home(postgres_url: str, sql: str) -> None:
    """Workflows, the audit log and the keys of the API are there, and the login of the server owns them."""
    home = postgres_url.rpartition("=")[2]
    path = f"/v1/databases/d_{home.removeprefix('test_')}/transactions"

    async def test(app: Served) -> None:
        made = await app.post(path, json={"statements": [{"sql": "CREATE TABLE t (n bigint)"}]})
        assert made.status_code == 200, made.text
        body = {"statements": [{"sql": "INSERT INTO t VALUES (1)"}, {"sql": sql.format(home=home)}]}
        problem(await app.post(path, json=body), 400, "dialect")
        left = await app.post(path, json={"statements": [{"sql": "SELECT count(*) AS n FROM t"}]})
        assert left.json()["results"][0]["rows"] == [{"n": 0}]

    served(test, url=postgres_url, home=postgres_url)


@pytest.mark.parametrize("ending", ["other", "other__moved_3", "other__arriving"])
def test_no_schema_that_holds_a_home_is_a_database(postgres_url: str, ending: str) -> None:
    """The home of another engine in the same PostgreSQL, and workflows that a move has put aside."""
    schema = f"{ending.partition('__')[0]}_{uuid.uuid4().hex[:12]}{ending.removeprefix('other')}"

    async def test(app: Served) -> None:
        await migrate(f"{postgres_url.rpartition('&')[0]}&schema={schema}")
        body = {"statements": [{"sql": "SELECT id FROM workflows"}]}
        problem(await app.post(f"/v1/databases/{schema}/transactions", json=body), 404, "database-not-found")

    served(test, url=postgres_url, home=postgres_url)


def test_a_database_in_whose_schema_workflows_arrive_is_none_any_more(postgres_url: str) -> None:
    schema = f"late_{uuid.uuid4().hex[:12]}"
    body = {"statements": [{"sql": "SELECT 1 AS n"}]}

    async def test(app: Served) -> None:
        path = f"/v1/databases/{schema}/transactions"
        table = {"statements": [{"sql": "CREATE TABLE sample (n integer)"}]}
        assert (await app.post(path, json=table)).status_code == 200
        assert (await app.post(path, json=body)).status_code == 200
        await migrate(f"{postgres_url.rpartition('&')[0]}&schema={schema}")
        problem(await app.post(path, json=body), 404, "database-not-found")

    served(test, url=postgres_url, home=postgres_url)


@pytest.mark.slow
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
