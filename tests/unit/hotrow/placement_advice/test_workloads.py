"""D10: scripted workloads, window after window, and the verdict that is shown in the end. Noise does not flip it."""

import random
from collections.abc import Callable

import pytest

from interlock.hotrow.placement_advice import Choice, Evidence
from interlock.hotrow.tool_declarations import Tool
from tests.unit.hotrow.placement_advice.windows import a_tool, changes, row, shown, window

STAY, TUNE, COUPLE = Choice("stay"), Choice("tune"), Choice("couple", "postgres")
SHARDED, EVENT_LOG = Choice("helper", "sharded"), Choice("helper", "event_log")
SEPARATE, UNCOUPLE = Choice("separate", "streams"), Choice("uncouple", "lane")

DAY_S = 86_400.0
CRITICAL = a_tool(critical=True, shardable=False)


def high_volume_on_distinct_rows() -> list[Evidence]:
    """Two hundred thousand events per second, each a row of its own."""
    return [
        window(row(2, writes=3), writes=200_000, distinct=190_000, p99_s=0.015, plateau=None, engine="object")
        for _ in range(20)
    ]


def one_hot_row() -> list[Evidence]:
    """A balance that everybody charges, in a bucket with 30 ms per append."""
    return [window(row(450, wait_s=0.05), p99_s=0.090, plateau=900, floor_s=0.015, engine="object") for _ in range(20)]


def skewed_shards() -> list[Evidence]:
    """Sixteen shards, and one key that is retried without end: its shard gets two thirds."""
    return [window(row(330, writes=330), distinct=16, shards=16, engine="postgres", p99_s=0.050) for _ in range(20)]


def bursts() -> list[Evidence]:
    """Every fifth window everybody comes at once; between them it is quiet."""
    storm = window(row(900, wait_s=0.08), p99_s=0.150)
    return [storm if number % 5 == 4 else window(row(3)) for number in range(60)]


def a_long_storm_after_quiet_times() -> list[Evidence]:
    """Quiet for a while, and then the storm that does not end."""
    quiet, storm = window(row(3), engine="object"), window(row(900), p99_s=0.150, engine="object")
    return [quiet] * 30 + [storm] * 6


def many_small_databases() -> list[Evidence]:
    """A thousand tenants with a database each."""
    return [window(row(4), writes=20_000, distinct=30_000, streams=1_000, p99_s=0.006) for _ in range(20)]


def unrelated_streams_in_one_lane() -> list[Evidence]:
    """Tenants that share one lane, and wait for each other's appends."""
    return [window(row(5, writes=9), writes=4_000, distinct=3_500, p99_s=0.045, engine="object") for _ in range(20)]


def hot_within_the_budget() -> list[Evidence]:
    """A hot row in a lane on a fast disk."""
    return [window(row(480), p99_s=0.003, plateau=100_000) for _ in range(20)]


def a_plateau_below_the_need() -> list[Evidence]:
    """Still fast today, with a tenth of the writers that are to come."""
    return [window(row(70, writes=80), writes=80, p99_s=0.012, plateau=320, engine="object") for _ in range(20)]


def postgresql_gone_cold() -> list[Evidence]:
    """Hot for an hour, and then nothing for two days."""
    storm = [window(row(300), engine="postgres", p99_s=0.015, routed=True, seconds=600) for _ in range(6)]
    return storm + [window(row(2), engine="postgres", routed=True, seconds=3_600) for _ in range(48)]


def postgresql_in_a_quiet_night() -> list[Evidence]:
    """Cold for ten hours of every day."""
    day = [window(row(300), engine="postgres", routed=True, seconds=3_600) for _ in range(14)]
    night = [window(row(0.1), engine="postgres", routed=True, seconds=3_600) for _ in range(10)]
    return (day + night) * 4


def hot_and_distinct_mixed() -> list[Evidence]:
    """A hot row with a tenth of the writes in one lane with everything else."""
    return [window(row(300, writes=400), writes=4_000, distinct=3_000, p99_s=0.050, engine="object") for _ in range(20)]


@pytest.mark.parametrize(
    ("workload", "tool", "choice"),
    [
        (high_volume_on_distinct_rows, CRITICAL, STAY),
        (one_hot_row, CRITICAL, COUPLE),
        (one_hot_row, a_tool(critical=True), COUPLE),
        (one_hot_row, a_tool(shardable=False), STAY),
        (one_hot_row, a_tool(shardable=True), STAY),
        (one_hot_row, a_tool(shardable=True, batch=10), SHARDED),
        (skewed_shards, a_tool(shardable=True), EVENT_LOG),
        (bursts, CRITICAL, STAY),
        (a_long_storm_after_quiet_times, CRITICAL, COUPLE),
        (many_small_databases, CRITICAL, STAY),
        (unrelated_streams_in_one_lane, CRITICAL, SEPARATE),
        (hot_within_the_budget, CRITICAL, STAY),
        (a_plateau_below_the_need, CRITICAL, COUPLE),
        (a_plateau_below_the_need, a_tool(), TUNE),
        (postgresql_gone_cold, CRITICAL, UNCOUPLE),
        (postgresql_in_a_quiet_night, CRITICAL, STAY),
        (hot_and_distinct_mixed, CRITICAL, SEPARATE),
    ],
)
def test_a_workload_ends_with_the_verdict_of_the_rule(
    workload: Callable[[], list[Evidence]], tool: Tool, choice: Choice
) -> None:
    choices = shown(tool, workload())
    assert choices[-1] == choice
    assert set(choices) <= {STAY, choice}
    assert changes(choices) <= 1


def test_a_verdict_is_shown_after_five_windows_of_six() -> None:
    assert shown(CRITICAL, one_hot_row())[:6] == [STAY] * 4 + [COUPLE] * 2


def test_going_back_takes_a_day() -> None:
    choices = shown(CRITICAL, postgresql_gone_cold())
    first = choices.index(UNCOUPLE)
    assert (first - 6) * 3_600 >= DAY_S
    assert set(choices[first:]) == {UNCOUPLE}


NOISE = 0.3


def noisy(
    seed: int, *, heat: float = 1.0, pressure: float = 1.0, share: float = 1.0, shards: int = 1
) -> list[Evidence]:
    """Two hundred windows in which every figure strays by up to 30 % from so many times its threshold."""
    chance = random.Random(seed)

    def strayed(value: float) -> float:
        return value * chance.uniform(1 - NOISE, 1 + NOISE)

    return [
        window(
            row(strayed(50 * heat), writes=min(500.0, strayed(500 * share))),
            p99_s=strayed(0.020 * pressure),
            floor_s=strayed(0.012 * pressure),
            distinct=100,
            shards=shards,
            engine="object",
        )
        for _ in range(200)
    ]


TOOLS = pytest.mark.parametrize(
    "tool", [CRITICAL, a_tool(), a_tool(shardable=True)], ids=["critical", "patient", "count"]
)


@pytest.mark.parametrize("seed", range(20))
@TOOLS
def test_noise_around_a_threshold_does_not_flip_the_verdict(tool: Tool, seed: int) -> None:
    """It may be shown once that the threshold was crossed; that is never taken back."""
    assert changes(shown(tool, noisy(seed, heat=3.0))) <= 1
    assert changes(shown(tool, noisy(seed, pressure=3.0))) <= 2  # First to stay, then one of two.
    assert changes(shown(tool, noisy(seed, heat=0.2, pressure=0.2))) == 0


@pytest.mark.parametrize("seed", range(20))
@TOOLS
def test_a_verdict_that_noise_has_left_is_not_shown_again(tool: Tool, seed: int) -> None:
    """With every figure around its threshold: each verdict is shown in one stretch, or not at all."""
    choices = shown(tool, noisy(seed))
    assert changes(choices) == len(set(choices)) - 1


@pytest.mark.parametrize("centre", [0.3, 0.5, 0.6, 0.7, 0.76, 0.78, 0.8, 0.85, 0.9, 1.2, 1.5, 2.0])
@TOOLS
def test_noise_around_any_value_does_not_flip_the_verdict(tool: Tool, centre: float) -> None:
    choices = shown(tool, noisy(7, heat=centre, pressure=centre))
    assert changes(choices) == len(set(choices)) - 1
    if centre * (1 + NOISE) <= 1:
        assert set(choices) == {STAY}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_shown_for_a_reason_is_kept_through_two_hundred_noisy_windows(seed: int) -> None:
    storm = one_hot_row()
    choices = shown(CRITICAL, [*storm, *noisy(seed)])
    assert set(choices[len(storm) :]) == {COUPLE}


@pytest.mark.parametrize("share", [0.3, 0.4, 0.5, 0.6, 0.7])
def test_noise_in_the_share_of_the_hot_row_does_not_flip_the_verdict(share: float) -> None:
    for tool, shards in ((CRITICAL, 1), (a_tool(shardable=True), 4)):
        choices = shown(tool, noisy(11, heat=3.0, pressure=3.0, share=share, shards=shards))
        assert changes(choices) == len(set(choices)) - 1
