"""The walk: through an outage, a stall and a kill, every order comes to its end, and nothing is lost."""

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.cli.demo import kill_and_resume as walk_module
from interlock.cli.demo.journeys import GUIDED, TROUBLE_FROM, Journey
from interlock.cli.demo.kill_and_resume import OrdersWalk
from interlock.cli.demo.outcome import Outcome
from interlock.errors import InternalError
from interlock.examples.order import State
from interlock.testing.faults import Process, Processes
from tests.unit.cli.demo.walking import stored, verified, walked


@pytest.mark.slow
def test_the_guided_journeys_alone_cover_every_transition(tmp_path: Path) -> None:
    outcome = verified(walked(tmp_path, len(GUIDED)))
    assert outcome.problems == []
    assert outcome.tally.covered == len(outcome.tally.arrows) == 17
    assert set(outcome.examples) == {"guard-rejected", "invalid-transition"}
    assert outcome.kill is not None
    number = 1 + GUIDED.index(Journey(declines=3))
    _, history = stored(tmp_path, f"order-{number:06}")
    assert [row.event for row in history] == [
        "STARTED", "SUBMIT", "PAYMENT_STARTED", "PAYMENT_FAILED", "SUBMIT", "PAYMENT_FAILED", "SUBMIT",
        "PAYMENT_FAILED", "CANCEL", "CANCEL_CONFIRMED",
    ]  # fmt: skip


@pytest.mark.slow
def test_every_order_comes_to_rest_through_outage_stall_and_kill(tmp_path: Path) -> None:
    """C4, B7: the breaker opens and closes, the stuck orders are listed, and the counter is exact."""
    outcome = verified(walked(tmp_path, 600, seed=5))
    now = outcome.tally.now
    assert outcome.problems == []
    assert now[State.DELIVERED.value] + now[State.CANCELLED.value] + now[State.REFUNDED.value] == 600
    assert all(outcome.books[fault] > 0 for fault in ("failed", "lost", "slow", "refused"))
    assert outcome.observer_failures > 0
    outage, kill, stall = outcome.outage, outcome.kill, outcome.stall
    assert outage is not None
    assert kill is not None
    assert stall is not None
    assert outage.opened_s is not None
    assert outage.ended_s is not None
    assert outage.closed_s is not None
    assert outage.began_s <= outage.opened_s < outage.ended_s <= outage.closed_s
    assert outage.ended_s < kill.at_s
    assert outage.refused == outcome.books["refused"]
    assert len(stall.stuck) == 12
    assert stall.listed == stall.stuck
    assert outcome.paid == outcome.books["charged"]


@pytest.mark.slow
@pytest.mark.parametrize("orders", [1, TROUBLE_FROM - 1])
def test_a_small_demo_has_a_kill_and_no_other_trouble(tmp_path: Path, orders: int) -> None:
    outcome = verified(walked(tmp_path, orders))
    assert (outcome.done, outcome.problems) == (orders, [])
    assert (outcome.outage, outcome.stall) == (None, None)


def live(_say: Callable[[str], None], _life: str, _line: int) -> None:
    """A worker that is broken."""
    raise OSError("no memory is left")


def test_a_worker_that_ends_by_itself_ends_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "WORKER", f"{__name__}:live")
    with pytest.raises(InternalError, match=r"(?s)the demo's worker failed: .*no memory is left"):
        walked(tmp_path, 1)


def live_briefly(_say: Callable[[str], None], life: str, line: int) -> None:
    """A worker that is killed while its calls are unanswered and its news unread; the next one has nothing to do."""
    news = ["opened\t0.1"]
    if '"ends"' in life:
        news.append("ended")
    else:
        news += ["acknowledged\torder-000001\t1\tpending"] * 2  # This is half way.
        news += [f"call\t{number}\tcreate_intent\torder-000001\tkey\t0" for number in range(300)]
        news += ["acknowledged\torder-000001\t1\tpending"] * 100
    with socket.socket(fileno=line) as parent:
        parent.sendall("".join(f"{told}\n" for told in news).encode())  # In one piece, so no kill divides it.
        if '"ends"' not in life:
            threading.Event().wait()


def test_what_a_killed_worker_has_sent_is_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to the dead process would close the connection before its last line."""

    kill = Process.kill

    def kill_and_wait(process: Process) -> None:
        dead = os.pidfd_open(process.number)
        kill(process)
        select.select([dead], [], [])
        os.close(dead)

    monkeypatch.setattr(Process, "kill", kill_and_wait)

    monkeypatch.setattr(walk_module, "WORKER", f"{__name__}:live_briefly")
    outcome = walked(tmp_path, 1).outcome
    assert outcome.acknowledged == 102


@pytest.mark.slow
def test_whoever_watches_hears_every_remark(tmp_path: Path) -> None:
    heard: list[str] = []

    def watch(outcome: Outcome, /) -> None:
        heard.extend(remark.text for remark in outcome.remarks)
        outcome.remarks.clear()

    with Processes() as processes:
        asyncio.run(OrdersWalk(TROUBLE_FROM, 1, tmp_path, processes).run(watch))
    assert [told.partition(":")[0].partition(",")[0] for told in heard] == [
        "The bank is down",
        "The breaker of payments is open",
        "The bank is back",
        "The breaker of payments is closed",
        "Killed the worker (SIGKILL) in the middle",
        heard[5],
        "Stalled",
    ]
    assert heard[5].startswith("Another worker has opened the store")
