"""C10, C14: the verdict on locks names each way in which a fence can fail."""

import msgspec
import pytest

from interlock.chaos.locks import Fairness, Locks
from interlock.chaos.scenarios import lock_problems

FAIR = Fairness(least=1, median=2.0, most=3, busiest_process_share=0.25)
SOUND = Locks(
    contenders=50,
    processes=5,
    seconds=3.0,
    acquisitions=100,
    violations=0,
    refused_late_writes=1,
    holder_frozen=True,
    frozen_write_refused=True,
    holder_knew=True,
    wrong_clock_by_s=3_600.0,
    wrong_clock_acquisitions=20,
    fairness=FAIR,
)


def test_nothing_is_wrong_with_a_fence_that_holds() -> None:
    assert list(lock_problems(SOUND)) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"violations": 3}, "the resource took 3 writes that another holder had overtaken: the fence is missing"),
        ({"holder_frozen": False}, "no other contender had the lock while its holder was frozen"),
        ({"frozen_write_refused": False}, "the late write of the frozen holder was not refused"),
        ({"holder_knew": False}, "the lease of the frozen holder did not report that it is lost"),
        ({"wrong_clock_acquisitions": 0}, "the process whose clock is an hour ahead never had the lock"),
    ],
)
def test_each_way_to_fail_is_told(change: dict[str, object], told: str) -> None:
    [problem] = lock_problems(msgspec.structs.replace(SOUND, **change))
    assert problem.startswith(told)
