"""Checks of the whole graph (A2): errors, which make a machine unusable, and warnings.

`soundness` finds errors, `compensation` effects that a failure may leave without an undo, `advice` the rest. All take a
compiled table, sound or not, and return findings; only `demand_sound` raises, when a machine is first used.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from interlock.core.checks.advice import advice
from interlock.core.checks.compensation import compensation
from interlock.core.checks.soundness import soundness
from interlock.core.mutability import changeable_parts
from interlock.core.table import Table, name_of
from interlock.core.values import Finding
from interlock.errors import DefinitionError, InvalidPayload, PayloadTooLarge

__all__ = ["demand_sound", "findings"]


class Encodes(Protocol):
    """The method of a codec that is used here."""

    def encode_event(self, event: Any) -> bytes:  # noqa: ANN401 -- an event of the machine's own alphabet.
        """Return the event's payload as bytes."""
        ...


_ORDER = ("error", "warning", "info")


def findings(table: Table, codec: Callable[[], Encodes]) -> list[Finding]:
    """Return all findings about the machine, errors first; `codec` creates the codec of its values."""
    found = [
        *soundness(table),
        *_unwritable(table, codec),
        *_mutable_context(table),
        *compensation(table),
        *advice(table),
    ]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))


def _unwritable(table: Table, codec: Callable[[], Encodes]) -> list[Finding]:
    """Return what the first use would raise: fields that cannot be decoded, timers whose event cannot be encoded."""
    location = table.declared.location
    try:
        encode = codec().encode_event
        for timer in table.declared.timers:
            location = timer.location
            encode(timer.send)
    except (DefinitionError, InvalidPayload, PayloadTooLarge) as error:
        found = Finding(
            code="timer-event-unstorable",
            severity="error",
            what=error.what,
            why=error.why,
            fix=error.fix,
            location=location,
        )
        return [msgspec.structs.replace(found, code=error.rule) if isinstance(error, DefinitionError) else found]
    return []


def _mutable_context(table: Table) -> list[Finding]:
    """Return the one error that does not stop the first use.

    A machine with stored workflows must not stop after an upgrade, so user code receives copies of such a context. But
    every call pays for the copies, and a change that a function does not return is lost silently.
    """
    parts = [part for part in changeable_parts(table.declared.context) if part.certain]
    if not parts:
        return []
    places = "; ".join(part.what for part in parts)
    return [
        Finding(
            code="mutable-context",
            severity="error",
            what=f"the context {name_of(table.declared.context)} can be changed in place: {places}.",
            why="Guards, actions and steps receive a copy of it with every call, and a change that is not returned "
            "is lost.",
            fix="Use a frozen class, with tuple instead of list, frozenset instead of set, Mapping instead of dict and "
            "bytes instead of bytearray. Return a changed copy: dataclasses.replace(context, ...).",
            location=table.declared.location,
        )
    ]


def demand_sound(table: Table) -> None:
    """Raise the first error as a DefinitionError, with the number of the others."""
    errors = soundness(table)
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors) - 1} more: see check())" if len(errors) > 1 else ""
    raise DefinitionError(
        f"machine {table.name!r}: {first.what}{more}",
        why=first.why,
        fix=first.fix,
        rule=first.code,
        location=first.location,
    )
