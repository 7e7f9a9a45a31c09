"""C13, G6: histograms that are added to many at a time, and are bounded."""

import pytest

from interlock.observe import metrics as module
from interlock.observe.metrics import Cells


def test_a_value_counts_in_the_first_bucket_that_is_not_below_it() -> None:
    cells = Cells((1.0, 2.0), 1)
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        cells.add(("a",), value)
    cells.add(("a",), 1.5, 10)
    [(labels, cell)] = list(cells)
    assert labels == ("a",)
    assert cell.counts == [2, 12, 1]
    assert cell.sum == pytest.approx(29.0)


def test_labels_are_bounded_and_what_is_beyond_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LABELS_MAX", 2)
    cells = Cells((1.0,), 2)
    for name in ("a", "b", "c", "d", "a"):
        cells.add((name, "x"), 0.5)
    assert {labels: cell.counts[0] for labels, cell in cells} == {("a", "x"): 2, ("b", "x"): 1, ("other", "other"): 2}
