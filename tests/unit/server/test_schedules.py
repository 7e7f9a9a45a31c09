"""E6, Schedules over HTTP and through a client: list, put, pause, resume, trigger, backfill, delete."""

import pytest

from interlock import WorkflowNotFound
from tests.unit.server.serving import Served, problem, served

NIGHTLY = {"machine": "order", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}


def test_a_schedule_is_put_shown_paused_and_deleted() -> None:
    async def test(app: Served) -> None:
        assert (await app.get("/v1/schedules")).json() == {"items": [], "cursor": None}
        put = await app.put("/v1/schedules/nightly", json=NIGHTLY)
        assert put.status_code == 200, put.text
        assert (put.json()["name"], put.json()["paused"], put.json()["overlap"]) == ("nightly", False, "skip")
        assert (await app.get("/v1/schedules")).json()["items"] == [put.json()]
        assert (await app.post("/v1/schedules/nightly/pause")).json()["paused"] is True
        assert (await app.get("/v1/schedules/nightly")).json()["next_due"] is None
        assert (await app.post("/v1/schedules/nightly/resume")).json() == put.json()
        assert (await app.client.delete("/v1/schedules/nightly")).json() == put.json()
        problem(await app.get("/v1/schedules/nightly"), 404, "workflow-not-found")
        problem(await app.post("/v1/schedules/nightly/pause"), 404, "workflow-not-found")

    served(test)


def test_a_trigger_and_a_backfill_say_what_they_start() -> None:
    async def test(app: Served) -> None:
        await app.put("/v1/schedules/nightly", json=NIGHTLY)
        started = (await app.post("/v1/schedules/nightly/trigger")).json()
        assert started["count"] == 1
        assert started["id"].startswith("nightly.")
        times = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T00:00:00Z"}
        assert (await app.post("/v1/schedules/nightly/backfill", json=times)).json()["count"] == 2
        naive = times | {"since": "2026-01-01T00:00:00"}
        problem(await app.post("/v1/schedules/nightly/backfill", json=naive), 400, "invalid-payload")
        assert (await app.get("/v1/schedules/nightly")).json()["waiting"] == 3  # No step runs here.

    served(test)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"cron": "nightly"}, 400, "definition"),
        ({"timezone": "Mars/Phobos"}, 400, "definition"),
        ({"every_s": 60}, 400, "definition"),
        ({"machine": "ordre"}, 404, "machine-not-found"),
        ({"context": {"cents": "many"}}, 400, "invalid-payload"),
        ({"overlap": "maybe"}, 400, "invalid-payload"),
    ],
)
def test_a_mistake_is_answered_with_what_to_correct(change: dict[str, object], status: int, code: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.put("/v1/schedules/nightly", json=NIGHTLY | change), status, code)
        assert (await app.get("/v1/schedules")).json()["items"] == []

    served(test)


def test_a_schedule_is_not_among_machines_and_workflows() -> None:
    async def test(app: Served) -> None:
        await app.put("/v1/schedules/nightly", json=NIGHTLY)
        names = [each["name"] for each in (await app.get("/v1/machines")).json()["items"]]
        assert names == ["order", "ticket"]
        assert (await app.get("/v1/workflows")).json()["items"] == []
        problem(await app.get("/v1/workflows/schedule:nightly"), 404, "workflow-not-found")

    served(test)


def test_a_schedule_stays_hidden_while_it_is_in_memory() -> None:
    """An event of its machine that another served machine has too must not reach it with the scope `send`."""

    async def test(app: Served) -> None:
        await app.put("/v1/schedules/nightly", json=NIGHTLY)
        service = app.app.service
        for workflow in ("schedule:nightly", "o-9"):
            with pytest.raises(WorkflowNotFound):
                await service.machine_of(workflow)
        for path in ("/history", "/allowed", "/wait"):
            problem(await app.get(f"/v1/workflows/schedule:nightly{path}"), 404, "workflow-not-found")

    served(test)
