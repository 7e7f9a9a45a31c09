"""Closed loops of clients: who is counted, and who is waited for."""

import asyncio
import itertools
import time
from types import SimpleNamespace

import pytest

from interlock.bench import load as bench_load
from interlock.bench.load import ask_within


def test_every_client_asks_its_own_question_and_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    looks = itertools.count()
    stepping = SimpleNamespace(perf_counter=lambda: next(looks) / 1_000, process_time=time.process_time)
    monkeypatch.setattr(bench_load, "time", stepping)

    def question(number: int) -> "asyncio.Future[None]":
        asked.append(number)
        return asyncio.ensure_future(asyncio.sleep(0))

    load = asyncio.run(ask_within(0.01, [lambda: question(1), lambda: question(2)]))
    assert set(asked) == {1, 2}
    # Of each client the last answer comes too late for the rate, and has a latency all the same.
    assert load.answers == len(asked) - 2
    assert len(load.latencies_s) == len(asked)
    assert 0 < load.seconds <= 0.01


def test_without_an_answer_in_time_the_first_late_one_is_the_rate() -> None:
    load = asyncio.run(ask_within(1e-9, [lambda: asyncio.sleep(0)]))
    assert load.answers == 1
    assert load.seconds > 1e-9
    assert load.latency_ms(0.99) > 0
