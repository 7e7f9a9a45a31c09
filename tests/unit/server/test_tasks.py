"""F2, tasks over HTTP and through a client: listed, claimed, released, decided once."""

import asyncio

from interlock.server.security.keys import Scope
from tests.unit.server import shop
from tests.unit.server.serving import Served, problem, served
from tests.unit.server.shop import Cancel
from tests.unit.server.test_scopes import keyed


def test_a_task_is_listed_with_the_forms_of_its_events() -> None:
    async def test(app: Served) -> None:
        await app.start(cents=5, note="<b>")
        await app.start("o-2")
        [first, second] = (await app.get("/v1/tasks?role=clerk")).json()["items"]
        assert first | {"since": ""} == {
            "id": "o-1@1", "workflow": "o-1", "machine": "order", "state": "draft", "version": 1, "role": "clerk",
            "title": "Submit 5: <b>", "since": "", "due_at": None, "overdue": False, "claimed_by": None,
            "claimed_at": None, "events": ["SUBMIT", "CANCEL"],
        }  # fmt: skip
        assert second["id"] == "o-2@1"
        page = (await app.get("/v1/tasks?limit=1")).json()
        assert [each["id"] for each in page["items"]] == ["o-1@1"]
        rest = (await app.get("/v1/tasks", params={"cursor": page["cursor"]})).json()
        assert ([each["id"] for each in rest["items"]], rest["cursor"]) == (["o-2@1"], None)
        assert (await app.get("/v1/tasks?role=manager")).json() == {"items": [], "cursor": None}
        assert (await app.get("/v1/tasks?machine=ticket")).json()["items"] == []
        problem(await app.get("/v1/tasks?machine=ordr"), 404, "machine-not-found")
        problem(await app.get("/v1/tasks?cursor=x"), 400, "invalid-payload")
        one = (await app.get("/v1/tasks/o-1@1")).json()
        forms = one.pop("forms")
        assert one == first
        schemas = (await app.get("/v1/machines/order")).json()["events"]
        assert forms == {each["name"]: each["schema"] for each in schemas if each["name"] in first["events"]}
        assert forms["SUBMIT"]["$defs"]["Submit"]["properties"] == {"cents": {"type": "integer"}}
        assert list(forms) == ["SUBMIT", "CANCEL"]
        for unknown in ("o-1", "o-1@2", "x@1"):
            problem(await app.get(f"/v1/tasks/{unknown}"), 404, "workflow-not-found")

    served(test)


def test_a_claim_is_of_the_person_or_of_the_key() -> None:
    async def test(app: Served) -> None:
        await app.start()
        claimed = (await app.post("/v1/tasks/o-1@1/claim?by=ada")).json()
        assert (claimed["claimed_by"], claimed["version"]) == ("ada", 1)
        assert (await app.post("/v1/tasks/o-1@1/claim?by=ada")).json() == claimed
        refused = problem(await app.post("/v1/tasks/o-1@1/claim?by=bob"), 409, "task-claimed")
        assert (refused["by"], refused["since"]) == ("ada", claimed["claimed_at"])
        assert "ada has claimed it at" in refused["detail"]
        problem(await app.post("/v1/tasks/o-1@1/release?by=bob"), 409, "task-claimed")
        assert [each["id"] for each in (await app.get("/v1/tasks?by=ada")).json()["items"]] == ["o-1@1"]
        assert (await app.get("/v1/tasks?by=bob")).json()["items"] == []
        assert (await app.post("/v1/tasks/o-1@1/release?by=ada")).json()["claimed_by"] is None
        holder = (await app.post("/v1/tasks/o-1@1/claim")).json()["claimed_by"]
        assert holder
        assert (await app.post("/v1/tasks/o-1@1/release?by=ada&force=true")).json()["claimed_by"] is None

    served(test)


def test_the_second_of_two_decisions_is_told_who_was_faster() -> None:
    async def test(app: Served) -> None:
        await app.start()
        ada = await app.send("CANCEL", query="?by=ada", headers={"If-Match": '"1"'})
        assert ada.status_code == 200
        [row] = [each for each in (await app.get("/v1/workflows/o-1/history")).json()["items"] if each["version"] == 2]
        late = problem(
            await app.send("SUBMIT", query="?by=bob", headers={"If-Match": '"1"'}, cents=1), 412, "version-conflict"
        )
        assert late["decided"] == {
            "event": "CANCEL", "by": row["by"], "at": row["created_at"], "from_state": "draft",
            "to_state": row["to_state"], "version": 2,
        }  # fmt: skip
        assert f"Before that, {row['by']} decided it with CANCEL" in late["detail"]
        later = problem(await app.send("SUBMIT", query="?by=bob", cents=1), 409, "invalid-transition")
        assert later["decided"] == late["decided"]
        for call in (app.post("/v1/tasks/o-1@1/claim?by=bob"), app.get("/v1/tasks/o-1@1")):
            ended = problem(await call, 409, "version-conflict")
            assert ended["decided"] == late["decided"]
        assert "decided" not in problem(await app.send("REMARK"), 409, "invalid-transition")

    served(test)


def test_only_an_operator_takes_a_task_from_another() -> None:
    async def run() -> None:
        async with keyed() as home:
            path, client = "/v1/tasks/o-1@1", home.app.client
            send, operate = await home.key(Scope.SEND), await home.key(Scope.OPERATE)
            assert (await client.post(f"{path}/claim?by=ada", headers=send)).status_code == 200
            problem(await client.post(f"{path}/release?by=bob&force=true", headers=send), 403, "not-permitted")
            released = await client.post(f"{path}/release?by=bob&force=true", headers=operate)
            assert released.json()["claimed_by"] is None
            actions = [(each.action, each.target) for each in await home.audit.read()]
            assert actions.count(("task.claim", "o-1@1")) == 1
            assert ("task.release", "o-1@1") in actions

    asyncio.run(run())


def test_a_limited_key_sees_its_own_tasks_only() -> None:
    async def run() -> None:
        async with keyed() as home:
            for each in ("x-1", "o-2", "x-2"):
                await home.app.engine.start(shop.order, each, shop.Order())
            headers = await home.key(Scope.SEND, prefixes=("x-",))
            found: list[str] = []
            cursor: str | None = None
            while True:
                query = {"limit": "1"} | ({} if cursor is None else {"cursor": cursor})
                page = (await home.app.client.get("/v1/tasks", params=query, headers=headers)).json()
                found += [each["id"] for each in page["items"]]
                cursor = page["cursor"]
                if cursor is None:
                    break
            assert found == ["x-1@1", "x-2@1"]
            for call in ("/v1/tasks/o-2@1", "/v1/tasks/o-9@1"):
                problem(await home.app.client.get(call, headers=headers), 403, "not-permitted")
            ticket = await home.key(Scope.SEND, machines=("ticket",))
            assert (await home.app.client.get("/v1/tasks", headers=ticket)).json()["items"] == []
            problem(await home.app.client.get("/v1/tasks?machine=order", headers=ticket), 403, "not-permitted")

    asyncio.run(run())


def test_a_task_of_a_state_that_was_left_by_itself_names_no_actor() -> None:
    async def test(app: Served) -> None:
        await app.start()
        await app.engine.send("o-1", Cancel())
        ended = problem(await app.post("/v1/tasks/o-1@1/claim?by=bob"), 409, "version-conflict")
        assert ended["decided"]["by"] is None
        assert "it was decided with CANCEL at" in ended["detail"]

    served(test)
