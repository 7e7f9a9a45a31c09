"""The benchmark of an overload says what became of everything that was offered."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.overload import LOADS, measured


@pytest.mark.slow
def test_whatever_is_offered_is_done_or_refused(tmp_path: Path) -> None:
    """C7: for a moment only; the figures of a moment mean nothing."""
    found = asyncio.run(measured(tmp_path, 0.5))
    for name, (load, turn) in found.items():
        assert len(load.took_s) + len(load.refused_s) == int(LOADS[name] * 0.5)
        assert turn.operations == len(load.took_s) > 0
        assert len(load.rss_bytes) == 2
    normal, overload = (load for load, _ in found.values())
    assert len(overload.refused_s) > len(normal.refused_s)
