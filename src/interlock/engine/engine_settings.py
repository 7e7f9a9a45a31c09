"""The settings of an engine: every bound and every wait has its name here (G6).

Callers pass them by name to `Engine.open`, together with those of the lane below it.
"""

import math

import msgspec

from interlock.core.policies import Retry
from interlock.errors import DefinitionError

RANGES: dict[str, tuple[float, float]] = {
    "drain_s": (0, math.inf),
    "undo_timeout_s": (0.001, math.inf),
    "conflicts_max": (0, math.inf),
    "stall_check_s": (0, math.inf),
    "debt_s": (0, math.inf),
    "timers_saved_s": (0.001, 10),
    "poll_s": (0.001, math.inf),
    "settle_s": (0, math.inf),
}
"""The least and the most of a setting; all others are at least 1."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and waits of an engine."""

    drain_s: float = 5.0
    """How long a closing engine waits for running steps before it cancels them."""

    steps_max: int = 1_000
    """Concurrent attempts of steps; more of them wait for a slot."""

    undos_max: int = 200
    """Concurrent attempts of undos: compensation has slots of its own, and works while all steps are stuck."""

    effects_max: int = 200
    """Concurrent attempts of effects."""

    threads_max: int = 64
    """Concurrent threads of blocking steps, undos and effects; more of them wait for a thread, within their timeout."""

    undo_timeout_s: float = 30.0
    """How long one attempt of an undo may take."""

    undo_attempts: int = Retry().attempts
    """Attempts of an undo that has no `retry` of its own, before it is a dead letter (C9, C18)."""

    snapshots_max: int = 20_000
    """Workflows kept in memory; the least recently used is dropped first."""

    group_max: int = 1_000
    """Events, results and timers that are decided and made durable together."""

    conflicts_max: int = 10
    """How often an event is decided again because its workflow had moved meanwhile (B2)."""

    stall_check_s: float = 30.0
    """How often workflows that stay too long and dead letters are looked for (B7); 0 turns it off."""

    debt_s: float = 60.0
    """How long a workflow may be unwinding before its machine raises a debt alert (C9); 0 turns it off."""

    timers_saved_s: float = 10.0
    """How often the running time of timers with the policy "remaining" is saved; at most 10."""

    attempts_max: int = 50
    """Attempts of a workflow that are kept until its next move, which stores them with its row of history (B17). Of
    more the oldest are dropped."""

    groups_max: int = 2
    """On a shared store: concurrent groups. One is decided while the database writes another."""

    poll_s: float = 1.0
    """On a shared store: how often a worker looks for due work without a hint."""

    settle_s: float = 10.0
    """On a shared store: how long an unknown outcome is checked before the caller gets OutcomeUnknown."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least, most = RANGES.get(name, (1, math.inf))
            if not least <= value <= most or math.isinf(value):
                allowed = f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
                raise ValueError(f"{name} is {value!r}; it must be {allowed}")


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on calls from outside (C7). Results of steps, timers, undos and effects are never limited."""

    rate_per_s: float | None = None
    """Calls per second in the long run; None: as many as come."""

    burst: float | None = None
    """Calls of a burst above the rate; None: one second's worth."""

    in_flight_max: int = 100_000
    """Concurrent calls; for a start together with the workflows that wait for a slot."""

    def __post_init__(self) -> None:
        if self.burst is not None and self.rate_per_s is None:
            raise DefinitionError(
                f"Admission.burst is {self.burst!r}, and there is no rate_per_s.",
                why="A burst is the number of calls that may exceed a rate for a moment.",
                fix="Pass rate_per_s too, or leave burst out.",
                rule="policy-out-of-range",
            )
        if self.in_flight_max < 1:
            raise DefinitionError(
                f"Admission.in_flight_max is {self.in_flight_max!r}; it must be a whole number from 1 up.",
                why="With none under way nothing could ever be taken in.",
                fix="Give in_flight_max a value from 1 up.",
                rule="policy-out-of-range",
            )
