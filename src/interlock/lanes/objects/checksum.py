"""SQLite's checksum of its write-ahead log, fast enough for every page of every group.

The rule is a loop over words: `first, second = second, first + second + word`, modulo 2**32. In Python that loop takes
longer than everything else that is done with a page. But it is linear: a word counts by Fibonacci numbers that depend
only on how many words follow it. So the first half of a page can be shifted onto the second half and added to it, all
words simultaneously, then the first half of what is left, and so on. Python's large integers do that with one
multiplication per half: a page is one number, made of lanes of 64 bits that hold 32.

The loop is still here, for short inputs and as the reference for the fast way.
"""

import functools
import sys
from typing import NamedTuple

Sums = tuple[int, int]

FAST_BYTES_MIN = 512
"""The smallest page that SQLite has; all are powers of two."""

_WORD = 0xFFFF_FFFF


def running_checksum(sums: Sums, data: bytes) -> Sums:
    """Return the checksum continued over more bytes, whose words are in this machine's order."""
    count = len(data)
    if count < FAST_BYTES_MIN or count & (count - 1) or sys.byteorder == "big":
        return word_by_word(sums, data)
    return _by_halves(sums, data)


def word_by_word(sums: Sums, data: bytes) -> Sums:
    """Compute the checksum by SQLite's own rule."""
    first, second = sums
    for word in memoryview(data).cast("I"):
        first, second = second, (first + second + word) & _WORD
    return first, second


class _Halving(NamedTuple):
    """How the first half is shifted onto the second: over how many words, in lanes of how many bits in all."""

    bits: int
    mask: int
    """The 32 bits of each lane that count."""
    beyond: int
    """2**32 in each lane, so that a subtraction borrows nothing from the next one."""
    weights: tuple[int, int, int]
    """Three consecutive Fibonacci numbers, the middle one that of the words moved over."""


def _by_halves(sums: Sums, data: bytes) -> Sums:
    halvings = _halvings(len(data) // 8)
    mask = halvings[0].mask | halvings[0].mask << halvings[0].bits
    words = int.from_bytes(data, "little")
    # A lane begins with two words, (x, y): they count as `x` and `x + y`.
    first = words & mask
    second = (first + (words >> 32 & mask)) & mask
    for bits, mask, beyond, (before, middle, after) in halvings:
        front_first, front_second = first & mask, second & mask
        # (before · a + middle · b, middle · a + after · b), with three multiplications instead of four.
        one = before * front_first & mask
        two = middle * front_second & mask
        both = after * ((front_first + front_second) & mask) & mask
        first = (one + two + (first >> bits)) & mask
        second = (both + beyond - one + (second >> bits)) & mask
    before, middle, after = _weights(len(data) // 4)
    return (
        (before * sums[0] + middle * sums[1] + first) & _WORD,
        (middle * sums[0] + after * sums[1] + second) & _WORD,
    )


@functools.cache
def _halvings(lanes: int) -> tuple[_Halving, ...]:
    """Return the steps from `lanes` lanes to one; there are as many different ones as page sizes."""
    found: list[_Halving] = []
    while lanes > 1:
        words, lanes = lanes, lanes // 2
        ones = int.from_bytes(b"\x01\0\0\0\0\0\0\0" * lanes, "little")
        found.append(_Halving(64 * lanes, ones * _WORD, ones << 32, _weights(words)))
    return tuple(found)


@functools.cache
def _weights(words: int) -> tuple[int, int, int]:
    """Return the three Fibonacci numbers around index `words`, modulo 2**32."""
    before, middle = 1, 0
    for _ in range(words):
        before, middle = middle, (before + middle) & _WORD
    return before, middle, (before + middle) & _WORD
