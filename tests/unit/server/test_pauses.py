"""E7, Pauses over HTTP and through a client: pause, list, resume, and what is wrong."""

import pytest

from interlock.engine.pauses import PauseScope
from tests.unit.server.serving import Served, problem, served


def test_a_state_and_a_workflow_are_paused_and_resumed() -> None:
    async def test(app: Served) -> None:
        await app.start()
        paused = await app.post("/v1/pauses", json={"machine": "order", "state": "charging", "note": "the bank"})
        assert paused.status_code == 200, paused.text
        assert paused.json() | {"by": "", "since": ""} == {
            "machine": "order", "state": "charging", "workflow": None, "by": "", "note": "the bank", "since": "",
        }  # fmt: skip
        assert (await app.get("/v1/workflows/o-1")).json()["paused"] is False
        await app.post("/v1/pauses", json={"id": "o-1"})
        assert (await app.get("/v1/workflows/o-1")).json()["paused"] is True
        assert [each["workflow"] for each in (await app.get("/v1/pauses")).json()["items"]] == [None, "o-1"]
        for resumed in (True, False):
            assert (await app.post("/v1/pauses/resume", json={"id": "o-1"})).json() == {"resumed": resumed}
        assert (await app.get("/v1/workflows/o-1")).json()["paused"] is False

    served(test)


def test_the_workflow_of_a_pause_is_not_there_for_the_route_of_children() -> None:
    async def test(app: Served) -> None:
        await app.start()
        await app.post("/v1/pauses", json={"id": "o-1"})
        own = PauseScope(workflow="o-1").id
        problem(await app.get(f"/v1/workflows/{own}/children"), 404, "workflow-not-found")
        assert (await app.get("/v1/workflows/o-1/children")).json()["items"] == []

    served(test)


def test_a_long_name_of_a_person_does_not_hide_the_key() -> None:
    async def test(app: Served) -> None:
        await app.start()
        key = (await app.post("/v1/pauses", json={"id": "o-1"})).json()["by"]
        by = (await app.post("/v1/pauses", json={"id": "o-1", "by": "x" * 5_000})).json()["by"]
        assert (len(by), by.endswith(f"x with {key}")) == (200, True)

    served(test)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "usage"),
        ({"id": "o-1", "machine": "order"}, 400, "usage"),
        ({"id": "o-1", "state": "charging"}, 400, "invalid-payload"),
        ({"id": "nobody"}, 404, "workflow-not-found"),
        ({"machine": "ordr"}, 404, "machine-not-found"),
        ({"machine": "order", "state": "chargin"}, 400, "invalid-payload"),
        ({"machine": "interlock.pause"}, 404, "machine-not-found"),
    ],
)
def test_a_mistake_is_answered_with_what_to_correct(body: dict[str, object], status: int, code: str) -> None:
    async def test(app: Served) -> None:
        await app.start()
        problem(await app.post("/v1/pauses", json=body), status, code)
        assert (await app.get("/v1/pauses")).json()["items"] == []

    served(test)
