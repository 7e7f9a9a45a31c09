"""What takes longer than a request: a key that is revoked meanwhile ends it, and limits hold all along."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from interlock import AlertRaised, BreakerChanged, ResultLate, TransitionApplied
from interlock.server.app_declaration import Limits
from interlock.server.security.guard import LATE_S, STALE_S_MAX
from interlock.server.security.keys import CreatedKey, Scope
from interlock.signals import Signal
from tests.unit.server import shop
from tests.unit.server.security.gates import Gate
from tests.unit.server.security.homes import bearer, key_factory
from tests.unit.server.serving import Served, serving
from tests.unit.server.test_stream import Listener

OF_OTHERS: tuple[Signal, ...] = (
    TransitionApplied("ticket", "x-1", "open", "open", "REMARK", 2),
    ResultLate("x-1", "k"),
    BreakerChanged("gateway", "closed", "open", "it fails"),
    AlertRaised("breaker_open", "gateway", "The breaker is open."),
    AlertRaised("stalled", "x-1", "It stalls.", machine="ticket", state="open"),
    AlertRaised("dead_letter", "x-1", "The card 4111 was declined."),
    AlertRaised("compensation_debt", "ticket", "The oldest is x-1.", machine="ticket"),
)
OURS: tuple[Signal, ...] = (
    TransitionApplied("order", "o-1", "draft", "draft", "REMARK", 2),
    ResultLate("o-1", "k"),
    AlertRaised("stalled", "o-1", "It stalls.", machine="order", state="charging"),
    AlertRaised("dead_letter", "o-1", "The card was declined."),
)


class Keyed:
    """An app that asks for one key, and a clock that a test moves."""

    def __init__(self, app: Served, gate: Gate, created: CreatedKey) -> None:
        self.app, self.gate, self._created = app, gate, created

    async def revoke(self) -> None:
        await self.gate.store.revoke(self._created.record.id, datetime.now(UTC))
        self.gate.clock.passed_s += LATE_S

    @asynccontextmanager
    async def request(
        self, method: str, path: str, receive: Callable[[], Any], send: Callable[[Any], Any]
    ) -> AsyncGenerator[None]:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": list(bearer(self._created).items()),
        }
        running = asyncio.ensure_future(self.app.app(scope, receive, send))
        try:
            yield
        finally:
            await asyncio.wait_for(running, 300)


@asynccontextmanager
async def keyed(
    *,
    limits: Limits | None = None,
    machines: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
) -> AsyncGenerator[Keyed]:
    created = key_factory()(Scope.SEND, machines=machines, prefixes=prefixes)
    async with Gate(created) as gate, serving(guard=gate.guard, limits=limits, clock=gate.clock) as app:
        await app.engine.start(shop.order, "o-1", shop.Order())
        await app.engine.start(shop.ticket, "x-1", shop.Ticket())
        yield Keyed(app, gate, created)


@pytest.mark.parametrize(("machines", "prefixes"), [(("order",), ()), ((), ("o-",))], ids=["machine", "prefix"])
def test_a_limited_key_is_told_of_its_own_workflows_alone(machines: tuple[str, ...], prefixes: tuple[str, ...]) -> None:
    """An alert has the text of an error in it, and a breaker is about the whole home."""

    async def run() -> None:
        async with keyed(machines=machines, prefixes=prefixes) as home:
            listener = Listener()
            async with home.request("GET", "/v1/stream", listener.receive, listener.send):
                await listener.until(1)
                for signal in (*OF_OTHERS, *OURS):
                    home.app.app.service.ring._keep(signal)
                await listener.until(1 + len(OURS))
                listener.gone.set()
            assert [data for _, _, data in listener.events[1:]] == [msgspec.to_builtins(each) for each in OURS]

    asyncio.run(run())


def test_a_stream_ends_when_its_key_is_revoked() -> None:
    async def run() -> None:
        async with keyed() as home:
            listener = Listener()
            async with home.request("GET", "/v1/stream", listener.receive, listener.send):
                await listener.until(1)
                await home.revoke()
                home.app.app.service.ring._keep(OURS[0])
                await listener.until(2)
            assert listener.ended
            assert len(listener.events) == 1

    asyncio.run(run())


def test_a_batch_ends_when_its_key_is_revoked() -> None:
    """The lines before it count; the one behind it is not applied."""
    line = msgspec.json.encode({"id": "o-1", "event": "REMARK", "data": {"note": "x"}}) + b"\n"

    async def run() -> None:
        async with keyed() as home:
            answered: asyncio.Queue[bytes] = asyncio.Queue()
            pieces: asyncio.Queue[dict[str, object]] = asyncio.Queue()

            async def send(message: dict[str, Any]) -> None:
                if message.get("body"):
                    await answered.put(message["body"])

            async with home.request("POST", "/v1/events:batch", pieces.get, send):
                await pieces.put({"type": "http.request", "body": line, "more_body": True})
                assert msgspec.json.decode(await answered.get())["version"] == 2
                await home.revoke()
                await pieces.put({"type": "http.request", "body": line, "more_body": True})
                assert msgspec.json.decode(await answered.get())["code"] == "not-authenticated"
            assert (await home.app.engine.get("o-1")).version == 2

    asyncio.run(run())


def test_a_stream_that_is_told_nothing_of_much_is_still_alive_and_goes_on_behind_it() -> None:
    """What a filter leaves out must neither keep a proxy waiting nor be asked for again."""

    async def run() -> None:
        async with keyed(limits=Limits(stream_alive_s=0.01), prefixes=("o-",)) as home:
            listener = Listener()
            async with home.request("GET", "/v1/stream", listener.receive, listener.send):
                await listener.until(1)
                home.app.app.service.ring._keep(OF_OTHERS[0])
                await listener.until(2)
                listener.gone.set()
            (first, _, _), (second, kind, _) = listener.events
            assert (int(second.partition("-")[2]), kind) == (int(first.partition("-")[2]) + 1, "")

    asyncio.run(run())


def test_a_server_that_lets_nobody_in_is_not_ready() -> None:
    """Keys that cannot be read for long are a reason to go elsewhere."""

    async def run() -> None:
        async with keyed() as home:
            assert (await home.app.get("/readyz")).status_code == 200
            home.gate.document.broken = True
            home.gate.clock.passed_s += STALE_S_MAX + 1
            told = await home.app.get("/readyz")
            assert (told.status_code, "API keys" in told.json()["reason"]) == (503, True)
            home.gate.document.broken = False
            home.gate.clock.passed_s += LATE_S
            assert (await home.app.get("/readyz")).status_code == 200

    asyncio.run(run())
