"""Virtual time: it jumps to the next timer when nothing is ready, and stands still while a thread is at work."""

import asyncio
import threading

import pytest

from interlock.testing import VirtualLoop
from interlock.testing.virtual_time import Stuck


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop()


def test_timers_fire_in_the_order_of_their_times(loop: VirtualLoop) -> None:
    fired: list[tuple[str, float]] = []

    def fire(name: str) -> None:
        fired.append((name, loop.time()))

    for name, at_s in (("late", 86_400.0 * 400), ("soon", 1.0), ("also soon", 1.0)):
        loop.call_at(at_s, fire, name)
    loop.pass_until(0.5)
    assert not fired
    loop.pass_until(86_400.0 * 500)
    assert fired == [("soon", 1.0), ("also soon", 1.0), ("late", 86_400.0 * 400)]
    assert loop.clock.monotonic_s() == 86_400.0 * 500
    loop.leave()


def test_what_waits_for_nothing_is_told(loop: VirtualLoop) -> None:
    with pytest.raises(Stuck) as stuck:
        loop.run(_forever())
    assert "nothing can happen any more" in str(stuck.value)
    loop.leave()


def test_what_never_ends_at_one_moment_is_told(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.testing.virtual_time.TURNS_MAX", 100)

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Stuck) as stuck:
        loop.settle()
    assert "100 turns" in str(stuck.value)
    loop.close()


def test_time_stands_still_while_a_thread_is_at_work(loop: VirtualLoop) -> None:
    answer = loop.create_future()
    asked = threading.Event()

    def work() -> None:
        asked.wait()
        loop.call_soon_threadsafe(answer.set_result, "done")

    thread = threading.Thread(target=work)
    thread.start()

    async def ask() -> str:
        loop.call_later(1.0, lambda: pytest.fail("time has passed"))
        with loop.holding():
            asked.set()
            return str(await answer)

    assert loop.run(ask()) == "done"
    thread.join()
    loop.leave()


def test_time_cannot_be_passed_from_inside(loop: VirtualLoop) -> None:
    async def inside() -> None:
        loop.settle()

    with pytest.raises(Stuck) as stuck:
        loop.run(inside())
    assert "from inside" in str(stuck.value)
    loop.leave()


def test_abandoning_ends_everything(loop: VirtualLoop) -> None:
    task = loop.create_task(_forever())
    loop.call_later(1.0, lambda: pytest.fail("a timer of an abandoned life"))
    loop.settle()
    loop.abandon()
    loop.pass_until(5.0)
    assert task.cancelled()
    loop.leave()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()
