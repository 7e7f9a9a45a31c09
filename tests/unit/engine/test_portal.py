"""A portal: calls into an event loop in another thread neither get lost nor wait for ever."""

import asyncio
import contextvars
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.engine.blocking_engine import Portal
from interlock.errors import UnavailableError
from tests.interrupts import interrupts


@pytest.fixture
def portal() -> Iterator[Portal]:
    opened = Portal("portal of a test")
    yield opened
    opened.stop()


def test_what_the_caller_has_in_its_context_is_seen_by_the_call(portal: Portal) -> None:
    wanted = contextvars.ContextVar("wanted", default="nothing")

    async def ask() -> str:
        return wanted.get()

    wanted.set("this")
    assert portal.call(ask) == "this"


def test_an_interrupted_caller_takes_its_call_with_it_and_the_portal_goes_on(portal: Portal) -> None:
    """Ctrl-C arrives while the main thread sleeps in the call, or anywhere on its way there."""
    cancelled = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    async def hang() -> None:
        try:
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def answer() -> int:
        return 42

    for _ in range(20):
        cancelled.clear()
        with interrupts(), pytest.raises(KeyboardInterrupt):
            portal.call(hang)
        assert cancelled.wait(60)
    assert portal.call(answer) == 42


def test_what_still_runs_when_a_portal_stops_is_ended_and_its_caller_told() -> None:
    portal = Portal("portal of a test")
    begun = threading.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(portal.call, hang)
        assert begun.wait(60)
        portal.stop()
        assert isinstance(call.exception(60), UnavailableError)


def test_a_call_that_tears_the_loop_down_leaves_nobody_waiting() -> None:
    """A SystemExit leaves an event loop whoever catches it."""
    portal = Portal("portal of a test")

    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        portal.call(leave)
    portal._thread.join(60)
    with pytest.raises(UnavailableError, match="SystemExit has left its event loop") as told:
        portal.call(leave)
    assert isinstance(told.value.__cause__, SystemExit)
    portal.stop()
