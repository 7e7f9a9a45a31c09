"""The grouped statement: a whole group of changes in one round trip.

Everything comes in arrays, one parameter per column, so that no group meets the ceiling of 65,535 parameters. The order
inside the statement keeps it correct and free of lock waits. `locked` takes the rows that are still at the revision
that was decided upon, in the order of their ids, and skips those that another transaction has locked: it never waits,
so a caller's open transaction blocks no group, and two groups cannot deadlock. A change with a delivery key that was
used before is not locked at all. `moved` writes those, `begun` inserts the new ones in the order of their ids; only
there a statement may have to wait, for an open transaction that starts the same workflow, and that wait is bounded.
Every other write is filtered by the changes that won: lost ones leave neither history, nor effects, nor letters.

Sections: leases taken in a commit, statement, arrays and columns, writer of a group.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from interlock.errors import ConstraintViolation, InterlockError, InternalError, OutcomeUnknown
from interlock.postgres.pool import Pool, PostgresRow
from interlock.postgres.translate_errors import Blocked
from interlock.store.protocol import Holder
from interlock.store.records import (
    HOLD,
    KEEP,
    STAYS,
    Change,
    ChildRecord,
    DatabaseTime,
    Delivered,
    HistoryRecord,
    Letter,
    OwedEffect,
    Row,
)

# --- Leases taken in a commit ----------------------------------------------------------------------------------------
# An engine that commits a step runs it immediately if it has a free slot. A claim afterwards would be a second
# write, and another engine could be faster. So a change may hold its workflow: the same statement leases it to the
# committing engine. Effects are leased in the same way, each for itself.
#
# A lease belongs to one visit of a state. A commit that leaves the state ends it. One that stays, such as an event
# that another node received, leaves it to its holder. Only an unwinding keeps it beyond the visit: the engine that
# runs the undone step must end it first, or die, so that no undo overtakes its step (G5).
#
# The committing engine counts the tokens: every new lease changes the row's revision too, so a commit that is not
# lost knew the last one.

LEASE = ("lease_owner", "lease_until")


class GroupLease(NamedTuple):
    """The lease parameters of a group: the committing owner, and the length of its leases."""

    owner: str
    seconds: str

    def of_move(self) -> str:
        """Return the assignments to the lease in a move from `w` to `l`."""
        stays = f"WHEN l.hold = {KEEP} OR (l.hold = {STAYS} AND w.visit = l.visit) THEN"
        return f"""lease_owner = CASE WHEN l.hold = {HOLD} THEN {self.owner} {stays} w.lease_owner END,
    lease_until = CASE WHEN l.hold = {HOLD} THEN {self._end()} {stays} w.lease_until END"""

    def of_start(self) -> list[str]:
        """Return the columns `LEASE` of a workflow that begins, from `n`."""
        when_held = f"CASE WHEN n.hold = {HOLD} THEN"
        return [f"{when_held} {self.owner} END", f"{when_held} {self._end()} END"]

    def aside(self) -> dict[str, str]:
        """Return the lease columns of an effect, new or rescheduled, from `p`."""
        return {
            "lease_owner": f"CASE WHEN p.hold THEN {self.owner} END",
            "lease_until": f"CASE WHEN p.hold THEN {self._end()} END",
        }

    def _end(self) -> str:
        return f"now() + {self.seconds} * interval '1 second'"


# --- Statement -------------------------------------------------------------------------------------------------------
# Membership is asked as `(x IN (SELECT …)) IS TRUE`: PostgreSQL answers that with a hash table. As a join it would be a
# nested loop over both sides, because the planner does not know the length of an array. Parts that a group has no use
# for are left out of its statement, so there are a few dozen texts, each prepared once.

LOCK_WAIT_MS = 100
"""Milliseconds that a group waits for open transactions that start the same workflow."""


def _typed(columns: str) -> tuple[tuple[str, str], ...]:
    """Return names and types of columns that are written as in CREATE TABLE."""
    return tuple([(name, kind) for name, _, kind in (column.partition(" ") for column in columns.split(", "))])


CHANGE = _typed(
    "id text, expected bigint, machine_version bigint, state text, context text, version bigint, visit bigint, "
    "active boolean, created_at bigint, updated_at bigint, owed bytea, wake_at bigint, timer_at bigint, "
    "lease_token bigint, hold smallint"
)
"""Columns of every change."""

BEGIN = _typed("workflow_type text, entered_at bigint, digest bytea")
"""Beside a change: columns that only the start of a workflow needs."""

COUNTS = _typed("duplicates bigint, ignored bigint, refused bigint")

LAST = _typed("from_state text, event text, payload text, attempts bytea")
KEY = _typed("key text, key_digest bytea")
ACTOR = _typed("actor text")
"""Beside a change: its one row of history, whose other columns stand in the change itself."""

EVENT = _typed(
    "workflow_id text, version bigint, from_state text, to_state text, event text, payload text, context text, "
    "created_at bigint, key text, key_digest bytea, actor text, attempts bytea"
)
EFFECT = _typed(
    "change text, put boolean, id text, workflow_id text, version bigint, name text, attempts bigint, "
    "wake_at bigint, context text, hold boolean, known bigint"
)
LETTER = _typed(
    "change text, put boolean, id text, kind text, workflow_id text, name text, attempts bigint, error text, "
    "since bigint, version bigint, key text, context text, tied boolean"
)
CHILD = _typed("change text, id text, parent text, visit bigint, position bigint, state text, stage smallint")
ASIDE = {"id", "expected", "created_at", "hold", "lease_token"}
"""Columns of a change that a move does not write as they are."""

INSTRUCTIONS = {"change", "put", "hold", "known", "tied"}
"""Columns of effects and letters that say what to do with them, and are not stored."""

WON = {
    (True, False): "SELECT id FROM moved",
    (False, True): "SELECT id FROM begun",
    (True, True): "SELECT id FROM moved UNION ALL SELECT id FROM begun",
}


class GroupParts(NamedTuple):
    """The optional parts that a group has."""

    moves: bool
    starts: bool
    single: bool
    """No change has more than one row of history, and that one says where its workflow stands."""
    history: bool
    """Otherwise, rows of history of their own."""
    keys: bool
    """Whether a row of history has a delivery key."""
    actors: bool
    """Whether a row of history has an actor."""
    counts: bool
    """Whether a move changes what was counted."""
    effects: bool
    letters: bool
    children: bool

    @property
    def change(self) -> tuple[tuple[str, str], ...]:
        """The columns of a change in such a group."""
        begin = BEGIN if self.starts else ()
        counts = COUNTS if self.starts or self.counts else ()
        last = (*LAST, *(KEY if self.keys else ()), *(ACTOR if self.actors else ())) if self.single else ()
        return (*CHANGE, *begin, *counts, *last)


@cache
def group_statement(schema: str, parts: GroupParts, *, bounded: bool = True) -> str:
    """Return the statement for groups with these parts.

    Returns the database's time and the ids that were lost. With `bounded` it waits no longer than `LOCK_WAIT_MS` for
    others, nor does any later statement in its transaction.
    """
    columns = parts.change
    at = 1 + len(columns)
    common = at + len(EVENT) * parts.history + len(EFFECT) * parts.effects + len(LETTER) * parts.letters
    common += len(CHILD) * parts.children
    # The last parameters are one value each for the whole group.
    envelope, lease = f"${common}::uuid", GroupLease(f"${common + 1}::text", f"${common + 2}::float8")
    won = WON[parts.moves, parts.starts]
    tables = [
        f"""change AS MATERIALIZED (
    SELECT c.*, {written("c.context")} AS context_written
    FROM (SELECT c.*, c.context::jsonb AS context_json FROM {_rows(columns, 1)} OFFSET 0) c)"""
    ]
    happened = "SELECT c.id AS workflow_id, c.key FROM change c"
    if parts.history:
        happened = f"SELECT h.* FROM {_rows(EVENT, at, 'h')}"
    at += len(EVENT) * parts.history
    if parts.moves:
        tables += _moves(schema, f"({happened}) h" if parts.keys else None, lease, envelope, parts)
    if parts.starts:
        tables += _starts(schema, lease, envelope, bounded=bounded)
    if parts.single:
        tables.append(_last(schema, won, envelope, parts))
    elif parts.history:
        tables.append(_events(schema, happened, won, envelope))
    if parts.effects:
        tables += _aside(schema, "workflow_effects", EFFECT, at, won, lease.aside())
        at += len(EFFECT)
    if parts.letters:
        tables += _aside(schema, "dead_letters", LETTER, at, won, {})
        at += len(LETTER)
    if parts.children:
        tables += _children(schema, at, won)
    lost = f"ARRAY(SELECT c.id FROM change c WHERE (c.id IN ({won})) IS NOT TRUE)"
    # Every parameter must be seen with its type, also by a group that has no use for it.
    typed = f"({envelope}, {lease.owner}, {lease.seconds}) IS NULL"
    return f"WITH {', '.join(tables)}\nSELECT {micros('clock_timestamp()')}, {lost}, {typed}"


def micros(column: str) -> str:
    """Return SQL for a time as microseconds since the epoch."""
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def moment(column: str) -> str:
    """Return SQL for microseconds since the epoch as a time; exact, which to_timestamp is not."""
    return f"('epoch'::timestamptz + {column} * interval '1 microsecond')"


def compact(column: str) -> str:
    """Return SQL for JSON as the engine writes it, without spaces. Texts that contain such signs are changed too."""
    return f"replace(replace({column}::text, ': ', ':'), ', ', ',')"


def written(text: str) -> str:
    """Return SQL for the text, or NULL if its JSON, which is parsed once beside it, gives exactly that text."""
    return f"CASE WHEN {compact(f'{text}_json')} <> {text} THEN {text} END"


def _rows(columns: Sequence[tuple[str, str]], at: int, name: str = "c") -> str:
    arrays = ", ".join(f"${place}::{kind}[]" for place, (_, kind) in enumerate(columns, at))
    return f"unnest({arrays}) AS {name}({', '.join(column for column, _ in columns)})"


def _moves(schema: str, happened: str | None, lease: GroupLease, envelope: str, parts: GroupParts) -> list[str]:
    used = ""
    if happened is not None:
        used = f""" AND (c.id IN (SELECT h.workflow_id FROM {happened}
    JOIN {schema}.workflow_events e ON e.workflow_id = h.workflow_id AND e.key = h.key)) IS NOT TRUE"""
    stored = [*CHANGE, *(COUNTS if parts.counts else ())]
    changed = [f"{name} = {_value('l', name, kind)}" for name, kind in stored if name not in ASIDE]
    return [
        f"""locked AS MATERIALIZED (
    SELECT c.* FROM change c JOIN {schema}.workflows w ON w.id = c.id
    WHERE c.expected > 0 AND w.revision = c.expected AND w.created_at = {moment("c.created_at")}{used}
    ORDER BY w.id FOR NO KEY UPDATE OF w SKIP LOCKED)""",
        f"""moved AS (
    UPDATE {schema}.workflows w SET {", ".join(changed)}, context_written = l.context_written,
    entered_at = CASE WHEN w.visit = l.visit THEN w.entered_at ELSE {moment("l.updated_at")} END,
    revision = l.expected + 1, envelope = {envelope}, lease_token = greatest(w.lease_token, l.lease_token),
    {lease.of_move()}
    FROM locked l WHERE w.id = l.id AND w.revision = l.expected
    RETURNING w.id)""",
    ]


def _starts(schema: str, lease: GroupLease, envelope: str, *, bounded: bool) -> list[str]:
    stored = [(name, kind) for name, kind in (*CHANGE, *BEGIN, *COUNTS) if name not in {"expected", "hold"}]
    names = [*(name for name, _ in stored), *LEASE]
    values = [*(_value("n", name, kind) for name, kind in stored), *lease.of_start()]
    # Numbered in the order given, inserted in the order of ids. The numbers are drawn first, and with them the bound on
    # waiting is set: for this transaction only.
    bound = f", set_config('lock_timeout', '{LOCK_WAIT_MS}ms', true)" if bounded else ""
    return [
        f"""numbered AS MATERIALIZED (
    SELECT c.*, nextval('{schema}.workflow_numbers') AS number{bound}
    FROM change c WHERE c.expected = 0)""",
        f"""begun AS (
    INSERT INTO {schema}.workflows ({", ".join(names)}, revision, envelope, number, context_written)
    SELECT {", ".join(values)}, 1, {envelope}, n.number, n.context_written FROM numbered n ORDER BY n.id
    ON CONFLICT (id) DO NOTHING RETURNING id)""",
    ]


def _last(schema: str, won: str, envelope: str, parts: GroupParts) -> str:
    """Return SQL for the one row of history of each change, from its state and event."""
    also = (", key, key_digest" if parts.keys else "") + (", actor" if parts.actors else "")
    values = "c.id, c.version, c.from_state, c.state, c.event, c.payload_json, c.context_json, c.context_written"
    return f"""happened AS (
    INSERT INTO {schema}.workflow_events (workflow_id, version, from_state, to_state, event, payload, context,
        context_written, attempts, created_at, envelope, payload_written{also})
    SELECT {values}, c.attempts, {moment("c.updated_at")}, {envelope},
        {written("c.payload")}{also.replace(", ", ", c.")}
    FROM (SELECT c.*, c.payload::jsonb AS payload_json
        FROM change c WHERE c.event IS NOT NULL AND (c.id IN ({won})) IS TRUE OFFSET 0) c)"""


def _events(schema: str, happened: str, won: str, envelope: str) -> str:
    names = ", ".join(name for name, _ in EVENT)
    values = ", ".join(_value("h", name, kind) for name, kind in EVENT)
    return f"""happened AS (
    INSERT INTO {schema}.workflow_events ({names}, envelope, payload_written, context_written)
    SELECT {values}, {envelope}, {written("h.payload")}, {written("h.context")}
    FROM (SELECT h.*, h.payload::jsonb AS payload_json, h.context::jsonb AS context_json
        FROM ({happened}) h WHERE (h.workflow_id IN ({won})) IS TRUE OFFSET 0) h)"""


def _aside(
    schema: str, table: str, columns: Sequence[tuple[str, str]], at: int, won: str, leased: Mapping[str, str]
) -> list[str]:
    """Return SQL for effects or letters: of all that a group does with one of them, the last counts.

    `put` is true for one that is put in, false for one that is taken out, and null for one that changes if it is there.
    """
    stored = [(name, kind) for name, kind in columns if name not in INSTRUCTIONS]
    arrays = _rows((*columns,), at).partition(" AS ")[0]
    names = ", ".join(name for name, _ in columns)
    into = [*(name for name, _ in stored), *leased]
    values = ", ".join([*(_value("p", name, kind, aside=True) for name, kind in stored), *leased.values()])
    replaced = ", ".join(f"{name} = excluded.{name}" for name in into if name != "id")
    again = ", ".join(["attempts = p.attempts", f"wake_at = {moment('p.wake_at')}",
                       *(f"{name} = {value}" for name, value in leased.items())])  # fmt: skip
    updated = [] if table != "workflow_effects" else [
        f"""again_{table} AS (
    UPDATE {schema}.{table} t SET {again} FROM last_{table} p
    WHERE t.id = p.id AND p.put IS NULL AND t.attempts = p.known)"""
    ]  # fmt: skip
    known, tied = "", ""
    if table == "workflow_effects":
        known = " AND (p.known = t.attempts) IS NOT FALSE"
    else:
        # As it was before this statement: the letter of an effect that another engine has tried meanwhile is too late.
        tried = f"SELECT FROM {schema}.workflow_effects e WHERE e.id = p.key AND e.attempts = p.attempts"
        tied = f" AND (NOT p.tied OR EXISTS ({tried}))"
    return [
        f"""last_{table} AS MATERIALIZED (
    SELECT DISTINCT ON (p.id) p.* FROM {arrays} WITH ORDINALITY AS p({names}, place)
    WHERE (p.change IN ({won})) IS TRUE ORDER BY p.id, p.place DESC)""",
        f"""put_{table} AS (
    INSERT INTO {schema}.{table} ({", ".join(into)})
    SELECT {values} FROM last_{table} p WHERE p.put{tied}
    ON CONFLICT (id) DO UPDATE SET {replaced})""",
        *updated,
        f"""taken_{table} AS (
    DELETE FROM {schema}.{table} t USING last_{table} p WHERE t.id = p.id AND NOT p.put{known})""",
    ]


def _children(schema: str, at: int, won: str) -> list[str]:
    """Return SQL that writes the records of children. A stage never goes back."""
    arrays, names = _rows(CHILD, at).partition(" AS ")[0], ", ".join(name for name, _ in CHILD)
    stored = ", ".join(name for name, _ in CHILD if name != "change")
    return [
        f"""last_children AS MATERIALIZED (
    SELECT DISTINCT ON (p.id) p.* FROM {arrays} WITH ORDINALITY AS p({names}, place)
    WHERE (p.change IN ({won})) IS TRUE ORDER BY p.id, p.place DESC)""",
        f"""put_children AS (
    INSERT INTO {schema}.workflow_children AS t ({stored}) SELECT {stored} FROM last_children p ORDER BY p.id
    ON CONFLICT (id) DO UPDATE SET state = excluded.state, stage = excluded.stage WHERE t.stage <= excluded.stage)""",
    ]


def _value(row: str, name: str, kind: str, *, aside: bool = False) -> str:
    column = f"{row}.{name}"
    if name in {"context", "payload"}:
        return f"{column}::json" if aside else f"{column}_json"
    return moment(column) if kind == "bigint" and (name.endswith("_at") or name == "since") else column


# --- Arrays and columns ----------------------------------------------------------------------------------------------
# A group becomes one array per column. Results are read by index. JSON is stored as jsonb, for users; the engine
# gets exactly the text that it wrote.


def row_of_table(table: str) -> str:
    """Return the columns of a workflow, for an alias of its table."""
    return f"""{table}.id, {table}.workflow_type, {table}.machine_version, {table}.state,
    coalesce({table}.context_written, {compact(f"{table}.context")}), {table}.version, {table}.visit, {table}.active,
    {micros(f"{table}.created_at")}, {micros(f"{table}.updated_at")}, {micros(f"{table}.entered_at")}, {table}.digest,
    {table}.owed, {micros(f"{table}.wake_at")}, {table}.duplicates, {table}.ignored, {table}.refused, {table}.revision,
    {table}.lease_token, CASE WHEN {table}.lease_until > now() THEN {table}.lease_owner ELSE '' END,
    {micros(f"{table}.timer_at")}"""


ROW = row_of_table("workflows")
ROW_WIDTH = 21
ENTERED_AT = 10
"""Index of the time of entry in `ROW`."""

HAPPENED = f"""workflow_id, version, from_state, to_state, event, coalesce(payload_written, {compact("payload")}),
    coalesce(context_written, {compact("context")}), {micros("created_at")}, key, key_digest, actor, attempts"""


def effect_of_table(table: str) -> str:
    """Return the columns of an effect, for an alias of its table."""
    names = ("id", "workflow_id", "version", "name", "attempts")
    return f"{', '.join(f'{table}.{name}' for name in names)}, {micros(f'{table}.wake_at')}, {table}.context::text"


EFFECTS = effect_of_table("workflow_effects")
CHILDREN = "id, parent, visit, position, state, stage"
LETTERS = f"id, kind, workflow_id, name, attempts, error, {micros('since')}, version, key, context::text"

NO_EFFECT = (None,) * (len(EFFECT) - 4)
NO_LETTER = (None,) * (len(LETTER) - 3)


def parts_of(changes: Sequence[Change]) -> GroupParts:
    """Return the parts that the group has."""
    history = any(change.history for change in changes)
    single = history and all(map(_is_single, changes))
    return GroupParts(
        moves=any(change.expected for change in changes),
        starts=any(not change.expected for change in changes),
        single=single,
        history=history and not single,
        keys=any(each.key is not None for change in changes for each in change.history),
        actors=any(each.by is not None for change in changes for each in change.history),
        counts=any(change.counted for change in changes if change.expected),
        effects=any(map(_has_effects, changes)),
        letters=any(change.letters or change.letters_gone for change in changes),
        children=any(change.children for change in changes),
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


def values_of(changes: Sequence[Change], parts: GroupParts, holder: Holder) -> list[object]:
    """Return the parameters of the group's statement."""
    arrays = _columns(_change(change) for change in changes)
    if parts.starts:
        arrays += _columns(_begin(change) for change in changes)
    if parts.starts or parts.counts:
        arrays += _columns(change.row.counts for change in changes)
    if parts.single:
        arrays += _columns(_last_record(change) for change in changes)
        if parts.keys:
            arrays += _columns(_key(change) for change in changes)
        if parts.actors:
            arrays += _columns(_actor(change) for change in changes)
    elif parts.history:
        arrays += _columns(_event(each) for change in changes for each in change.history)
    if parts.effects:
        arrays += _columns(each for change in changes for each in _effects(change))
    if parts.letters:
        arrays += _columns(each for change in changes for each in _letters(change))
    if parts.children:
        arrays += _columns(
            (change.row.id, *msgspec.structs.astuple(each)) for change in changes for each in change.children
        )
    return [*arrays, holder.envelope, holder.owner, holder.lease_s]


def row_of(values: PostgresRow) -> Row:
    """Return the workflow in the columns `ROW`; later columns are ignored."""
    every: tuple[Any, ...] = tuple(values)
    context, counts = every[4].encode(), every[14:17]
    return Row(*every[:4], context, *every[5:14], counts, *every[17:ROW_WIDTH])  # type: ignore[call-arg]


def record_of(values: PostgresRow) -> HistoryRecord:
    """Return the row of history in the columns `HAPPENED`."""
    every: tuple[Any, ...] = tuple(values)
    payload, context, attempts = (every[5] or "").encode(), every[6].encode(), every[11] or b""
    return HistoryRecord(*every[:5], payload, context, *every[7:9], every[9] or b"", every[10], attempts)  # type: ignore[call-arg]


def effect_of(values: PostgresRow) -> OwedEffect:
    """Return the effect in the columns `EFFECTS`."""
    every: tuple[Any, ...] = tuple(values)
    return OwedEffect(*every[:6], (every[6] or "").encode())  # type: ignore[call-arg]


def child_of(values: PostgresRow) -> ChildRecord:
    """Return the child in the columns `CHILDREN`."""
    return ChildRecord(*tuple(values))


def letter_of(values: PostgresRow) -> Letter:
    """Return the letter in the columns `LETTERS`."""
    every: tuple[Any, ...] = tuple(values)
    return Letter(*every[:9], (every[9] or "").encode())  # type: ignore[call-arg]


def delivered_of(version: int, to_state: str, digest: bytes | None) -> Delivered:
    """Return the recorded use of a key."""
    return Delivered(version, to_state, digest or b"")


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _change(change: Change) -> tuple[Any, ...]:
    row = change.row
    return (
        row.id, change.expected, row.machine_version, row.state, row.context.decode(), row.version, row.visit,
        row.active, row.created_us, row.updated_us, row.owed, row.wake_us, row.timer_us, row.lease, change.hold,
    )  # fmt: skip


def _begin(change: Change) -> tuple[Any, ...]:
    row = change.row
    return (None,) * 3 if change.expected else (row.machine, row.entered_us, row.digest)


def _last_record(change: Change) -> tuple[Any, ...]:
    for last in change.history:
        return last.from_state, last.event, last.payload.decode() or None, last.attempts or None
    return None, None, None, None


def _key(change: Change) -> tuple[Any, ...]:
    for last in change.history:
        return last.key, last.key_digest or None
    return None, None


def _actor(change: Change) -> tuple[str | None]:
    for last in change.history:
        return (last.by,)
    return (None,)


def _event(happened: HistoryRecord) -> tuple[Any, ...]:
    values = msgspec.structs.astuple(happened)
    payload, context = happened.payload.decode() or None, happened.context.decode()
    attempts = happened.attempts or None
    return (*values[:5], payload, context, *values[7:9], happened.key_digest or None, happened.by, attempts)


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


# --- Writer of a group -----------------------------------------------------------------------------------------------
# A group is mostly one statement. It takes more when it is very large, and when an open transaction that has started
# one of its workflows blocks it. Then the group is halved until the blocked change is alone; that change is lost, and
# the others are written. Each statement is a transaction of its own, so from the second one on a failure no longer
# means that nothing happened, and raises OutcomeUnknown (G9).

GROUP_MAX = 10_000
"""Changes in one statement; a larger group is split, because a statement is kept in memory as a whole."""

NO_HOLDER = Holder("", 0.0, str(uuid.UUID(int=0)))
"""The holder of a group that is committed without an engine."""


class GroupWriter:
    """Writes one group."""

    def __init__(self, pool: Pool, time: DatabaseTime, holder: Holder) -> None:
        self.lost: set[str] = set()
        self._pool = pool
        self._time = time
        self._holder = holder
        self._begun = False
        """Whether a part of it is durable."""

    async def write(self, changes: Sequence[Change]) -> None:
        """Make the changes durable that are not lost."""
        try:
            for begin in range(0, len(changes), GROUP_MAX):
                await self._part(changes[begin : begin + GROUP_MAX])
        except OutcomeUnknown:
            raise
        except InterlockError as error:
            if not self._begun:
                raise
            raise OutcomeUnknown(
                f"only a part of a group was written: {error.what}",
                why="The group took several statements, and a later one failed.",
            ) from error

    async def _part(self, changes: Sequence[Change]) -> None:
        holder = self._holder
        parts = parts_of(changes)
        sql, values = group_statement(self._pool.address.schema, parts), values_of(changes, parts, holder)
        try:
            [row] = await self._pool.write(sql, values, reserve=holder.urgent)
        except Blocked:
            await self._halves(changes)
            return
        except ConstraintViolation as error:
            raise InternalError(
                f"a group of changes contradicts the history that is stored: {error.what}",
                why="A version or a delivery key stands in history once; what was decided upon was something else.",
            ) from error
        self._begun = True
        self._time.record(row[0])
        self.lost.update(row[1])

    async def _halves(self, changes: Sequence[Change]) -> None:
        if len(changes) == 1:
            self.lost.add(changes[0].row.id)
            return
        middle = len(changes) // 2
        await self._part(changes[:middle])
        await self._part(changes[middle:])
