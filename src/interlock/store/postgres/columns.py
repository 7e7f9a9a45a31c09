"""Conversion between a store's values and the arrays and columns of the statements.

A group becomes one array per column. Results are read by index. JSON is stored as jsonb, for users; the engine gets
exactly the text that it wrote.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from interlock.sql.postgres.link import Record
from interlock.store.postgres.statement import EFFECT, LETTER, Parts, compact, micros
from interlock.store.values import Change, Delivered, Happened, Letter, OwedEffect, Row

Columns = list[list[Any]]


def row_of_table(table: str) -> str:
    """The columns of a workflow, of the table that is called so in a statement."""
    every = (
        "{0}.id",
        "{0}.workflow_type",
        "{0}.machine_version",
        "{0}.state",
        f"coalesce({{0}}.context_written, {compact('{0}.context')})",
        "{0}.version",
        "{0}.visit",
        "{0}.active",
        micros("{0}.created_at"),
        micros("{0}.updated_at"),
        micros("{0}.entered_at"),
        "{0}.digest",
        "{0}.owed",
        micros("{0}.wake_at"),
        "{0}.duplicates",
        "{0}.ignored",
        "{0}.refused",
        "{0}.revision",
        "{0}.lease_token",
        "CASE WHEN {0}.lease_until > now() THEN {0}.lease_owner ELSE '' END",
        micros("{0}.timer_at"),
    )
    return ", ".join(every).format(table)


ROW = row_of_table("workflows")
ROW_WIDTH = 21
ENTERED_AT = 10
"""Index of the time of entry in `ROW`."""

HAPPENED = ", ".join((
    "workflow_id",
    "version",
    "from_state",
    "to_state",
    "event",
    f"coalesce(payload_written, {compact('payload')})",
    f"coalesce(context_written, {compact('context')})",
    micros("created_at"),
    "key",
    "key_digest",
))  # fmt: skip


def effect_of_table(table: str) -> str:
    """The columns of an effect, of the table that is called so in a statement."""
    names = ("id", "workflow_id", "version", "name", "attempts")
    return f"{', '.join(f'{table}.{name}' for name in names)}, {micros(f'{table}.wake_at')}, {table}.context::text"


EFFECTS = effect_of_table("workflow_effects")
LETTERS = f"id, kind, workflow_id, name, attempts, error, {micros('since')}, version, key, context::text"

NO_EFFECT = (None,) * (len(EFFECT) - 4)
NO_LETTER = (None,) * (len(LETTER) - 3)


def parts_of(changes: Sequence[Change]) -> Parts:
    """Return the parts that the group has."""
    history = any(change.history for change in changes)
    single = history and all(map(_is_single, changes))
    return Parts(
        moves=any(change.expected for change in changes),
        starts=any(not change.expected for change in changes),
        single=single,
        history=history and not single,
        keys=any(each.key is not None for change in changes for each in change.history),
        counts=any(change.counted for change in changes if change.expected),
        effects=any(map(_has_effects, changes)),
        letters=any(change.letters or change.letters_gone for change in changes),
    )


def _has_effects(change: Change) -> bool:
    return bool(change.effects or change.effects_again or change.effects_dead or change.effects_done)


def _is_single(change: Change) -> bool:
    """Return whether its history is at most one row, with the state of the workflow."""
    if not change.history:
        return True
    last, row = change.history[-1], change.row
    return (
        len(change.history) == 1
        and last.version == row.version
        and last.to_state == row.state
        and last.created_us == row.updated_us
        and last.context == row.context
    )


def arrays_of(changes: Sequence[Change], parts: Parts) -> Columns:
    """The parameters of the group's statement, all but those that are common to the group."""
    arrays = _columns(_change(change) for change in changes)
    if parts.starts:
        arrays += _columns(_begin(change) for change in changes)
    if parts.starts or parts.counts:
        arrays += _columns(change.row.counts for change in changes)
    if parts.single:
        arrays += _columns(_last(change) for change in changes)
        if parts.keys:
            arrays += _columns(_key(change) for change in changes)
    elif parts.history:
        arrays += _columns(_event(each) for change in changes for each in change.history)
    if parts.effects:
        arrays += _columns(each for change in changes for each in _effects(change))
    if parts.letters:
        arrays += _columns(each for change in changes for each in _letters(change))
    return arrays


def row_of(values: Record) -> Row:
    """Return the workflow in the columns `ROW`; later columns are ignored."""
    every: tuple[Any, ...] = tuple(values)
    context, counts = every[4].encode(), every[14:17]
    return Row(*every[:4], context, *every[5:14], counts, *every[17:ROW_WIDTH])  # type: ignore[call-arg]


def happened_of(values: Record) -> Happened:
    """Return the row of history in the columns `HAPPENED`."""
    every: tuple[Any, ...] = tuple(values)
    payload, context = (every[5] or "").encode(), every[6].encode()
    return Happened(*every[:5], payload, context, *every[7:9], every[9] or b"")  # type: ignore[call-arg]


def effect_of(values: Record) -> OwedEffect:
    """The effect in the columns `EFFECTS`."""
    every: tuple[Any, ...] = tuple(values)
    return OwedEffect(*every[:6], (every[6] or "").encode())  # type: ignore[call-arg]


def letter_of(values: Record) -> Letter:
    """The letter in the columns `LETTERS`."""
    every: tuple[Any, ...] = tuple(values)
    return Letter(*every[:9], (every[9] or "").encode())  # type: ignore[call-arg]


def delivered_of(version: int, to_state: str, digest: bytes | None) -> Delivered:
    """Return the recorded use of a key."""
    return Delivered(version, to_state, digest or b"")


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    return [list(column) for column in zip(*rows, strict=True)]


def _change(change: Change) -> tuple[Any, ...]:
    row = change.row
    return (
        row.id,
        change.expected,
        row.machine_version,
        row.state,
        row.context.decode(),
        row.version,
        row.visit,
        row.active,
        row.created_us,
        row.updated_us,
        row.owed,
        row.wake_us,
        row.timer_us,
        row.lease,
        change.hold,
    )


def _begin(change: Change) -> tuple[Any, ...]:
    row = change.row
    return (None,) * 3 if change.expected else (row.machine, row.entered_us, row.digest)


def _last(change: Change) -> tuple[Any, ...]:
    for last in change.history:
        return last.from_state, last.event, last.payload.decode() or None
    return None, None, None


def _key(change: Change) -> tuple[Any, ...]:
    for last in change.history:
        return last.key, last.key_digest or None
    return None, None


def _event(happened: Happened) -> tuple[Any, ...]:
    return (
        happened.workflow,
        happened.version,
        happened.from_state,
        happened.to_state,
        happened.event,
        happened.payload.decode() or None,
        happened.context.decode(),
        happened.created_us,
        happened.key,
        happened.key_digest or None,
    )


def _effects(change: Change) -> Iterable[tuple[Any, ...]]:
    workflow, leased_effects = change.row.id, change.effects_held
    new = [(True, each, None) for each in change.effects]
    for put, each, known in (*new, *((None, each, known) for each, known in change.effects_again)):
        context = each.context.decode() or None
        yield (
            workflow, put, each.id, each.workflow, each.version, each.name, each.attempts, each.wake_us, context,
            each.id in leased_effects, known,
        )  # fmt: skip
    for dead in change.effects_dead:
        yield (workflow, False, dead.id, *NO_EFFECT, dead.attempts)
    for done in change.effects_done:
        yield (workflow, False, done, *NO_EFFECT, None)


def _letters(change: Change) -> Iterable[tuple[Any, ...]]:
    workflow = change.row.id
    for each in change.letters:
        context = each.context.decode() or None
        yield (
            workflow, True, each.id, each.kind, each.workflow, each.name, each.attempts, each.error, each.since_us,
            each.version, each.key, context, any(dead.id == each.key for dead in change.effects_dead),
        )  # fmt: skip
    for letter_id in change.letters_gone:
        yield (workflow, False, letter_id, *NO_LETTER)
