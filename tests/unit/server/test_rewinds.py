"""POST /v1/workflows/{id}/rewind (F6)."""

from tests.unit.server import shop
from tests.unit.server.serving import Served, served
from tests.unit.server.shop import Cancel, Order, Remark, State

PATH = "/v1/workflows/o-1/rewind"


def test_a_workflow_is_set_back_by_its_actor() -> None:
    async def test(served: Served) -> None:
        await served.engine.start(shop.order, "o-1", Order())
        await served.engine.send("o-1", Remark("x"))
        dry = await served.client.post(PATH, json={"to_version": 1, "dry_run": True})
        assert (dry.status_code, dry.headers["etag"]) == (200, '"2"')
        assert dry.json() == {
            "id": "o-1", "to_version": 1, "state": dry.json()["state"], "version": 2, "undo": [], "duplicate": False,
        }  # fmt: skip
        assert (await served.engine.get("o-1")).version == 2
        body = {"to_version": 1, "note": "a mistake"}
        answer = await served.client.post(f"{PATH}?by=ada", json=body, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["version"], answer.headers["etag"]) == (200, 3, '"3"')
        again = await served.client.post(f"{PATH}?by=ada", json=body, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        row = (await served.get("/v1/workflows/o-1/history")).json()["items"][-1]
        assert (row["event"], row["payload"]) == ("REWOUND", {"to_version": 1, "note": "a mistake"})
        assert row["by"].startswith("ada with ")

    served(test)


def test_another_version_than_the_expected_one_and_one_that_is_not_there() -> None:
    async def test(served: Served) -> None:
        await served.engine.start(shop.order, "o-1", Order())
        await served.engine.send("o-1", Remark("x"))
        for tag in ('"1"', "nothing"):
            answer = await served.client.post(PATH, json={"to_version": 1}, headers={"If-Match": tag})
            assert answer.status_code == 412
        answer = await served.client.post(PATH, json={"to_version": 1}, headers={"If-Match": '"2"'})
        assert answer.status_code == 200
        assert (await served.client.post(PATH, json={"to_version": 9})).status_code == 404
        assert (await served.client.post("/v1/workflows/x/rewind", json={"to_version": 1})).status_code == 404
        assert (await served.client.post(PATH, json={"note": "x"})).status_code == 400

    served(test)


def test_a_workflow_that_has_ended_is_a_conflict() -> None:
    async def test(served: Served) -> None:
        await served.engine.start(shop.order, "o-1", Order())
        await served.engine.send("o-1", Cancel())
        await served.engine.wait("o-1", State.CANCELLED)
        answer = await served.client.post(PATH, json={"to_version": 1})
        assert (answer.status_code, "it has ended in" in answer.text) == (409, True)

    served(test, worker=True)
