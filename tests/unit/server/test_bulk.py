"""F5, Bulk actions over HTTP and through a client: dry run, run, progress, stop, and what is wrong."""

import asyncio

import pytest

from interlock.engine.operators import bulk
from tests.unit.server.serving import Served, problem, served

CANCEL = {"machine": "order", "action": "send", "state": "draft", "event": "REMARK", "data": {"note": "x"}}


async def done(app: Served, name: str) -> dict[str, object]:
    """The run when it is done."""
    while True:
        run: dict[str, object] = (await app.get(f"/v1/bulk/{name}")).json()
        if run["state"] != "running":
            return run
        await asyncio.sleep(0)


def test_a_run_is_planned_begun_watched_and_repeated() -> None:
    async def test(app: Served) -> None:
        for number in range(5):
            await app.start(f"o-{number}", cents=number)
        body = CANCEL | {"where": ["cents>0"], "rate_per_s": 1_000}
        plan = await app.post("/v1/bulk/n?dry_run=true", json=body)
        assert (plan.status_code, plan.json()) == (200, {"matching": 4, "moving": 4, "refused": {}, "examples": {}})
        problem(await app.get("/v1/bulk/n"), 404, "workflow-not-found")
        begun = await app.post("/v1/bulk/n?by=ada", json=body)
        assert begun.status_code in {200, 202}, begun.text
        run = await done(app, "n")
        assert (run["state"], run["moved"], run["event"], run["data"]) == ("done", 4, "REMARK", {"note": "x"})
        assert run["filter"] == {
            "state": "draft", "where": ["cents > 0"], "updated_after": None, "updated_before": None,
            "kind": None, "letter": None, "error": None,
        }  # fmt: skip
        assert str(run["by"]).startswith("ada")
        again = await app.post("/v1/bulk/n", json=body)
        assert (again.status_code, again.json()) == (200, run)
        assert [each["name"] for each in (await app.get("/v1/bulk")).json()["items"]] == ["n"]
        assert (await app.get("/v1/workflows/o-0")).json()["context"]["note"] == ""
        row = (await app.get("/v1/workflows/o-1/history")).json()["items"][-1]
        assert (row["key"], row["by"]) == ("bulk:n", run["by"])
        problem(await app.get("/v1/workflows/bulk:n/children"), 404, "workflow-not-found")
        problem(await app.post("/v1/bulk/n", json=body | {"data": {"note": "y"}}), 422, "key-reused")

    served(test)


def test_a_run_is_stopped_and_resumed_and_its_progress_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 1)

    async def test(app: Served) -> None:
        for number in range(3):
            await app.start(f"o-{number}")
        go, apply = asyncio.Event(), bulk.BulkSource.commanded

        async def held(self: bulk.BulkSource, items: list[bulk.Item], by: str | None) -> object:
            await go.wait()
            return await apply(self, items, by)

        monkeypatch.setattr(bulk.BulkSource, "commanded", held)
        assert (await app.post("/v1/bulk/n", json=CANCEL)).status_code == 202
        again = await app.post("/v1/bulk/n", json=CANCEL)
        assert (again.status_code, again.json()["state"]) == (202, "running")
        stopped = await app.client.delete("/v1/bulk/n?by=ada")
        assert (stopped.status_code, stopped.json()["state"]) == (200, "interrupted")
        go.set()
        assert (await app.post("/v1/bulk/n", json=CANCEL)).status_code in {200, 202}
        run = await done(app, "n")
        assert (run["state"], run["moved"], run["matching"]) == ("done", 3, 3)
        problem(await app.client.delete("/v1/bulk/another"), 404, "workflow-not-found")

    served(test)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid-payload"),
        ({"machine": "order", "action": "drop"}, 400, "invalid-payload"),
        ({"machine": "order", "action": "send"}, 400, "invalid-payload"),
        ({"machine": "order", "action": "send", "event": "NONE"}, 400, "invalid-payload"),
        ({"machine": "ordr", "action": "pause"}, 404, "machine-not-found"),
        ({"machine": "interlock.bulk", "action": "pause"}, 404, "machine-not-found"),
        ({"machine": "order", "action": "pause", "state": "drafd"}, 400, "invalid-payload"),
        ({"machine": "order", "action": "pause", "where": ["colour=red"]}, 400, "invalid-payload"),
        ({"machine": "order", "action": "pause", "rate_per_s": 0}, 400, "invalid-payload"),
        ({"machine": "order", "action": "retry", "kind": "guard"}, 400, "invalid-payload"),
        ({"machine": "order", "action": "pause", "event": "CANCEL"}, 400, "invalid-payload"),
        ({"machine": "order", "action": "pause", "letter": "charge"}, 400, "invalid-payload"),
        ({"machine": "order", "action": "send", "event": "CANCEL", "kind": "step"}, 400, "invalid-payload"),
    ],
)
def test_a_mistake_is_answered_with_what_to_correct(body: dict[str, object], status: int, code: str) -> None:
    async def test(app: Served) -> None:
        await app.start()
        for query in ("", "?dry_run=true"):
            problem(await app.post(f"/v1/bulk/n{query}", json=body), status, code)
        assert (await app.get("/v1/bulk")).json()["items"] == []

    served(test)
