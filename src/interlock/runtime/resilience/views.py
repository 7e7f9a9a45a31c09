"""Views of breakers and limits for people, and the notes that a process leaves for the next one.

A note is written when a breaker changes. One that cannot be read is ignored.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, overload

import msgspec

from interlock.runtime.resilience.lines import Line
from interlock.runtime.resilience.others import Forced
from interlock.runtime.resilience.outlets import Change

NOTE = "breaker:"
"""Prefix of a breaker's note; the dependency's name follows."""


HELD = "breaker-held:"
"""Prefix of the note of a person's hold. It is separate: workers of one store overwrite each other's breaker notes, and
must not release a person's hold."""

AUTO = "auto"
"""No person holds the breaker."""


class BreakerView(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker of a dependency, with its limits, as this process has them."""

    name: str
    """The dependency."""
    state: Literal["closed", "open", "half_open"]
    forced: Literal["open", "closed"] | None = None
    """How a person holds it, if one does."""
    reason: str = ""
    since: datetime
    failures: int = 0
    """Failures in a row."""
    probes_in_s: float | None = None
    """When probes are admitted, while it is open."""
    under_way: int = 0
    """Calls under way, of all engines of this process."""
    waiting: int = 0
    """Workflows and effects that wait for it in this engine."""
    concurrency_max: int = 0
    rate_per_s: float | None = None
    scope: Literal["process", "cluster"] = "process"
    """The sharing processes: this one, or through Redis the cluster. It is "process" as well while Redis is down."""


class Breakers(Sequence[BreakerView]):
    """The breakers of an engine in the order of their names; `breakers["gateway"]` is one of them."""

    def __init__(self, views: Iterable[BreakerView]) -> None:
        self._views = tuple(views)

    @overload
    def __getitem__(self, which: int | str) -> BreakerView: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[BreakerView]: ...
    def __getitem__(self, which: int | str | slice) -> BreakerView | Sequence[BreakerView]:
        """Return the view at a position, or of a dependency's name."""
        if not isinstance(which, str):
            return self._views[which]
        for view in self._views:
            if view.name == which:
                return view
        raise KeyError(which)

    def __contains__(self, which: object) -> bool:
        """Whether there is a breaker of that name."""
        return any(which in (view, view.name) for view in self._views)

    def __iter__(self) -> Iterator[BreakerView]:
        """Iterate over the views."""
        return iter(self._views)

    def __len__(self) -> int:
        """Return the number of breakers."""
        return len(self._views)

    def __repr__(self) -> str:
        return f"Breakers({', '.join(f'{view.name}={view.state}' for view in self._views)})"


class Noted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note of a breaker's last change."""

    state: str
    since: str = ""
    reason: str = ""
    forced: Forced | None = None


def view_of_line(line: Line) -> BreakerView:
    """Return the view of a queue's breaker."""
    outlet = line.outlet
    phase = outlet.phase
    return BreakerView(
        name=outlet.declared.name,
        state=phase,
        forced=outlet.forced,
        reason=outlet.reason,
        since=datetime.fromtimestamp(outlet.since_s, UTC),
        failures=outlet.circuit.failures,
        probes_in_s=outlet.retry_in_s("first") if phase == "open" and outlet.forced is None else None,
        under_way=outlet.under_way + outlet.undos_under_way,
        waiting=len(line),
        concurrency_max=outlet.concurrency_max,
        rate_per_s=None if outlet.rate is None else outlet.rate.rate_per_s,
        scope="cluster" if outlet.others is not None and outlet.others.up else "process",
    )


def note_of(change: Change, since: datetime) -> str:
    """Return the note of a change as JSON."""
    note = Noted(change.after, since.isoformat(), change.reason, change.forced)
    return msgspec.json.encode(note).decode()


def read_since(note: Noted) -> float | None:
    """Return when the phase began, in seconds since the epoch; None if unreadable."""
    try:
        return datetime.fromisoformat(note.since).timestamp()
    except ValueError:
        return None


def read_held(text: str) -> Forced | None:
    """Decode how a person holds it; None if no one does."""
    return "open" if text == "open" else "closed" if text == "closed" else None


def read_note(text: str) -> Noted | None:
    """Decode a note; None for an unreadable one, which is ignored."""
    try:
        return msgspec.json.decode(text, type=Noted)
    except msgspec.DecodeError:
        return None
