"""POST /v1/workflows/{id}/fork (F6)."""

from tests.unit.server import shop
from tests.unit.server.serving import Served, served
from tests.unit.server.shop import Cancel, Order, State


def test_a_fork_is_a_workflow_with_its_actor() -> None:
    async def test(served: Served) -> None:
        await served.engine.start(shop.order, "o-1", Order(note="x"))
        fork = {"at_version": 1, "id": "o-2"}
        answer = await served.client.post("/v1/workflows/o-1/fork?by=ada", json=fork)
        assert (answer.status_code, answer.json()["id"], answer.headers["etag"]) == (201, "o-2", '"1"')
        assert (await served.client.post("/v1/workflows/o-1/fork", json=fork)).status_code == 201
        [row] = (await served.get("/v1/workflows/o-2/history")).json()["items"]
        assert (row["event"], row["payload"]) == ("FORKED", {"workflow": "o-1", "version": 1})
        assert row["by"].startswith("ada with ")
        assert (await served.client.post("/v1/workflows/x/fork", json=fork)).status_code == 404
        assert (await served.client.post("/v1/workflows/o-1/fork", json={**fork, "at_version": 9})).status_code == 404
        assert (await served.client.post("/v1/workflows/o-1/fork", json={"id": "o-3"})).status_code == 400

    served(test)


def test_a_version_that_cannot_be_forked_is_a_conflict() -> None:
    async def test(served: Served) -> None:
        await served.engine.start(shop.order, "o-1", Order())
        await served.engine.send("o-1", Cancel())
        view = await served.engine.wait("o-1", State.CANCELLED)
        fork = {"at_version": view.version, "id": "o-2"}
        answer = await served.client.post("/v1/workflows/o-1/fork", json=fork)
        assert (answer.status_code, "is final" in answer.text) == (409, True)

    served(test, worker=True)
