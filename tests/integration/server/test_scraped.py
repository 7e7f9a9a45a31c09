"""C13: `/metrics` of `interlock serve --workers 2`: the same story whichever worker answers."""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.integration.server.running import END_S, Server, server
from tests.integration.server.test_workers import children, ended, heard
from tests.unit.observe.test_prometheus import values

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(running: Server) -> Samples:
    answer = httpx.get(f"{running.url}/metrics", timeout=END_S)  # A connection of its own, so any worker may answer.
    assert answer.status_code == 200
    return values(answer.content)


def scraped_until(running: Server, wanted: Callable[[Samples], bool]) -> Samples:
    while not wanted(found := scraped(running)):
        pass
    return found


def by_worker(found: Samples, name: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for (each, labels), value in found.items():
        if each == name:
            worker = dict(labels)["worker"]
            sums[worker] = sums.get(worker, 0.0) + value
    return sums


def start(running: Server, number: int) -> None:
    path = f"{running.url}/v1/machines/ticket/workflows"
    assert httpx.post(path, json={"id": f"t-{number}"}, timeout=END_S).status_code == 201


@pytest.mark.slow
def test_a_scrape_of_any_worker_tells_all_of_them(postgres_url: str) -> None:
    depth = ("state_machine_depth", (("machine", "ticket"), ("state", "open")))
    transitions, unheard = "pipeline_transition_duration_count", ("workers_unheard", ())
    with (
        tempfile.TemporaryDirectory() as folder,
        server(postgres_url, "--workers", "2", TMPDIR=folder) as running,
    ):
        for number in range(20):
            start(running, number)
        # A worker that stood still for a second is not heard, and counted as such: that is no jump of a counter.
        both = [scraped_until(running, lambda found: found[unheard] == 0) for _ in range(10)]
        for found in both:
            assert sum(by_worker(found, transitions).values()) == 20
            assert by_worker(found, transitions) == by_worker(both[0], transitions), "a counter has jumped"
            assert set(by_worker(found, "process_cpu_seconds_total")) == {"0", "1"}
            assert set(by_worker(found, "calls_in_flight")) == {"0", "1"}
            assert len([name for name, _ in found if name == "store_sample_age"]) == 1
        scraped_until(running, lambda found: (found[depth], found[unheard]) == (20, 0))

        frozen = max(children(running.process.pid))
        os.kill(frozen, signal.SIGSTOP)
        try:
            assert scraped(running)[unheard] >= 1
            found = scraped_until(running, lambda found: found[unheard] == 1)  # And the other one was heard.
            [(alone, counted)] = by_worker(found, "process_start_time_seconds").items()
            assert counted > 0
        finally:
            os.kill(frozen, signal.SIGCONT)

        os.kill(frozen, signal.SIGKILL)
        heard(running, "serves")
        found = scraped_until(running, lambda found: found[unheard] == 0)
        before, after = by_worker(both[0], transitions), by_worker(found, transitions)
        assert after.get(alone) == before.get(alone), "the end of one worker resets its own series alone"
        assert sum(after.values()) == before.get(alone, 0.0)
        assert len([*Path(folder).iterdir()]) == 1
        pids = children(running.process.pid)
        running.process.kill()
        assert all(ended(pid) for pid in pids)
        assert [*Path(folder).iterdir()] == [], "nothing is left behind, even by a supervisor that was killed"


@pytest.mark.slow
def test_one_process_has_no_label_for_it(postgres_url: str) -> None:
    with server(postgres_url, "--workers", "1") as running:
        start(running, 1)
        found = scraped(running)
        assert found["workers_unheard", ()] == 0
        assert not any("worker" in dict(labels) for _, labels in found)
