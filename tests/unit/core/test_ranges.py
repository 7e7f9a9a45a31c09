"""C4: a policy out of its range is a mistake of the program, told where it is made."""

import math

import pytest

from interlock.core.policies import CLOSED, Breaker, is_positive_int
from interlock.errors import DefinitionError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in ("failures", "probes", "calls_min") for value in (0, -1, 1.5, True)],
        *[("reset_s", value) for value in (0, -1, math.inf, math.nan)],
        *[("failure_rate", value) for value in (0, -0.1, 1.01, math.nan)],
        *[("window_calls", value) for value in (0, 9, 10.5)],
        *[("slow_s", value) for value in (0, -1, math.inf, math.nan)],
        *[("business_failures", value) for value in (0, -1, 1.5, True)],
    ],
)
def test_a_policy_out_of_its_range_is_refused_where_it_is_made(name: str, value: float) -> None:
    with pytest.raises(DefinitionError, match=rf"Breaker\.{name} is ") as refused:
        Breaker(**{name: value})  # type: ignore[arg-type]
    assert repr(value) in refused.value.what
    assert refused.value.fix


def test_a_policy_at_the_edge_of_its_range_is_taken() -> None:
    breaker = Breaker(failures=1, probes=1, failure_rate=1, window_calls=1, calls_min=1, business_failures=1)
    assert breaker.failed(CLOSED, 0).opened
    assert [is_positive_int(value) for value in (1, 0, True, 1.0, "1")] == [True, False, False, False, False]
