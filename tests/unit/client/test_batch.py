"""`send_many`: one answer per item, in order, also when the answers stop half-way (B5)."""

from collections.abc import Sequence
from enum import Enum

import pytest

from interlock import Moved, Refused, errors
from interlock.client import workflow_requests as batch
from interlock.errors import InvalidPayload, InvalidTransition, OutcomeUnknown, Overloaded, UnavailableError
from tests.unit.client.server import NDJSON, Server
from tests.unit.client.shop import Cancel, Charged, Note, Order, OrderEvent, Submit, order
from tests.unit.client.wires import Cut, Got, Reply, WiredClient, run

Items = list[tuple[str, OrderEvent, str | None]]


async def begun(count: int, *weather: str | Reply | bytes) -> tuple[Server, WiredClient]:
    server = Server()
    client = WiredClient(server.net)
    for at in range(count):
        await client.start(order, f"o-{at}", Order())
    server.net.got.clear()
    server.applied.clear()
    server.weather.extend(weather)
    return server, client


def states(answers: Sequence[Moved[Enum] | Refused]) -> list[str]:
    return [answer.error.code if isinstance(answer, Refused) else answer.state.value for answer in answers]


def test_each_item_has_its_answer_in_order() -> None:
    async def test() -> None:
        server, client = await begun(2)
        answers = await client.send_many(
            [
                ("o-0", Submit(5), "k"),
                ("o-1", Charged()),
                ("nobody", Cancel()),
                ("o-0", Charged(), "l"),
                ("o-0", Submit(5), "k"),
                ("with/slash", Cancel()),
            ]
        )
        codes = ["charging", "invalid-transition", "workflow-not-found", "done", "charging", "invalid-payload"]
        assert states(answers) == codes
        assert isinstance(answers[1], Refused)
        assert isinstance(answers[1].error, InvalidTransition)
        assert answers[1].error.allowed
        assert isinstance(answers[4], Moved)
        assert answers[4].duplicate
        assert isinstance(answers[5], Refused)
        assert isinstance(answers[5].error, InvalidPayload)
        assert len(server.net.got) == 1
        assert await client.send_many([]) == []

    run(test)


def test_a_long_list_goes_in_pieces_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, client = await begun(1)
        answers = await client.send_many([("o-0", Note(f"{at}"), f"k-{at}") for at in range(25)])
        assert [answer.version for answer in answers if isinstance(answer, Moved)] == [*range(2, 27)]
        assert len(server.net.got) == 3

    monkeypatch.setattr(batch, "LINES_MAX", 10)
    run(test)


def test_a_piece_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        server, client = await begun(1)
        await client.send_many([("o-0", Note("x" * 80), f"k-{at}") for at in range(6)])
        assert len(server.net.got) == 6

    monkeypatch.setattr(batch, "BYTES_MAX", 200)
    run(test)


@pytest.mark.parametrize("mood", ["cut before", "cut after", "half", "unknown before", "silent", "busy", "moving"])
def test_items_with_keys_are_applied_once_whatever_happens(mood: str) -> None:
    async def test() -> None:
        server, client = await begun(1, mood, mood)
        answers = await client.send_many([("o-0", Note(f"{at}"), f"k-{at}") for at in range(5)])
        assert [answer.version for answer in answers if isinstance(answer, Moved)] == [2, 3, 4, 5, 6]
        assert len(server.applied) == 5

    run(test)


def test_of_half_an_answer_the_half_counts_and_only_keys_are_sent_again() -> None:
    async def test() -> None:
        server, client = await begun(1)
        fine = server.net.handler
        halves = 1

        async def half(got: Got) -> Reply | bytes:
            nonlocal halves
            if not halves:
                return await fine(got)
            halves -= 1
            lines = server.answer(got).body.splitlines(keepends=True)
            told = b"".join(lines[:2])
            raise Cut(Reply(kind=NDJSON, headers={"Content-Length": "9999"}, body=told + lines[2][:9]).written())

        server.net.handler = half
        items: Items = [("o-0", Note(f"{at}"), None if at in {0, 3} else f"k-{at}") for at in range(5)]
        answers = await client.send_many(items)
        assert states(answers) == ["draft", "draft", "draft", "outcome-unknown", "draft"]
        assert [getattr(answer, "version", None) for answer in answers] == [2, 3, 4, None, 6]
        assert len(server.applied) == 5
        assert [line.count(b"k-") for line in server.net.got[1].body.splitlines()] == [1, 1]

    run(test)


def test_an_answer_with_too_few_lines_is_not_the_end() -> None:
    async def test() -> None:
        short = Reply(body=b'{"id":"o-0","state":"draft","version":2}\n', kind=NDJSON)
        server, client = await begun(1, short)
        answers = await client.send_many([("o-0", Note("a"), "k-0"), ("o-0", Note("b"), "k-1")])
        assert [isinstance(answer, Moved) for answer in answers] == [True, True]
        assert len(server.net.got[1].body.splitlines()) == 1

    run(test)


@pytest.mark.parametrize(
    "garbage",
    [b'{"id":"o-0","state":"draft","version":2}\n' * 3, b'{"state"\n', b"\xff\xfe\n", b"[]\n", b"x" * 2_000_000],
)
def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(garbage: bytes) -> None:
    async def test() -> None:
        _, client = await begun(1, Reply(body=garbage, kind=NDJSON))
        answers = await client.send_many([("o-0", Note("a"), "k-0"), ("o-0", Note("b"))])
        assert {answer.error.code for answer in answers if isinstance(answer, Refused)} <= {"outcome-unknown"}
        await client.close()

    run(test)


def test_a_batch_that_could_not_be_asked_for_at_all_raises() -> None:
    async def test() -> None:
        server, client = await begun(1, "busy")
        with pytest.raises(Overloaded):
            await client.send_many([("o-0", Note("a"), "k"), ("o-0", Note("b"))])
        server.weather.append(Reply(401, b'{"code":"x","title":"No."}', "application/problem+json"))
        with pytest.raises(errors.RequestError):
            await client.send_many([("o-0", Note("a"), "k")])
        server.net.refused = 9
        with pytest.raises(UnavailableError):
            await WiredClient(server.net).send_many([("o-0", Note("a"))])

    run(test)


def test_what_was_answered_is_not_lost_when_a_later_piece_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        _, client = await begun(1, "fine", "cut after")
        answers = await client.send_many([("o-0", Note(f"{at}")) for at in range(3)])
        assert states(answers) == ["draft", "outcome-unknown", "draft"]
        _, client = await begun(1, "fine", "busy")
        answers = await client.send_many([("o-0", Note(f"{at}")) for at in range(3)])
        assert states(answers) == ["draft", "overloaded", "overloaded"]

    monkeypatch.setattr(batch, "LINES_MAX", 1)
    run(test)


def test_a_key_may_have_spaces_around_it_in_a_batch_and_not_in_a_header() -> None:
    async def test() -> None:
        _, client = await begun(1)
        [answer] = await client.send_many([("o-0", Note("a"), " k ")])
        assert isinstance(answer, Moved)
        with pytest.raises(InvalidPayload, match="space"):
            await client.send("o-0", Note("a"), key=" k ")
        assert not isinstance(answer, OutcomeUnknown)

    run(test)
