"""The fast way to SQLite's checksum says what the slow one says."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.lanes.objectlog import local_file
from interlock.lanes.objectlog.local_file import running_checksum, word_by_word

WORDS = st.integers(0, 0xFFFF_FFFF)
SIZES = [2**power for power in range(9, 17)]


@given(sums=st.tuples(WORDS, WORDS), size=st.sampled_from(SIZES), data=st.binary(min_size=64, max_size=64))
def test_both_ways_agree(sums: tuple[int, int], size: int, data: bytes) -> None:
    page = (data * (size // len(data)))[:size]
    assert running_checksum(sums, page) == word_by_word(sums, page)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("byte", [0x00, 0x01, 0xFF])
def test_both_ways_agree_at_the_ends(size: int, byte: int) -> None:
    page = bytes([byte]) * size
    for sums in ((0, 0), (0xFFFF_FFFF, 0xFFFF_FFFF)):
        assert running_checksum(sums, page) == word_by_word(sums, page)


@given(at=st.integers(0, 1_023), word=st.integers(1, 0xFFFF_FFFF))
def test_every_word_of_a_page_counts_in_its_place(at: int, word: int) -> None:
    page = bytes(4 * at) + word.to_bytes(4, "little") + bytes(4 * (1_023 - at))
    assert running_checksum((1, 2), page) == word_by_word((1, 2), page) != running_checksum((1, 2), bytes(4_096))


@pytest.mark.parametrize("count", [8, 24, 504, 520, 1_000])
def test_other_lengths_take_the_loop(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_file, "_by_halves", None)
    assert running_checksum((3, 4), bytes(count)) == word_by_word((3, 4), bytes(count))


def test_a_machine_of_the_other_byte_order_takes_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_file, "_by_halves", None)
    monkeypatch.setattr(sys, "byteorder", "big")
    assert running_checksum((3, 4), bytes(4_096)) == word_by_word((3, 4), bytes(4_096))
