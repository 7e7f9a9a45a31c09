"""The script of a storm: segments of time, each with a rate of arrivals and a weather for every endpoint.

What happens to a call is decided by the seed, the endpoint, the idempotency key and how often that key has come before,
and by nothing else: not by the order in which calls arrive and not by a clock. So two contestants that make the same
call in the same segment meet the same fate, however fast they are, and a run can be repeated.

A fate is one of: `refuse` (503 at once), `error` (500 after the usual time), `hang` (no answer, nothing done), `reset`
(the connection is reset, nothing done), `lose` (done, and then the answer is lost: hanging or resetting) and `answer`.
"""

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from statistics import NormalDist
from typing import Literal, NamedTuple

import msgspec

Fate = Literal["answer", "refuse", "error", "hang", "reset", "lose"]

QUANTILES = 1_024
NORMAL = tuple(NormalDist().inv_cdf((place + 0.5) / QUANTILES) for place in range(QUANTILES))
"""The quantiles of a normal distribution: looking them up is cheaper than drawing."""


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to calls. Shares are of all calls; latencies are log-normal around their median."""

    latency_ms: float = 5.0
    spread: float = 0.4
    refuse: float = 0.0
    error: float = 0.0
    hang: float = 0.0
    reset: float = 0.0
    lose: float = 0.0
    down: bool = False
    """Nobody listens: open connections are reset, new ones are refused."""

    def fate(self, luck: float) -> Fate:
        """What a fraction of luck means."""
        for fate in ("refuse", "error", "hang", "reset", "lose"):
            share: float = getattr(self, fate)
            if luck < share:
                return fate
            luck -= share
        return "answer"

    def latency_s(self, luck: float) -> float:
        """How long an answer takes."""
        return 1e-3 * self.latency_ms * math.exp(self.spread * NORMAL[int(luck * QUANTILES)])


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Some seconds of the storm: how many orders arrive, and the weather."""

    name: str
    seconds: float
    rate_per_s: float
    weather: Weather = Weather()
    special: Mapping[str, Weather] = {}
    """The weather of an endpoint that has its own, as "/charge"."""

    def at(self, endpoint: str) -> Weather:
        """The weather of an endpoint."""
        return self.special.get(endpoint, self.weather)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A storm. Its last weather stays."""

    seed: int
    segments: Sequence[Segment]
    declined: float = 0.02
    """The share of orders whose payment is declined, whatever the weather."""

    @property
    def seconds(self) -> float:
        """How long orders arrive."""
        return sum(segment.seconds for segment in self.segments)

    def ends_s(self) -> list[float]:
        """When each segment ends."""
        ends: list[float] = []
        end_s = 0.0
        for segment in self.segments:
            end_s += segment.seconds
            ends.append(end_s)
        return ends

    def place(self, elapsed_s: float) -> int:
        """Which segment it is."""
        for place, end_s in enumerate(self.ends_s()):
            if elapsed_s < end_s:
                return place
        return len(self.segments) - 1

    def arrivals(self) -> "array[float]":
        """When each order arrives, in seconds from the beginning: at random, and the same for everybody."""
        luck = random.Random(self.seed)
        found: array[float] = array("d")
        begin_s = 0.0
        for segment, end_s in zip(self.segments, self.ends_s(), strict=True):
            at_s = begin_s
            while segment.rate_per_s > 0 and (at_s := at_s + luck.expovariate(segment.rate_per_s)) < end_s:
                found.append(at_s)
            begin_s = end_s
        return found


class Luck(NamedTuple):
    """Three independent fractions in [0, 1)."""

    fate: float
    latency: float
    other: float


def luck_of(seed: int, *parts: object) -> Luck:
    """The luck of whatever these parts name."""
    named = f"{seed} {' '.join(map(str, parts))}".encode()
    digest = blake2b(named, digest_size=12).digest()
    return Luck(*(int.from_bytes(digest[place : place + 4]) / 2**32 for place in (0, 4, 8)))


def declined(script: Script, order: str) -> bool:
    """Whether the payment of this order is declined."""
    return luck_of(script.seed, "declined", order).fate < script.declined
