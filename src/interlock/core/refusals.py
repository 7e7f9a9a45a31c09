"""Constructors of the errors that `decide` raises, outside the hot path.

Each error names the event, the state of the workflow and the allowed alternatives, so that one log line is enough.
"""

import difflib
from collections.abc import Iterable
from enum import Enum

from interlock.core.events import Event, wire_name
from interlock.core.table import Node, Table, Transition, name_of
from interlock.errors import GuardRejected, InvalidPayload, InvalidTransition, UserCodeError

SHOWN_VALUE_CHARACTERS_MAX = 80


def invalid_transition(table: Table, node: Node, event: Event) -> InvalidTransition:
    """Return the error for an event without a transition from the node."""
    return InvalidTransition(
        machine=table.name, state=node.name, event=wire_name(type(event)), allowed=allowed_events(node)
    )


def guard_rejected(table: Table, node: Node, moves: Iterable[Transition]) -> GuardRejected:
    """Return the error for an event whose guards all returned False."""
    moves = tuple(moves)
    return GuardRejected(
        machine=table.name,
        state=node.name,
        event=moves[0].event,
        guards=[(move.guard_name or "", move.guard_reason) for move in moves],
        allowed=allowed_events(node),
    )


def guard_raised(table: Table, node: Node, transition: Transition, error: Exception) -> UserCodeError:
    """Return the error for a guard that raised."""
    return UserCodeError(
        f"{table.name}: guard {transition.guard_name} for {transition.event} in state {node.name!r} raised "
        f"{type(error).__name__}: {_text_of(error)}",
        machine=table.name,
        event=transition.event,
    )


def guard_returned(table: Table, node: Node, transition: Transition, verdict: object) -> UserCodeError:
    """Return the error for a guard that returned something other than a bool."""
    return UserCodeError(
        f"{table.name}: guard {transition.guard_name} for {transition.event} in state {node.name!r} returned "
        f"{shown(verdict)} ({type(verdict).__name__}), not True or False.",
        fix="Return a bool; wrap the expression in bool(...) if it is only truthy.",
        machine=table.name,
        event=transition.event,
    )


def action_raised(table: Table, node: Node, event: str, action: object, error: Exception) -> UserCodeError:
    """Return the error for an action that raised."""
    return UserCodeError(
        f"{table.name}: action {name_of(action)} for {event} in state {node.name!r} raised "
        f"{type(error).__name__}: {_text_of(error)}",
        machine=table.name,
        event=event,
    )


def action_returned(table: Table, node: Node, event: str, action: object, value: object) -> UserCodeError:
    """Return the error for an action that returned something other than the machine's context."""
    return UserCodeError(
        f"{table.name}: action {name_of(action)} for {event} in state {node.name!r} returned "
        f"{shown(value)} ({type(value).__name__}), not a {name_of(table.declared.context)}.",
        fix="Return the new context, for example with dataclasses.replace(context, ...).",
        machine=table.name,
        event=event,
    )


def context_not_storable(table: Table, event: str, error: InvalidPayload) -> UserCodeError:
    """Return the error for an action's context that has the right type and cannot be encoded or decoded again."""
    return UserCodeError(
        f"{error.what.rstrip('.')}, after the action for {event}.",
        why="Every transition writes the context; an action returns one that can be written and read back.",
        machine=table.name,
        event=event,
    )


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- user code; the message must still be made.
        return "(its text cannot be read)"


def foreign_event(table: Table, event: Event | type[Event]) -> InvalidPayload:
    """Return the error for an event outside this machine's alphabet."""
    cls = event if isinstance(event, type) else type(event)
    name = wire_name(cls) if issubclass(cls, Event) else cls.__name__
    if cls in table.events.values():
        return InvalidPayload(
            f"{table.name}: {name} was sent as the class {cls.__name__}.",
            why="An event is a value: the class is only its name.",
            fix=f"Send an instance: {cls.__name__}(...).",
        )
    if name in table.events:
        return InvalidPayload(
            f"{table.name} has an event {name}, but not this class ({cls.__module__}.{cls.__qualname__}).",
            why="Another class has the same wire name: another machine's, or the same module loaded twice.",
            fix="Import the class from the module that the machine was built in.",
        )
    return unknown_event(table, f"{name} ({cls.__module__}.{cls.__qualname__})", name)


def unknown_event(table: Table, label: str, name: str) -> InvalidPayload:
    """Return the error for an event name that this machine does not have. `label` is the name as the error shows it."""
    return InvalidPayload(
        f"{table.name} has no event {label}; its events are {', '.join(table.events)}.{suggestion(name, table.events)}",
        why="A machine takes only the events of its own alphabet.",
        fix=f"Send one of its events, or make the class a frozen dataclass below {table.declared.alphabet.__name__}.",
    )


def foreign_state(table: Table, state: object) -> InvalidPayload:
    """Return the error for a state that this machine does not have."""
    return InvalidPayload(
        f"{table.name} has no state {shown(state)}; its states are "
        f"{', '.join(node.name for node in table.nodes.values())}.{member_suggestion(state, table.declared.states)}",
        why="A snapshot belongs to the machine that made it.",
        fix=f"Use a member of {table.declared.states.__name__}.",
    )


def allowed_events(node: Node) -> list[str]:
    """Return the wire names of the events that have a transition from the node."""
    return [moves[0].event for moves in node.moves.values()]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the hint "Did you mean X?" when a similar name exists, else an empty text."""
    close = difflib.get_close_matches(name[:SHOWN_VALUE_CHARACTERS_MAX], list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def member_suggestion(value: object, states: type[Enum]) -> str:
    """Return the hint "Did you mean State.X?" for a text or another Enum's member that resembles one of the states."""
    members = {state.value: f"{states.__name__}.{state.name}" for state in states}
    text = str(getattr(value, "value", value))[:SHOWN_VALUE_CHARACTERS_MAX]
    close = difflib.get_close_matches(text, list(members), n=1)
    return f" Did you mean {members[close[0]]}?" if close else ""


def shown(value: object) -> str:
    """Return the value's repr, cut to the length of a log line. Never raises: a failing repr is replaced."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 -- user code; the message must still be made.
        text = f"<repr raised {type(error).__name__}>"
    return text if len(text) <= SHOWN_VALUE_CHARACTERS_MAX else text[:SHOWN_VALUE_CHARACTERS_MAX] + "…"
