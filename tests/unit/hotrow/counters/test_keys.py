"""Names, amounts and keys of counters, and where a key goes (D5)."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.hotrow.counters import refuse_name, shard_of, stored_key
from interlock.lanes.idempotency_keys import KEY_CHARACTERS_MAX

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=500)


def test_the_shard_of_a_key_is_the_same_in_every_process() -> None:
    """D5: a retry comes from anywhere, and must meet the key of the first attempt."""
    keys = [f"request-{number}" for number in range(20)]
    here = [shard_of(key, 16) for key in keys]
    assert here[:6] == EXPECTED
    program = f"from interlock.hotrow.counters import shard_of; print([shard_of(k, 16) for k in {keys}])"
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == str(here)


EXPECTED = [0, 8, 14, 13, 6, 14]
"""Written down: another function would move keys that are stored already."""


def test_keys_spread_over_all_shards() -> None:
    shards = [shard_of(f"request-{number}", 16) for number in range(16_000)]
    assert all(800 < shards.count(shard) < 1_200 for shard in range(16))


@given(texts, texts)
def test_a_stored_key_is_one_that_every_engine_takes(name: str, key: str) -> None:
    refuse_name(name)
    assert 0 < len(stored_key(name, key)) <= KEY_CHARACTERS_MAX
    assert shard_of(key, 7) in range(7)


@given(st.tuples(texts, texts), st.tuples(texts, texts))
def test_two_pairs_of_counter_and_key_are_never_stored_as_one(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (stored_key(*one) == stored_key(*other)) == (one == other)


@pytest.mark.parametrize("pairs", [[("a:b", "c"), ("a", "b:c")], [("1", "1:1"), ("1:1", "1")]])
def test_a_colon_does_not_move_the_border(pairs: list[tuple[str, str]]) -> None:
    assert len({stored_key(*pair) for pair in pairs}) == 2
