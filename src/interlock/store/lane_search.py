"""The indexes of a search on a lane: a table of sorted keys per field, which triggers keep (F4).

SQLite builds an index in one piece, and the lane's writer would wait for it. So each searchable field has a table of
its own with the key and the number of each workflow. Triggers keep it from the moment it is created: whatever writes a
workflow writes the key with it, also an earlier release and a mover. The workflows that were there before are added in
batches. A key is written only when it changes; a move that leaves the field alone writes nothing more.

Keys are made of the stored JSON by functions that every SQLite has, so a lane needs none of ours to be written. They
sort as the values: None is before all others, a Decimal becomes a text with its exponent first.

Sections: keys, tables, batches.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: S608 -- names of tables are made of digests here, and texts are quoted.

import hashlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, cast

import apsw

from interlock.core.search import CREATED, DECIMAL_MAX, TEXT_MAX, UPDATED, MachineSearch, Plain, Search, SearchField
from interlock.store.search_pages import STATE, IndexRows, Values, not_ready

Run = Callable[..., Any]

# --- Keys ------------------------------------------------------------------------------------------------------------

NONE = "-9e999"
"""The key of None: minus infinity, which SQLite sorts before all numbers and texts. JSON has no infinity."""

_EXPONENT_ZERO = 50_000
_DIGITS, _OPPOSITE = "0123456789", "jihgfedcba"


def quoted(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def key_sql(field: SearchField, context: str) -> str:
    """Return SQL for the key of a field; never NULL."""
    path = quoted(f'$."{field.stored}"')
    raw = f"{context} ->> {path}"
    default = _literal(field)
    if field.basis == "number":
        cases = f"WHEN 'integer' THEN {raw} WHEN 'real' THEN {raw}"
    elif field.basis == "truth":
        cases = "WHEN 'true' THEN 1 WHEN 'false' THEN 0"
    elif field.basis == "decimal":
        cases = " ".join(
            f"WHEN '{kind}' THEN {_decimal_sql(text)}"
            for kind, text in (
                ("text", raw),
                ("integer", f"upper({context} -> {path})"),
                ("real", f"upper({context} -> {path})"),
            )
        )
    elif field.basis == "time":
        cases = f"WHEN 'text' THEN {_time_sql(raw)}"
    else:
        # A NUL ends a text for SQLite; in JSON it is escaped, and a backslash is doubled.
        has_nul = rf"instr(replace({context} -> {path}, '\\', ''), '\u0000')"
        cases = f"WHEN 'text' THEN iif({has_nul}, {NONE}, substr({raw}, 1, {TEXT_MAX}))"
    kind = f"coalesce(json_type({context}, {path}), 'missing')"
    return f"(CASE {kind} WHEN 'missing' THEN {default} {cases} ELSE {NONE} END)"


def _literal(field: SearchField) -> str:
    """Return the key of the default."""
    plain = field.default
    if plain is None:
        return NONE
    if field.basis == "decimal":
        return _decimal_sql(quoted(str(plain)))
    if field.basis == "time":
        return _time_sql(quoted(str(plain)))
    if isinstance(plain, bool):
        return str(int(plain))
    return quoted(plain[:TEXT_MAX]) if isinstance(plain, str) else repr(plain)


def _time_sql(text: str) -> str:
    """Return SQL for a time as the codec writes it: the microseconds since the epoch."""
    shape = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
    zone = (
        "CASE WHEN substr(t, -1) = 'Z' THEN 'Z' WHEN length(t) > 19 AND substr(t, -6, 1) IN ('+', '-') "
        "THEN substr(t, -6) ELSE '' END"
    )
    fraction = "CASE substr(t, 20, 1) WHEN '.' THEN CAST(substr(t, 21, 6) AS INTEGER) ELSE 0 END"
    seconds = f"strftime('%s', substr(t, 1, 19) || {zone})"
    return (
        f"(SELECT CASE WHEN substr(t, 1, 19) GLOB '{shape}' AND {seconds} IS NOT NULL "
        f"THEN CAST({seconds} AS INTEGER) * 1000000 + {fraction} ELSE {NONE} END FROM (SELECT {text} AS t))"
    )


def decimal_key(value: Decimal) -> str:
    """Return a text that sorts as the value: its sign, its exponent and its digits."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    significant = text.strip("0")
    if not significant:
        return "1"
    power = cast("int", exponent) + len(text.lstrip("0"))
    if not sign:
        return f"2{_EXPONENT_ZERO + power:05}{significant}"
    return f"0{_EXPONENT_ZERO - power:05}{significant.translate(str.maketrans(_DIGITS, _OPPOSITE))}~"


def _decimal_sql(text: str) -> str:
    """Return SQL for `decimal_key` of a text. Each level names a part of the one inside."""
    opposite = "sig"
    for digit, letter in zip(_DIGITS, _OPPOSITE, strict=True):
        opposite = f"replace({opposite}, '{digit}', '{letter}')"
    mantissa = "CASE instr(t, 'E') WHEN 0 THEN t ELSE substr(t, 1, instr(t, 'E') - 1) END"
    power = "CASE instr(t, 'E') WHEN 0 THEN 0 ELSE CAST(substr(t, instr(t, 'E') + 1) AS INTEGER) END"
    return (
        f"(SELECT CASE WHEN NOT good THEN {NONE} WHEN sig = '' THEN '1' "
        f"WHEN below THEN '0' || printf('%05d', {_EXPONENT_ZERO} - e) || {opposite} || '~' "
        f"ELSE '2' || printf('%05d', {_EXPONENT_ZERO} + e) || sig END "
        "FROM (SELECT good, below, e + whole - length(digits) + length(ltrim(digits, '0')) AS e, "
        "rtrim(ltrim(digits, '0'), '0') AS sig "
        "FROM (SELECT good AND abs(e) <= 9999 AS good, substr(m, 1, 1) = '-' AS below, e, "
        "CASE instr(a, '.') WHEN 0 THEN length(a) ELSE instr(a, '.') - 1 END AS whole, replace(a, '.', '') AS digits "
        "FROM (SELECT good, m, e, ltrim(m, '+-') AS a "
        f"FROM (SELECT length(t) <= {DECIMAL_MAX} AND t NOT GLOB '*[^0-9.E+-]*' AS good, "
        f"{mantissa} AS m, {power} AS e FROM (SELECT {text} AS t))))))"
    )


class LaneSearchSql:
    """Keys and indexes of a lane."""

    name = "lane"
    mark = "?"

    def __init__(self, row: str) -> None:
        self._row = row.split(", ")

    def columns(self, table: str) -> str:
        """Return the columns of a row, for an alias of its table."""
        return ", ".join(f"{table}.{name}" for name in self._row)

    def key(self, field: SearchField, table: str) -> str:
        """Return the key of a field as an expression over the stored context."""
        return key_sql(field, f"{table}.context")

    def key_of(self, field: SearchField, plain: Plain, values: Values) -> str:
        """Return the key of a value, as a parameter."""
        del field
        if plain is None:
            return NONE
        if isinstance(plain, Decimal):
            return values.add(decimal_key(plain))
        if isinstance(plain, float):
            # The same function reads it that read the stored JSON.
            return f"({values.add(repr(plain))} ->> '$')"
        return values.add(plain)

    def instant(self, time_us: int, values: Values) -> str:
        """Return a time as a parameter."""
        return values.add(time_us)

    def cursor_key(self, order: SearchField | str, key: str) -> str:
        """Return a key as the cursor has it; NULL for None."""
        return key if isinstance(order, str) else f"nullif({key}, {NONE})"

    def restored(self, order: SearchField | str, last_key: object, values: Values) -> str:
        """Return the key that a cursor has, as a parameter."""
        del order
        return NONE if last_key is None else values.add(last_key)

    def source(self, search: Search, index: SearchField | str, values: Values) -> IndexRows:
        """Return the rows of an index."""
        if index == CREATED:
            machine = values.add(search.machine)
            rows = f"FROM workflows AS w INDEXED BY workflows_by_type WHERE w.workflow_type = {machine}"
            return IndexRows(rows, None, "w.number", "w.number")
        if index == STATE:
            machine = values.add(search.machine)
            states = ", ".join(values.add(each) for each in search.states)
            rows = "FROM workflows AS w INDEXED BY workflows_by_state "
            rows += f"WHERE w.workflow_type = {machine} AND w.state IN ({states})"
            return IndexRows(rows, None, "w.number", "w.state, w.entered_at")
        table = table_of(search.machine, index)
        rows = f"FROM {table} AS s CROSS JOIN workflows AS w ON w.number = s.number WHERE true"
        return IndexRows(rows, "s.key", "s.number", "s.key, s.number")


# --- Tables ----------------------------------------------------------------------------------------------------------
# A name has a digest of the key's definition, so a field with another type or default gets another table. A table is
# dropped by an engine that does not declare it any more, unless a later version of the machine has declared it: while
# two versions run, the earlier one does not take away what the later one searches by.

BATCH = 500
"""Workflows that one transaction adds to an index."""

REGISTRY = """
CREATE TABLE IF NOT EXISTS workflow_search (
    name TEXT PRIMARY KEY, machine TEXT NOT NULL, field TEXT NOT NULL, version INTEGER NOT NULL,
    filled INTEGER NOT NULL, last INTEGER NOT NULL
) WITHOUT ROWID"""
HAS_REGISTRY = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'workflow_search'"
REGISTERED = "SELECT name, machine, field, version, filled, last FROM workflow_search"
REGISTER = "INSERT INTO workflow_search SELECT ?, ?, ?, ?, 0, coalesce(max(number), 0) FROM workflows"


class Registered(NamedTuple):
    """An index as the lane has it."""

    name: str
    machine: str
    field: str
    version: int
    filled: int
    """The number of the last workflow that was added."""
    last: int
    """The number of the last workflow that was there before the index."""

    @property
    def complete(self) -> bool:
        """Whether all workflows are in it."""
        return self.filled >= self.last


def _key(index: SearchField | str, row: str) -> str:
    return f"{row}.updated_at" if isinstance(index, str) else key_sql(index, f"{row}.context")


def table_of(machine: str, index: SearchField | str) -> str:
    """Return the name of an index's table."""
    name = index if isinstance(index, str) else index.name
    whole = f"{machine}\0{name}\0{_key(index, 'w')}"
    return f"workflow_search_{hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()}"


def indexes_of(search: MachineSearch) -> dict[str, SearchField | str]:
    """Return the indexes of a machine by their names."""
    several: list[SearchField | str] = [] if search.fields is None else [UPDATED, *search.fields]
    return {table_of(search.machine, each): each for each in several}


def registered(run: Run) -> list[Registered]:
    """Return the indexes that the lane has."""
    if run(HAS_REGISTRY).fetchone() is None:
        return []
    return [Registered(*values) for values in run(REGISTERED)]


def is_declared(run: Run, searches: Sequence[MachineSearch]) -> bool:
    """Return whether the lane has what these machines declare, and nothing of theirs besides."""
    known = {each.name: each for each in registered(run)}
    for search in searches:
        wanted = indexes_of(search)
        if any(name not in known or known[name].version < search.version for name in wanted):
            return False
        if any(_is_dropped(each, search, wanted) for each in known.values()):
            return False
    return True


def _is_dropped(known: Registered, search: MachineSearch, wanted: dict[str, SearchField | str]) -> bool:
    return known.machine == search.machine and known.name not in wanted and known.version <= search.version


def declare(connection: apsw.Connection, searches: Sequence[MachineSearch]) -> None:
    """Create the tables and triggers that are missing, and drop those that no longer count. Takes no long."""
    run = connection.cursor().execute
    run(REGISTRY)
    known = {each.name: each for each in registered(run)}
    for search in searches:
        wanted = indexes_of(search)
        for name, index in wanted.items():
            if name not in known:
                _create(run, search, name, index)
            run("UPDATE workflow_search SET version = max(version, ?) WHERE name = ?", (search.version, name))
        for each in known.values():
            if _is_dropped(each, search, wanted):
                for event in _EVENTS:
                    run(f"DROP TRIGGER IF EXISTS {each.name}_{event}")
                run(f"DROP TABLE IF EXISTS {each.name}")
                run("DELETE FROM workflow_search WHERE name = ?", (each.name,))


_EVENTS = ("started", "moved", "pruned")


def _create(run: Run, search: MachineSearch, name: str, index: SearchField | str) -> None:
    new, old, machine = _key(index, "NEW"), _key(index, "OLD"), quoted(search.machine)
    column = UPDATED if isinstance(index, str) else "context"
    add = f"INSERT OR IGNORE INTO {name} VALUES ({new}, NEW.number)"
    remove = f"DELETE FROM {name} WHERE key = {old} AND number = OLD.number"
    changed = f"NEW.{column} IS NOT OLD.{column}"
    if not isinstance(index, str):
        changed += f" AND {new} IS NOT {old}"
    run(f"CREATE TABLE {name} (key, number INTEGER, PRIMARY KEY (key, number)) WITHOUT ROWID")
    run(f"CREATE TRIGGER {name}_started AFTER INSERT ON workflows WHEN NEW.workflow_type = {machine} BEGIN {add}; END")
    run(
        f"CREATE TRIGGER {name}_moved AFTER UPDATE OF {column} ON workflows "
        f"WHEN NEW.workflow_type = {machine} AND {changed} BEGIN {remove}; {add}; END"
    )
    run(
        f"CREATE TRIGGER {name}_pruned AFTER DELETE ON workflows WHEN OLD.workflow_type = {machine} BEGIN {remove}; END"
    )
    run(REGISTER, (name, search.machine, index if isinstance(index, str) else index.name, search.version))


# --- Batches ---------------------------------------------------------------------------------------------------------
# A workflow that moves before its turn is added by a trigger, and its batch finds it there.

_NEXT = """
SELECT max(number), count(*) FROM (
    SELECT number FROM workflows INDEXED BY workflows_by_type
    WHERE workflow_type = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?)"""


def is_complete(run: Run, searches: Sequence[MachineSearch]) -> bool:
    """Return whether the indexes of these machines have all workflows."""
    wanted = {name for search in searches for name in indexes_of(search)}
    return all(each.complete for each in registered(run) if each.name in wanted)


def fill(connection: apsw.Connection, searches: Sequence[MachineSearch]) -> bool:
    """Add one batch to an index that is not complete; return False when all are."""
    connection.preupdate_hook(None)  # The signal for hot rows is about the tables of users.
    run = connection.cursor().execute
    wanted = {name: index for search in searches for name, index in indexes_of(search).items()}
    waiting = [each for each in registered(run) if each.name in wanted and not each.complete]
    if not waiting:
        return False
    one = waiting[0]
    found: list[tuple[int | None, int]] = run(_NEXT, (one.machine, one.filled, one.last, BATCH)).fetchall()  # type: ignore[assignment]
    [(last, count)] = found
    if last is not None:
        run(
            f"INSERT OR IGNORE INTO {one.name} SELECT {_key(wanted[one.name], 'w')}, w.number "
            "FROM workflows AS w INDEXED BY workflows_by_type "
            "WHERE w.workflow_type = ? AND w.number > ? AND w.number <= ?",
            (one.machine, one.filled, last),
        )
    filled = one.last if last is None or count < BATCH else last
    run("UPDATE workflow_search SET filled = ? WHERE name = ?", (filled, one.name))
    return filled < one.last or len(waiting) > 1


def refuse_incomplete(run: Run, machine: str, indexes: Sequence[SearchField | str]) -> None:
    """Raise UnavailableError unless the indexes are there and complete."""
    known = {each.name: each for each in registered(run)}
    for index in indexes:
        found = known.get(table_of(machine, index))
        if found is None or not found.complete:
            name = index if isinstance(index, str) else index.name
            progress = "its index is not there" if found is None else _progress(found)
            raise not_ready(machine, [name], progress)


def _progress(found: Registered) -> str:
    return f"{found.filled:,} of {found.last:,} workflows were read"
