"""The skew between shards, in numbers (D5)."""

import pytest

from interlock.hotrow.counters import Shards


@pytest.mark.parametrize(
    ("values", "total", "skew"),
    [
        ((), 0, 1.0),
        ((0, 0), 0, 1.0),
        ((5, 5, 5, 5), 20, 1.0),
        ((20, 0, 0, 0), 20, 4.0),
        ((3, 1), 4, 1.5),
        ((-3, 1), -2, 1.5),
        ((-2, 2), 0, 1.0),
    ],
)
def test_the_skew_is_the_largest_compared_with_the_mean(values: tuple[int, ...], total: int, skew: float) -> None:
    found = Shards(values)
    assert (found.total, found.skew) == (total, skew)
