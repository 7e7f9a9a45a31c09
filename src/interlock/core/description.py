"""Description of a machine as plain data, for diagrams, `plan`, HTTP and the dashboard.

A `Machine` holds user functions and classes; a description holds only names, numbers and JSON schemas. So code that
only reads a machine depends on these few frozen values, and can read a description saved by an earlier release.

States are named by their stored value (`State.DRAFT.value`), events by their wire name.
"""

from typing import Literal

import msgspec

TransitionKind = Literal["event", "failed", "unwound"]


class StepDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The step that runs while a workflow is in a state."""

    name: str
    timeout_s: float
    attempts: int
    dependency: str | None = None
    returns: tuple[str, ...] = ()
    """Wire names of the events it may return; empty when the function does not say."""
    undoes: tuple[str, ...] = ()
    """Wire names of the outcomes that have an undo."""
    heartbeat_s: float | msgspec.UnsetType = msgspec.UNSET
    """The longest silence of an attempt. Not encoded when unset, so that saved descriptions stay the same."""


class TimerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """After `after_s` seconds in the state, `event` is sent."""

    event: str
    after_s: float
    policy: Literal["deadline", "remaining", "restart"]


class StateDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One state and everything attached to it."""

    name: str
    initial: bool = False
    final: bool = False
    resting: bool = False
    unwinds_to: str | None = None
    step: StepDescription | None = None
    effects: tuple[str, ...] = ()
    timers: tuple[TimerDescription, ...] = ()
    dwell_max_s: float | None = None


class TransitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One arrow. A catch-all is listed once per state it really applies to, marked `catch_all`.

    `kind` is "event" for a user's event, "failed" for a step that gave up (event STEP_FAILED) and "unwound"
    for an unwinding state that is done (event UNWOUND). An internal transition has `target == source` and
    `internal=True`; an explicit self-target has `target == source` and `internal=False`.
    """

    source: str
    event: str
    target: str
    kind: TransitionKind = "event"
    internal: bool = False
    guard: str | None = None
    guard_reason: str | None = None
    action: str | None = None
    catch_all: bool = False
    settle: bool | msgspec.UnsetType = msgspec.UNSET
    """True when completed runs become final. Not encoded when unset, so that saved descriptions stay the same."""


class EventDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the alphabet and the JSON schema of its payload."""

    name: str
    schema: dict[str, object]


class MachineDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A whole machine as data. States and transitions are in declared order, the initial state first."""

    name: str
    version: int
    states: tuple[StateDescription, ...]
    transitions: tuple[TransitionDescription, ...]
    events: tuple[EventDescription, ...]
    context_schema: dict[str, object]
    renamed: dict[str, str] = {}
    """Old state name -> new state name, as declared by the newer machine."""

    def state(self, name: str) -> StateDescription | None:
        """Return the state of that name, or None."""
        return next((state for state in self.states if state.name == name), None)

    def to_json(self) -> bytes:
        """Return the description as JSON, to be kept with a release and compared later by `interlock plan`."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


def description_from_json(data: bytes) -> MachineDescription:
    """Return the description that `to_json` wrote. Raises `msgspec.ValidationError` on anything else."""
    return msgspec.json.decode(data, type=MachineDescription)
