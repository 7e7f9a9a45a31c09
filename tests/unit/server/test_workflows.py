"""Workflows over HTTP: every status of the table (B4, B5, A6, B3)."""

from collections.abc import AsyncGenerator
from urllib.parse import quote

import pytest

from interlock import Admission
from tests.conformance.engine.places import SetClock
from tests.unit.server import shop
from tests.unit.server.serving import Served, problem, served

HOSTILE = "'; DROP TABLE workflows; --<script>alert(1)</script>\u202e\u00e4\U0001f4a5 ${x} {{y}}"


def test_a_start_is_created_once_and_found_afterwards() -> None:
    """B4: the same id with the same input is the one that exists."""

    async def test(app: Served) -> None:
        first, second = await app.start(cents=5), await app.start(cents=5)
        assert (first.status_code, second.status_code) == (201, 200)
        assert first.json() == second.json()
        assert first.headers["etag"] == '"1"'
        assert first.json() | {"created_at": "", "updated_at": ""} == {
            "id": "o-1",
            "machine": "order",
            "state": "draft",
            "context": {"cents": 5, "note": ""},
            "version": 1,
            "created_at": "",
            "updated_at": "",
            "waiting": None,
            "timers": [],
            "paused": False,
        }
        problem(await app.start(cents=6), 409, "workflow-exists")

    served(test)


def test_a_workflow_has_its_version_as_etag() -> None:
    async def test(app: Served) -> None:
        await app.start()
        response = await app.get("/v1/workflows/o-1")
        assert (response.status_code, response.headers["etag"]) == (200, '"1"')
        for tags, status in (('"1"', 304), ('W/"1"', 304), ('"0", "1"', 304), ("*", 304), ('"0"', 200), ("1", 200)):
            asked = await app.get("/v1/workflows/o-1", headers={"If-None-Match": tags})
            assert (asked.status_code, asked.headers["etag"]) == (status, '"1"'), tags
        assert (await app.client.head("/v1/workflows/o-1")).text == ""
        problem(await app.get("/v1/workflows/nobody"), 404, "workflow-not-found")

    served(test)


def test_an_event_may_start_the_workflow() -> None:
    """E5: in one commit, and not at all if the event is refused."""

    async def test(app: Served) -> None:
        begin = {"machine": "order", "context": {"note": "new"}}
        url = "/v1/workflows/o-9/events"
        problem(await app.post(url, json={"event": "CHARGED", "start": begin}), 409, "invalid-transition")
        problem(await app.post(url, json={"event": "CHARGED", "start": {"machine": "ordr"}}), 404, "machine-not-found")
        wrong = {"machine": "order", "context": {"cents": "x"}}
        problem(await app.post(url, json={"event": "CHARGED", "start": wrong}), 400, "invalid-payload")
        problem(await app.get("/v1/workflows/o-9"), 404, "workflow-not-found")
        ignored = await app.post(f"{url}?if_allowed=true", json={"event": "CHARGED", "start": begin})
        assert (ignored.json()["ignored"], ignored.json()["version"]) == (True, 0)
        for duplicate in (False, True):
            sent = await app.post(
                url,
                json={"event": "REMARK", "data": {"note": "first"}, "start": begin},
                headers={"Idempotency-Key": "k"},
            )
            assert sent.json() == {
                "id": "o-9", "state": "draft", "version": 2, "duplicate": duplicate, "ignored": False,
            }  # fmt: skip
        problem(await app.post(url, json={"event": "CLOSE", "start": {"machine": "ticket"}}), 409, "workflow-exists")

    served(test)


def test_an_event_moves_the_workflow() -> None:
    async def test(app: Served) -> None:
        await app.start()
        response = await app.send("SUBMIT", cents=5)
        assert (response.status_code, response.headers["etag"]) == (200, '"2"')
        assert response.json() == {
            "id": "o-1",
            "state": "charging",
            "version": 2,
            "duplicate": False,
            "ignored": False,
        }

    served(test)


def test_a_key_makes_a_delivery_idempotent() -> None:
    """B5: the first answer again, or 422 for another payload."""

    async def test(app: Served) -> None:
        await app.start()
        headers = {"Idempotency-Key": "click-7"}
        first = await app.send("SUBMIT", headers=headers, cents=5)
        again = await app.send("SUBMIT", headers=headers, cents=5)
        assert again.status_code == 200
        assert again.json() == first.json() | {"duplicate": True}
        problem(await app.send("SUBMIT", headers=headers, cents=6), 422, "key-reused")

    served(test)


def test_a_refusal_names_what_is_allowed() -> None:
    async def test(app: Served) -> None:
        await app.start()
        document = problem(await app.send("CHARGED"), 409, "invalid-transition")
        assert (document["state"], document["event"], document["machine"]) == ("draft", "CHARGED", "order")
        assert "SUBMIT" in document["allowed"]
        assert (await app.send("CHARGED", query="?if_allowed=True")).json()["ignored"], "as Python writes it"
        ignored = await app.send("CHARGED", query="?if_allowed=true")
        assert (ignored.status_code, ignored.json()["ignored"]) == (200, True)
        document = problem(await app.send("SUBMIT", query="?if_allowed=true", cents=0), 422, "guard-rejected")
        assert document["guard"] == "affordable"

    served(test)


def test_if_match_depends_on_the_version() -> None:
    async def test(app: Served) -> None:
        await app.start()
        problem(await app.send("SUBMIT", headers={"If-Match": '"2"'}, cents=5), 412, "version-conflict")
        other = problem(await app.send("SUBMIT", headers={"If-Match": '"other"'}, cents=5), 412, "version-conflict")
        assert other["what"] == "If-Match is '\"other\"', which is not a version of workflow 'o-1'."
        problem(await app.send("SUBMIT", headers={"If-Match": '"1", "2"'}, cents=5), 400, "invalid-payload")
        keyed = {"If-Match": '"1"', "Idempotency-Key": "k"}
        assert (await app.send("SUBMIT", headers=keyed, cents=5)).status_code == 200
        assert (await app.send("SUBMIT", headers=keyed, cents=5)).json()["duplicate"], "a key comes before a version"
        assert (await app.send("CANCEL", headers={"If-Match": "*"})).status_code == 200

    served(test)


def test_history_and_allowed_are_listings() -> None:
    """A6, B3."""

    async def test(app: Served) -> None:
        await app.start()
        await app.send("REMARK", note="first")
        await app.send("SUBMIT", headers={"Idempotency-Key": "k"}, cents=5)
        rows = (await app.get("/v1/workflows/o-1/history")).json()
        assert [row["event"] for row in rows["items"]] == ["STARTED", "REMARK", "SUBMIT"]
        assert rows["cursor"] is None
        assert rows["items"][2] | {"created_at": ""} == {
            "version": 3,
            "from_state": "draft",
            "to_state": "charging",
            "event": "SUBMIT",
            "payload": {"cents": 5},
            "context": {"cents": 5, "note": "first"},
            "key": "k",
            "created_at": "",
            "by": "mounted",
        }
        page = (await app.get("/v1/workflows/o-1/history?limit=2")).json()
        rest = (await app.get(f"/v1/workflows/o-1/history?limit=2&cursor={page['cursor']}")).json()
        assert page["items"] + rest["items"] == rows["items"]
        assert rest["cursor"] is None
        allowed = (await app.get("/v1/workflows/o-1/allowed")).json()["items"]
        assert [each["event"] for each in allowed] == ["CHARGED", "CANCEL"]
        problem(await app.get("/v1/workflows/nobody/history"), 404, "workflow-not-found")
        problem(await app.get("/v1/workflows/nobody/allowed"), 404, "workflow-not-found")

    served(test)


def test_allowed_asks_the_guard_of_an_event() -> None:
    async def test(app: Served) -> None:
        await app.start()
        path = "/v1/workflows/o-1/allowed"
        blocked = (await app.get(path, params={"event": "SUBMIT", "data": '{"cents": 0}'})).json()["items"]
        assert [each["blocked_by"] for each in blocked if each["event"] == "SUBMIT"] == ["affordable"]
        problem(await app.get(path, params={"event": "NONE"}), 400, "invalid-payload")
        problem(await app.get(path, params={"event": "SUBMIT", "data": "{"}), 400, "invalid-payload")
        problem(await app.get(path, params={"data": "{}"}), 400, "invalid-payload")

    served(test)


def test_an_event_that_two_machines_have_is_read_by_the_right_one() -> None:
    async def test(app: Served) -> None:
        await app.start("o-1")
        await app.start("t-1", "ticket", title="x")
        assert (await app.send("REMARK", "o-1", note="a")).json()["state"] == "draft"
        assert (await app.send("REMARK", "t-1", note="b")).json()["state"] == "open"
        problem(await app.send("REMARK", "nobody", note="b"), 404, "workflow-not-found")
        assert (await app.send("CLOSE", "o-1")).status_code == 400, "an event of another machine"
        assert (await app.get("/v1/workflows/t-1")).json()["context"] == {"title": "b"}

    served(test)


@pytest.mark.parametrize(
    "workflow", ["o 1", "ä", "\U0001f4a5", "a%2Fb".replace("%2F", "%"), "a+b", "x" * 200, "..a", "?"]
)
def test_printable_ids_without_a_slash_are_fine(workflow: str) -> None:
    async def test(app: Served) -> None:
        assert (await app.start(workflow)).status_code == 201
        path = f"/v1/workflows/{quote(workflow, safe='')}"
        assert (await app.get(path)).json()["id"] == workflow
        assert (await app.post(f"{path}/events", json={"event": "REMARK", "data": {"note": "x"}})).status_code == 200

    served(test)


@pytest.mark.parametrize("workflow", ["a/b", "", "x" * 201, "a\nb", "\u202e", "\x00", "a\u2028"])
def test_what_is_no_id_is_refused_everywhere(workflow: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.start(workflow), 400, "invalid-payload")
        path = f"/v1/workflows/{quote(workflow, safe='')}"
        for response in (
            await app.get(path),
            await app.get(f"{path}/history"),
            await app.get(f"{path}/allowed"),
            await app.post(f"{path}/events", json={"event": "CANCEL"}),
        ):
            problem(response, 400, "invalid-payload")

    served(test)


def test_an_id_that_is_not_utf8_is_refused() -> None:
    async def test(app: Served) -> None:
        problem(await app.get("/v1/workflows/%ff%fe"), 400, "invalid-payload")

    served(test)


def test_free_text_is_stored_verbatim() -> None:
    async def test(app: Served) -> None:
        await app.start("o-1", note=HOSTILE)
        assert (await app.get("/v1/workflows/o-1")).json()["context"]["note"] == HOSTILE
        await app.send("REMARK", note=HOSTILE * 2)
        rows = (await app.get("/v1/workflows/o-1/history")).json()["items"]
        assert rows[1]["payload"] == {"note": HOSTILE * 2}
        assert (await app.get("/v1/workflows?machine=order")).json()["items"][0]["context"]["note"] == HOSTILE * 2

    served(test)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"id": 5}',
        b'{"id": "a", "context": 5}',
        b'{"id": "a", "context": null}',
        b'{"id": "a", "context": {"cents": "5"}}',
        b'{"id": "a", "context": {"centz": 5}}',
        b'{"id": "a", "context": {"note": "\\u0000"}}',
        b'{"id": "a", "context": {"note": "\\ud800"}}',
        b'{"id": "a", "contxt": {}}',
        b'{"id": "a", "context": {"cents": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_a_bad_start_stores_nothing(body: bytes) -> None:
    async def test(app: Served) -> None:
        response = await app.post("/v1/machines/order/workflows", content=body)
        problem(response, 400, "invalid-payload")
        assert (await app.get("/v1/workflows?machine=order")).json()["items"] == []

    served(test)


@pytest.mark.parametrize(
    ("body", "query"),
    [
        (b"", ""),
        (b"{", ""),
        (b'{"event": "NONE"}', ""),
        (b'{"event": "submit", "data": {"cents": 5}}', ""),
        (b'{"event": 5}', ""),
        (b'{"event": "SUBMIT"}', ""),
        (b'{"event": "SUBMIT", "data": {"cents": 5, "more": 1}}', ""),
        (b'{"event": "SUBMIT", "data": null}', ""),
        (b'{"event": "SUBMIT", "data": {"cents": 5}, "keys": "k"}', ""),
        (b'{"event": "CANCEL"}', "?if_allowed=perhaps"),
        (b'{"event": "CANCEL"}', "?if_alowed=true"),
        (b'{"event": "CANCEL"}', "?if_allowed=true&if_allowed=false"),
        (b'{"event": "CANCEL"}', "?if_allowed=%ff"),
    ],
)
def test_a_bad_event_changes_nothing(body: bytes, query: str) -> None:
    async def test(app: Served) -> None:
        await app.start()
        problem(await app.post(f"/v1/workflows/o-1/events{query}", content=body), 400, "invalid-payload")
        assert (await app.get("/v1/workflows/o-1")).json()["version"] == 1

    served(test)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
def test_a_bad_key_is_refused(key: str) -> None:
    async def test(app: Served) -> None:
        await app.start()
        response = await app.send("CANCEL", headers={"Idempotency-Key": key})
        problem(response, 400, "invalid-payload")

    served(test)


def test_a_machine_that_is_not_served_is_not_found() -> None:
    async def test(app: Served) -> None:
        document = problem(await app.start("x", "ordr"), 404, "machine-not-found")
        assert "order" in document["what"]

    served(test)


def test_too_much_work_is_refused_with_a_time_to_come_back() -> None:
    """C7: 429, and whole seconds, at least 1."""

    async def test(app: Served) -> None:
        assert (await app.start()).status_code == 201
        response = await app.send("REMARK", note="x")
        document = problem(response, 429, "overloaded")
        assert response.headers["retry-after"] == "1"
        assert document["retry"] == "later"
        assert document["retry_after_s"] == 1

    served(test, admission=Admission(rate_per_s=1, burst=1), clock=SetClock())


def test_one_machine_alone_needs_no_look_up() -> None:
    async def test(app: Served) -> None:
        await app.start()
        assert (await app.send("SUBMIT", cents=5)).status_code == 200
        problem(await app.send("SUBMIT", "nobody", cents=5), 404, "workflow-not-found")

    served(test, machines=[shop.order])


def test_a_default_that_is_left_out_is_the_same_input() -> None:
    """B4, B5: what means the same is the same, also beside a program that starts it."""

    async def test(app: Served) -> None:
        await app.engine.start(shop.order, "o-1", shop.Order(cents=5))
        assert (await app.start(cents=5)).status_code == 200
        assert (await app.start(cents=5, note="")).status_code == 200
        headers = {"Idempotency-Key": "k"}
        await app.send("REMARK", headers=headers)
        assert (await app.send("REMARK", headers=headers, note="")).json()["duplicate"]

    served(test)


def test_an_overloaded_server_refuses_before_it_reads_the_body() -> None:
    """C7: whoever is refused costs next to nothing, however much they would have sent."""

    async def test(app: Served) -> None:
        assert (await app.start("o-1")).status_code == 201

        async def unread() -> AsyncGenerator[bytes]:
            raise AssertionError("somebody waits for the body")
            yield b""

        for path in ("/v1/workflows/o-1/events", "/v1/machines/order/workflows"):
            problem(await app.post(path, content=unread()), 429, "overloaded")

    served(test, admission=Admission(rate_per_s=0.001, burst=1))
