"""The choice of a counter's form from its measurements (D7), as a pure function.

Up, immediately: from the row to shards when the row is handed from writer to writer more often than the
threshold, unless they share their commits; from shards to the log when even a shard is, and where appending to the log
is not one more queue. A lane executes one write after the other, so its log is: there the shards, each in a database of
its own, are the end.

Down, only after a long calm: when for `CALM_S` this process has added so little that the form below could not come near
the threshold, even if each of its writes waited for another. What rises at the threshold falls at a quarter of it.
"""

from dataclasses import dataclass
from typing import Final, Literal, assert_never

Form = Literal["exact", "sharded", "event_log"]
"""Where an add is written."""

Kind = Literal["exact", "sharded", "event_log", "auto"]
"""The kind that a counter is opened with: one fixed form, or a chosen one."""

CALM_S: Final = 60.0
CALM_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements that a choice is made from."""

    row_handoffs_per_s: float = 0.0
    """How often the counter's own row went from one writer to the next that waited for it."""
    shard_handoffs_per_s: float = 0.0
    """The same for the worst of its shards."""
    calm_s: float = 0.0
    """How long the rate of adds has been below `calm_below`."""
    commits_shared: bool = False
    """Whether writers of one row share commits: in a lane whose groups have room hand-offs cost nothing."""
    appends_apart: bool = False
    """Whether appends to the log run side by side: on PostgreSQL they do, in a lane they do not."""


def choose(current: Form, measured: Measured, *, threshold: float) -> Form:
    """Return the form for the next adds."""
    calm = measured.calm_s >= CALM_S
    match current:
        case "exact":
            hurts = measured.row_handoffs_per_s > threshold and not measured.commits_shared
            return "sharded" if hurts else "exact"
        case "sharded":
            if measured.shard_handoffs_per_s > threshold and measured.appends_apart:
                return "event_log"
            return "exact" if calm else "sharded"
        case "event_log":
            return "sharded" if calm else "event_log"
        case _:
            assert_never(current)


def calm_below(current: Form, *, threshold: float, shard_count: int) -> float:
    """Return the adds per second below which the next simpler form would certainly be calm."""
    rows_below = shard_count if current == "event_log" else 1
    return CALM_SHARE * threshold * rows_below
