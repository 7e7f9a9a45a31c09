"""A fork: the lane stays the parent's, the child can neither use it nor keep it owned."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.testing.faults import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


def test_a_lane_stays_with_the_parent(tmp_path: Path, processes: Processes) -> None:
    process = processes.start("tests.unit.lanes.forking:fork", str(tmp_path / "x"))
    refused = "child: unavailable: open when this process was forked, and belongs to its parent."
    assert list(process.lines()) == [
        refused,
        refused,
        refused,
        "child: its own lane says 0",
        "parent: counted 1",
        "parent: took it again, counted 1",
        "child: ended 0",
    ]
    assert process.end() == 0
