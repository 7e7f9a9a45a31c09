"""The stream goes on where it was cut off, and says when something was missed (A9)."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Signal, TransitionApplied
from interlock.client.client import RETRY
from interlock.client.http_connection import Garbage
from interlock.client.signal_stream import EVENT_BYTES_MAX, SILENCE_S, Parser, Streamed
from interlock.errors import RequestError, UnavailableError
from interlock.wire import KINDS
from tests.unit.client.wires import Cut, Got, Net, Reply, WiredClient, chunks, passed, run


def applied(version: int) -> TransitionApplied:
    return TransitionApplied("order", "o-1", "draft", "draft", "NOTE", version)


def told(number: int, signal: Signal, kind: str = "transition_applied") -> bytes:
    return b"id: life-%d\nevent: %b\ndata: %b\n\n" % (number, kind.encode(), msgspec.json.encode(signal))


HEAD = Reply(kind="text/event-stream; charset=utf-8", chunked=True).written().partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


class Source:
    """A server whose streams are written down beforehand; the last one stays open."""

    def __init__(self, *streams: bytes | Reply) -> None:
        self.net = Net(self.handle)
        self._streams = list(streams)

    async def handle(self, got: Got) -> Reply | bytes:
        stream = self._streams.pop(0)
        if isinstance(stream, Reply):
            return stream
        body = chunks(stream, 11).removesuffix(b"0\r\n\r\n")
        if self._streams:
            raise Cut(HEAD, body)
        return HEAD + body


async def some(client: WiredClient, count: int) -> list[Streamed]:
    found: list[Streamed] = []
    async with client.stream() as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


def test_signals_arrive_as_they_were_told() -> None:
    async def test() -> None:
        source = Source(b"retry: 1000\nid: life-0\n: interlock\n\n" + told(1, applied(2)) + told(2, applied(3)))
        client = WiredClient(source.net)
        events = await some(client, 2)
        assert events == [
            Streamed("life-1", "transition_applied", applied(2)),
            Streamed("life-2", "transition_applied", applied(3)),
        ]
        assert client.open_count == 0
        assert not source.net.wires
        assert source.net.got[0].headers["accept"].startswith("text/event-stream")

    run(test)


def test_a_stream_that_is_cut_off_goes_on_behind_the_last_event() -> None:
    async def test() -> None:
        source = Source(
            b"id: life-0\n: interlock\n\n",
            told(1, applied(2)) + told(2, applied(3))[:20],
            Reply(503, b"", "text/html"),
            told(2, applied(3)),
        )
        client = WiredClient(source.net)
        assert [event.signal for event in await some(client, 2)] == [applied(2), applied(3)]
        lasts = [got.headers.get("last-event-id") for got in source.net.got]
        assert lasts == [None, "life-0", "life-1", "life-1"]
        assert not source.net.wires

    run(test)


def test_a_quiet_stream_may_end_more_often_than_a_call_may_be_retried() -> None:
    """A server that our app is mounted in ends each stream after a while, so that it can stop."""

    async def test() -> None:
        quiet = b"id: life-0\n: interlock\n\n: alive\n\n"
        source = Source(*[quiet] * 3 * RETRY.attempts, told(1, applied(2)))
        assert [event.signal for event in await some(WiredClient(source.net), 1)] == [applied(2)]

    run(test)


def test_a_stream_that_ends_as_soon_as_it_begins_is_a_failure() -> None:
    async def test() -> None:
        source = Source(*[b"id: life-0\n: interlock\n\n"] * (RETRY.attempts + 1))
        with pytest.raises(UnavailableError):
            await some(WiredClient(source.net), 1)

    run(test)


def test_a_gap_is_told_as_a_reset() -> None:
    async def test() -> None:
        source = Source(b"id: other-9\nevent: reset\ndata: {}\n\n" + told(10, applied(7)))
        reset, event = await some(WiredClient(source.net), 2)
        assert reset == Streamed("other-9", "reset")
        assert event.signal == applied(7)

    run(test)


def test_a_stream_that_is_silent_for_too_long_is_opened_again() -> None:
    async def test() -> None:
        silent = Source(b"id: life-0\n: interlock\n\n", told(1, applied(2)))
        first = silent.handle

        async def handle(got: Got) -> Reply | bytes:
            try:
                return await first(got)
            except Cut as cut:
                return b"".join(cut.args)

        silent.net.handler = handle
        assert len(await some(WiredClient(silent.net), 1)) == 1

    assert run(test) == pytest.approx(SILENCE_S, abs=1)


def test_whoever_reads_slowly_is_not_taken_for_silent() -> None:
    async def test() -> None:
        source = Source(told(1, applied(2)) + told(2, applied(3)))
        async with WiredClient(source.net).stream() as events:
            await anext(events)
            await passed(10 * SILENCE_S)
            assert (await anext(events)).signal == applied(3)
        assert len(source.net.got) == 1

    run(test)


def test_a_stream_that_is_refused_for_good_raises() -> None:
    async def test() -> None:
        denied = Reply(403, b'{"code":"not-permitted","title":"No."}', "application/problem+json")
        with pytest.raises(RequestError, match="No"):
            await some(WiredClient(Source(denied).net), 1)
        with pytest.raises(UnavailableError):
            await some(WiredClient(Source(Reply(body=b"{}")).net), 1)
        client = WiredClient(Source(*[Reply(503, b"", "text/html")] * 5).net)
        with pytest.raises(UnavailableError):
            await some(client, 1)

    run(test)


def test_a_stream_asks_for_what_is_wanted_and_takes_no_place_of_the_pool() -> None:
    async def test() -> None:
        source = Source(told(1, applied(2)), Reply(404, b'{"code":"workflow-not-found"}', "application/problem+json"))
        client = WiredClient(source.net, connections_max=1)
        wanted = client.stream(machine="order", workflow="o-1", kinds=["transition_applied"], last_event_id="life-0")
        async with wanted as events:
            await anext(events)
            with pytest.raises(RequestError):
                await client.get("o-1")
        got = source.net.got[0]
        assert got.query == {"machine": "order", "workflow": "o-1", "kind": "transition_applied"}
        assert got.headers["last-event-id"] == "life-0"

    run(test)


def test_closing_the_client_ends_its_streams() -> None:
    async def test() -> None:
        source = Source(told(1, applied(2)))
        client = WiredClient(source.net)
        events = client.stream()
        await anext(events)
        await client.close()
        with pytest.raises(UnavailableError):
            await anext(events)
        assert not source.net.wires

    run(test)


TEXT = told(1, applied(2)) + b": alive\n\n" + told(2, applied(3), "news_of_tomorrow") + told(3, applied(4))


@given(st.lists(st.integers(0, len(TEXT)), max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_are_the_same_wherever_the_pieces_end(cuts: list[int], end: bytes) -> None:
    text = TEXT.replace(b"\n", end)
    parser = Parser()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = [event for a, b in pairwise(places) for event in parser.feed(text[a:b])]
    found += parser.feed(b"\n")  # A carriage return at the very end may still be half of a line's end.
    assert [event.signal for event in found] == [applied(2), applied(4)]
    assert parser.last == "life-3"


def test_an_event_has_a_bound_and_a_shape() -> None:
    with pytest.raises(Garbage, match="longer"):
        Parser().feed(b"data: " + b"x" * EVENT_BYTES_MAX + b"y")
    with pytest.raises(Garbage, match="cannot be read"):
        Parser().feed(b"event: transition_applied\ndata: {}\n\n")


def test_every_signal_has_a_name_in_the_stream() -> None:
    assert set(KINDS.values()) == set(Signal.__args__)
    assert len(KINDS) == len(Signal.__args__)
