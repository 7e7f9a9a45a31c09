"""C13, G3: kill -9 in the middle of a step: the trace is in the store, and the next life links to it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.testing.faults import Processes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("store", ["local", "postgres"])
def test_the_pass_after_a_crash_links_to_the_original_trace(
    request: pytest.FixtureRequest, tmp_path: Path, processes: Processes, store: str
) -> None:
    url = f"lanes://{tmp_path}/home"
    if store == "postgres":
        # The next life takes the workflow over when the lease of the dead one is over.
        url = request.getfixturevalue("postgres_url")
    first = processes.start("tests.crash.traced:begin", url, f"00-{TRACE}-00f067aa0ba902b7-01")
    said = set(first.lines(2))
    assert said == {"sent", f"step {TRACE}"}, "the step runs in the trace of whoever submitted the order"
    first.kill()
    assert first.end() == -signal.SIGKILL
    again = processes.start("tests.crash.traced:go_on", url)
    told = list(again.lines())
    assert again.end() == 0
    [linked] = [line for line in told if line.startswith("span pass order: ")]
    assert linked.removeprefix("span pass order: ").split()[0] == TRACE
    [step] = [line for line in told if line.startswith("step ")]
    assert step != f"step {TRACE}", "a pass of its own, linked and not mixed up"
