"""Batches: a line in, its result or its problem out, in order (B5, G6)."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import msgspec
import pytest

from interlock import Admission
from interlock.server.app_declaration import Limits
from tests.conformance.engine.places import SetClock
from tests.unit.server import shop
from tests.unit.server.serving import Served, served


def lines(response: httpx.Response) -> list[dict[str, object]]:
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    return [msgspec.json.decode(line) for line in response.content.splitlines()]


async def batch(app: Served, *items: object) -> list[dict[str, object]]:
    body = b"\n".join(item if isinstance(item, bytes) else msgspec.json.encode(item) for item in items)
    return lines(await app.post("/v1/events:batch", content=body))


def test_a_line_may_start_its_workflow() -> None:
    async def test(app: Served) -> None:
        answers = await batch(
            app,
            {"id": "o-9", "event": "CHARGED", "start": {"machine": "order"}},
            {"id": "o-9", "event": "REMARK", "data": {"note": "a"}, "key": "k", "start": {"machine": "order"}},
            {"id": "o-9", "event": "REMARK", "data": {"note": "a"}, "key": "k", "start": {"machine": "order"}},
            {"id": "o-9", "event": "CLOSE", "start": {"machine": "ticket"}},
        )
        assert [each.get("code") for each in answers] == ["invalid-transition", None, None, "workflow-exists"]
        assert [each.get("version") for each in answers[1:3]] == [2, 2]

    served(test)


def test_each_line_has_its_answer_in_order() -> None:
    async def test(app: Served) -> None:
        await app.start("o-1")
        await app.start("t-1", "ticket")
        answers = await batch(
            app,
            {"id": "o-1", "event": "REMARK", "data": {"note": "a"}, "key": "k"},
            {"id": "o-1", "event": "REMARK", "data": {"note": "a"}, "key": "k"},
            {"id": "t-1", "event": "REMARK", "data": {"note": "a"}},
            {"id": "o-1", "event": "CHARGED"},
            {"id": "nobody", "event": "CANCEL"},
            {"id": "a/b", "event": "CANCEL"},
            {"id": "o-1", "event": "NONE"},
            b"",
            b"  ",
            b"{",
            b"\xff",
            {"id": "o-1", "event": "SUBMIT", "data": {"cents": 5}},
        )
        assert [each.get("code") for each in answers] == [
            None,
            None,
            None,
            "invalid-transition",
            "workflow-not-found",
            "invalid-payload",
            "invalid-payload",
            "invalid-payload",
            "invalid-payload",
            None,
        ]
        assert [each.get("duplicate") for each in answers[:3]] == [False, True, False]
        assert answers[3]["id"] == "o-1"
        assert answers[-1] == {"id": "o-1", "state": "charging", "version": 3, "duplicate": False, "ignored": False}

    served(test)


def test_an_empty_batch_has_an_empty_answer() -> None:
    async def test(app: Served) -> None:
        assert lines(await app.post("/v1/events:batch", content=b"")) == []

    served(test)


def test_lines_may_come_in_any_pieces() -> None:
    async def test(app: Served) -> None:
        await app.start("o-1")
        whole = b'{"id": "o-1", "event": "REMARK", "data": {"note": "\xc3\xa4"}}\n' * 3

        async def pieces() -> AsyncGenerator[bytes]:
            for at in range(0, len(whole), 7):
                yield whole[at : at + 7]

        answers = lines(await app.post("/v1/events:batch", content=pieces()))
        assert [each["version"] for each in answers] == [2, 3, 4]

    served(test)


@pytest.mark.parametrize("together", [1, 3, 1_000])
def test_lines_and_their_number_are_bounded(together: int) -> None:
    """G6: every line before the bound is answered, however many are decided together."""

    async def test(app: Served) -> None:
        await app.start("o-1")
        line = {"id": "o-1", "event": "REMARK", "data": {"note": "x"}}
        answers = await batch(app, line, line, line, line)
        assert [each.get("version") for each in answers[:-1]] == [2, 3]
        assert answers[-1]["code"] == "invalid-payload"
        answers = await batch(app, {"id": "o-1", "event": "REMARK", "data": {"note": "x" * 2_000}})
        assert answers[-1]["code"] == "payload-too-large"
        # With its end in the same piece, the long line alone is refused: where the next one begins is known.
        answers = await batch(app, {"id": "o-1", "event": "REMARK", "data": {"note": "x" * 2_000}}, line)
        assert [each.get("code") for each in answers] == ["payload-too-large", None]

    served(test, limits=Limits(batch_lines_max=2, batch_group_max=together, body_bytes_max=1_000))


def test_a_client_that_sends_everything_before_it_reads_is_not_waited_for() -> None:
    """The answers are kept meanwhile; were they not, both sides would wait for ever."""

    async def test(app: Served) -> None:
        await app.start("o-1")
        sent, read = 0, asyncio.Event()

        async def receive() -> dict[str, object]:
            nonlocal sent
            sent += 1
            if sent > 50:
                read.set()
            return {
                "type": "http.request",
                "body": b'{"id": "o-1", "event": "REMARK", "data": {"note": "x"}}\n',
                "more_body": sent < 51,
            }

        got: list[bytes] = []

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.body":
                await read.wait()  # Nothing is read before everything was sent.
                got.append(message["body"])  # type: ignore[arg-type]

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/events:batch",
            "raw_path": b"/v1/events:batch",
            "query_string": b"",
            "headers": [],
        }
        await asyncio.wait_for(app.app(scope, receive, send), 300)  # type: ignore[arg-type]
        assert b"".join(got).count(b"\n") == 51

    served(test)


def test_no_line_overtakes_another_of_the_group_before() -> None:
    """B5: the next group is read while the one before is written, and the answers are in the order of the lines."""

    async def test(app: Served) -> None:
        await app.start("o-1")
        answers = await batch(
            app,
            *({"id": "o-1", "event": "REMARK", "data": {"note": str(number)}} for number in range(9)),
            b"{",
            {"id": "o-1", "event": "SUBMIT", "data": {"cents": 5}},
            {"id": "o-1", "event": "REMARK", "data": {"note": "too late"}},
        )
        assert [each.get("version") for each in answers] == [*range(2, 11), None, 11, None]
        assert [each.get("code") for each in answers[9:]] == ["invalid-payload", None, "invalid-transition"]
        rows = await app.engine.history("o-1")
        assert [getattr(row.context, "note") for row in rows[1:10]] == [str(number) for number in range(9)]  # noqa: B009

    served(test, machines=(shop.order,), limits=Limits(batch_group_max=2))


def test_a_line_is_answered_while_the_client_waits_with_the_next() -> None:
    """A client may look at an answer before it decides what to send."""

    async def test(app: Served) -> None:
        await app.start("o-1")
        answered = asyncio.Semaphore(1)

        async def pieces() -> AsyncGenerator[dict[str, object]]:
            for sent in range(1, 4):
                await answered.acquire()
                yield {
                    "type": "http.request",
                    "body": b'{"id": "o-1", "event": "REMARK", "data": {"note": "x"}}\n',
                    "more_body": sent < 3,
                }

        got: list[bytes] = []

        async def send(message: dict[str, object]) -> None:
            if message.get("body"):
                got.append(message["body"])  # type: ignore[arg-type]
                answered.release()

        scope = {"type": "http", "method": "POST", "path": "/v1/events:batch", "query_string": b"", "headers": []}
        await asyncio.wait_for(app.app(scope, pieces().__anext__, send), 300)  # type: ignore[arg-type]
        assert [msgspec.json.decode(each)["version"] for each in got] == [2, 3, 4]

    served(test)


@pytest.mark.parametrize("together", [1, 2, 1_000])
def test_a_bad_line_between_good_ones_harms_neither(together: int) -> None:
    """Each problem stands in its line's place and names the line, however many are decided together."""

    async def test(app: Served) -> None:
        await app.start("o-1")
        good = {"id": "o-1", "event": "REMARK", "data": {"note": "x"}}
        deep = b'{"id": "o-1", "event": "REMARK", "data": {"note": ' + b"[" * 150 + b"]" * 150 + b"}}"
        answers = await batch(
            app, good, b"{", good, {**good, "data": {"not": "x"}}, good, deep, {**good, "id": ""}, good
        )
        assert [each.get("version") for each in answers] == [2, None, 3, None, 4, None, None, 5]
        assert str(answers[1]["what"]).startswith("line 2 does not fit")
        assert answers[3]["id"] == "o-1"
        assert "'not'" in str(answers[3]["what"])
        assert "nested too deeply" in str(answers[5]["what"])
        assert answers[6]["id"] == ""

    served(test, limits=Limits(batch_group_max=together))


def test_lines_for_which_there_is_no_room_are_refused_in_their_places() -> None:
    """C7: as many as there are tokens are taken in, in order; bad lines take none."""

    async def test(app: Served) -> None:
        await app.start("o-1")
        good = {"id": "o-1", "event": "REMARK", "data": {"note": "x"}}
        answers = await batch(app, good, b"{", good, good, {**good, "key": "\n"}, good)
        assert [each.get("code") for each in answers] == [
            None,
            "invalid-payload",
            None,
            "overloaded",
            "invalid-payload",
            "overloaded",
        ]
        assert [answers[at]["retry_after_s"] for at in (3, 5)] == [1, 1]
        assert answers[3]["id"] == "o-1"

    served(test, admission=Admission(rate_per_s=1, burst=3), clock=SetClock())


def test_an_event_that_several_machines_have_is_read_by_the_workflow_s_own() -> None:
    async def test(app: Served) -> None:
        await app.start("o-1")
        await app.start("t-1", "ticket")
        ids = ["o-1", "t-1", "nobody", "t-1", "o-1"]
        answers = await batch(app, *({"id": each, "event": "REMARK", "data": {"note": "x"}} for each in ids))
        assert [(each["id"], each.get("version")) for each in answers] == [
            ("o-1", 2),
            ("t-1", 2),
            ("nobody", None),
            ("t-1", 3),
            ("o-1", 3),
        ]

    served(test)
