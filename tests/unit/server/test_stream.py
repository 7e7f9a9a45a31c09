"""The stream of events, and how one that was cut off catches up (A9)."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

import interlock
from interlock.server.app_declaration import Limits
from interlock.server.service import SIGNALS
from tests.unit.server.serving import Served, problem, served


class Listener:
    """A client that reads a stream: what it was told, by id, kind and data."""

    def __init__(self) -> None:
        self.text = b""
        self.events: list[tuple[str, str, dict[str, object]]] = []
        self.changed = asyncio.Event()
        self.gone = asyncio.Event()
        self.ended = False

    async def receive(self) -> dict[str, object]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            return
        self.ended = not message.get("more_body", False)
        self.text += message["body"]  # type: ignore[operator]
        *whole, self.text = self.text.split(b"\n\n")
        for part in whole:
            fields = dict(line.split(": ", 1) for line in part.decode().splitlines() if not line.startswith(":"))
            if "event" in fields:
                self.events.append((fields.get("id", ""), fields["event"], msgspec.json.decode(fields["data"])))
            elif "id" in fields:
                self.events.append((fields["id"], "", {}))
        self.changed.set()

    async def until(self, count: int) -> None:
        while len(self.events) < count and not self.ended:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 300)


@asynccontextmanager
async def listening(app: Served, *, query: str = "", last: str | None = None) -> AsyncGenerator[Listener]:
    listener = Listener()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/stream",
        "raw_path": b"/v1/stream",
        "query_string": query.encode(),
        "headers": [] if last is None else [(b"last-event-id", last.encode())],
    }
    running = asyncio.ensure_future(app.app(scope, listener.receive, listener.send))  # type: ignore[arg-type]
    try:
        await listener.until(1)
        yield listener
    finally:
        listener.gone.set()
        await asyncio.wait_for(running, 300)


def test_everything_that_happens_is_told() -> None:
    async def test(app: Served) -> None:
        async with listening(app) as listener:
            await app.start("o-1")
            await app.send("REMARK", note="x")
            await listener.until(3)
        assert [kind for _, kind, _ in listener.events[1:]] == ["transition_applied", "transition_applied"]
        assert listener.events[2][2]["event"] == "REMARK"
        assert app.app.service.ring.streams == 0

    served(test)


def test_a_stream_that_was_cut_off_catches_up() -> None:
    async def test(app: Served) -> None:
        async with listening(app) as listener:
            await app.start("o-1")
            await listener.until(2)
        last = listener.events[-1][0]
        await app.send("REMARK", note="while nobody listens")
        await app.send("REMARK", note="once more")
        async with listening(app, last=last) as again:
            await again.until(3)
        assert [data["version"] for _, _, data in again.events[1:]] == [2, 3]
        async with listening(app, query=f"last_event_id={last}") as by_query:
            await by_query.until(3)
        assert by_query.events[1:] == again.events[1:]

    served(test)


def test_what_is_gone_from_the_ring_is_told_as_a_reset() -> None:
    async def test(app: Served) -> None:
        async with listening(app) as listener:
            pass
        await app.start("o-1")
        for _ in range(3):
            await app.send("REMARK", note="x")
        for last in (listener.events[0][0], "other-1", "nonsense", "x" * 5_000):
            async with listening(app, last=last) as again:
                assert again.events[0][1] == "reset"

    served(test, limits=Limits(stream_events_max=2))


def test_a_slow_listener_is_told_that_it_missed_something() -> None:
    async def test(app: Served) -> None:
        await app.start("o-1")
        async with listening(app) as listener:
            for _ in range(5):  # Nothing of this gives the stream a turn.
                app.app.service.ring._keep(_signal())
            await listener.until(2)
            assert listener.events[1][1] == "reset"

    served(test, limits=Limits(stream_events_max=2))


def test_a_stream_can_be_about_one_workflow_or_kind() -> None:
    async def test(app: Served) -> None:
        async with (
            listening(app, query="workflow=o-2") as one,
            listening(app, query="machine=ticket") as tickets,
            listening(app, query="kind=transition_rejected") as refused,
        ):
            await app.start("o-1")
            await app.start("o-2")
            await app.start("t-1", "ticket")
            await app.send("CHARGED", "o-1")
            await asyncio.gather(one.until(2), tickets.until(2), refused.until(2))
        assert [each.events[1][2]["workflow"] for each in (one, tickets, refused)] == ["o-2", "t-1", "o-1"]

    served(test)


def test_a_bad_question_is_refused() -> None:
    async def test(app: Served) -> None:
        problem(await app.get("/v1/stream?kind=none"), 400, "invalid-payload")
        problem(await app.get("/v1/stream?machine=none"), 404, "machine-not-found")

    served(test)


def test_streams_are_bounded_and_end_when_the_server_leaves() -> None:
    """G6: one more than allowed is 429."""

    async def test(app: Served) -> None:
        async with listening(app) as listener:
            problem(await app.get("/v1/stream"), 429, "overloaded")
            app.app.leave()
            await listener.until(99)
            assert listener.ended

    served(test, limits=Limits(streams_max=1))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_stop_ends_the_streams_and_reaches_the_handler_of_the_server(number: signal.Signals) -> None:
    """A mounted app learns of it in no other way: its server waits for the stream, and then ends the lifespan."""
    received: list[int] = []

    def handler(number: int, frame: object) -> None:
        del frame
        received.append(number)

    async def test(app: Served) -> None:
        before = signal.signal(number, handler)
        try:
            async with listening(app) as one, listening(app) as other:
                signal.raise_signal(number)
                await asyncio.gather(one.until(99), other.until(99))
                assert one.ended
                assert other.ended
                async with listening(app) as again:
                    await again.until(99)
                    assert again.ended, "the socket of the server may still be open"
            assert signal.getsignal(number) is handler
            assert (await app.get("/readyz")).status_code == 200, "the handler may have decided to go on"
        finally:
            signal.signal(number, before)
        assert received == [number]

    served(test)


def test_a_handler_that_is_set_later_stays() -> None:
    async def test(app: Served) -> None:
        before = signal.getsignal(signal.SIGINT)
        try:
            async with listening(app):
                later = signal.default_int_handler
                signal.signal(signal.SIGINT, later)
            assert signal.getsignal(signal.SIGINT) is later
        finally:
            signal.signal(signal.SIGINT, before)

    served(test)


def test_a_stream_of_a_mounted_app_ends_by_itself_and_is_continued() -> None:
    """A server may stop without a signal, or run in another thread than the main one."""

    async def test(app: Served) -> None:
        async with listening(app) as listener:
            await app.start("o-1")
            await listener.until(99)
            assert listener.ended
        async with listening(app, last=listener.events[-1][0]) as again:
            assert again.events[0][1] == "", "nothing was missed"

    served(test, limits=Limits(stream_s=0.01))


def test_a_silent_stream_says_that_it_is_there() -> None:
    async def test(app: Served) -> None:
        listener = Listener()
        said = asyncio.Event()

        async def send(message: dict[str, object]) -> None:
            if b": alive" in message.get("body", b""):  # type: ignore[operator]
                said.set()

        scope = {"type": "http", "method": "GET", "path": "/v1/stream", "query_string": b"", "headers": []}
        running = asyncio.ensure_future(app.app(scope, listener.receive, send))  # type: ignore[arg-type]
        await asyncio.wait_for(said.wait(), 300)
        listener.gone.set()
        await running

    served(test, limits=Limits(stream_alive_s=0.01))


def _signal() -> interlock.TransitionApplied:
    return interlock.TransitionApplied("order", "o-1", "draft", "draft", "REMARK", 2)
