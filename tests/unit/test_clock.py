"""Clock, ids and chance: the real ones behave, the seeded ones repeat."""

import time
from uuid import UUID

from interlock.clock import RandomIds, SeededIds, SystemChance, SystemClock, SystemSecrets


def test_the_wall_clock_is_the_machines() -> None:
    before = time.time()
    assert before <= SystemClock().wall_s() <= time.time()


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    moments = [clock.monotonic_s() for _ in range(100)]
    assert moments == sorted(moments)
    assert abs(moments[0] - time.monotonic()) < 60


def test_ids_are_random_and_never_from_a_clock() -> None:
    """C6."""
    ids = {RandomIds().new() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert {known.version for known in ids} == {4}


def test_seeded_ids_repeat_for_the_same_seed() -> None:
    first, again, other = SeededIds(1), SeededIds(1), SeededIds(2)
    made = [first.new() for _ in range(10)]
    assert made == [again.new() for _ in range(10)]
    assert made != [other.new() for _ in range(10)]
    assert len(set(made)) == 10
    assert all(isinstance(known, UUID) and known.version == 4 for known in made)


def test_chance_is_a_fraction_and_repeats_for_a_seed() -> None:
    chance, again = SystemChance(seed=7), SystemChance(seed=7)
    drawn = [chance.fraction() for _ in range(100)]
    assert all(0 <= fraction < 1 for fraction in drawn)
    assert drawn == [again.fraction() for _ in range(100)]
    assert len({SystemChance().fraction() for _ in range(10)}) > 1


def test_secrets_have_the_length_that_was_asked_for_and_never_repeat() -> None:
    made = {SystemSecrets().token(32) for _ in range(1_000)}
    assert len(made) == 1_000
    assert {len(token) for token in made} == {32}
