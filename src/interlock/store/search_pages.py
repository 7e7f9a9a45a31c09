"""How a store answers a search: one statement for a page, along one of the indexes that it keeps (F4).

A store keeps an index per searchable field, and one by the time of the last move. A page is read in one of two ways.
Either the index of the order is followed from the cursor, and the rows that do not fit are left out; or, where one of
the conditions matches few workflows, those are read by its index and sorted. Counting at most `LOOKED_MAX` entries of
each index decides it, so that the answer needs no statistics. A page reads at most `LOOKED_MAX` rows: one that has met
too few matches by then is short, and its cursor goes on from there.

Lanes and PostgreSQL differ in how they write a key, and in where an index is; the rest is the same here.
"""

# ruff: noqa: S608 -- statements are put together of the parts that a store writes; values are parameters.

import base64
import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from interlock.core.search import CREATED, UPDATED, Condition, Plain, Search, SearchField, plain_of
from interlock.errors import InvalidPayload, UnavailableError

LOOKED_MAX = 2_000
"""G6: rows that one page looks at."""

RAN_UP = 10
"""A condition may match this many times more rows than were counted, before the page is read."""

_INDEXED = ("=", "<", "<=", ">", ">=", "in", "prefix")
_RANGES = ("=", "<", "<=", ">", ">=", "prefix")

STATE = "state"


class Values:
    """The parameters of a statement."""

    def __init__(self, mark: str) -> None:
        self.all: list[object] = []
        self._mark = mark

    def add(self, value: object) -> str:
        """Add a value; return how the statement names it."""
        self.all.append(value)
        return f"{self._mark}{len(self.all)}"


class IndexRows(NamedTuple):
    """The rows of one index, with the workflow as `w`."""

    rows: str
    """FROM and what follows, up to a condition that is always there."""
    key: str | None
    """The indexed value; None where only numbers count."""
    number: str
    sort: str
    """The order of the index."""


class SearchSql(Protocol):
    """How one store writes keys and finds indexes."""

    name: str
    mark: str
    """Before the number of a parameter."""

    def columns(self, table: str) -> str:
        """Return the columns of a row, for an alias of its table."""
        ...

    def key(self, field: SearchField, table: str) -> str:
        """Return the key of a field as an expression over the stored context."""
        ...

    def key_of(self, field: SearchField, plain: Plain, values: Values) -> str:
        """Return the key of a value, as a parameter."""
        ...

    def instant(self, time_us: int, values: Values) -> str:
        """Return a time as a parameter."""
        ...

    def cursor_key(self, order: SearchField | str, key: str) -> str:
        """Return a key as the cursor has it."""
        ...

    def restored(self, order: SearchField | str, last_key: object, values: Values) -> str:
        """Return the key that a cursor has, as a parameter."""
        ...

    def source(self, search: Search, index: SearchField | str, values: Values) -> IndexRows:
        """Return the rows of an index: of a field, `updated_at`, `created_at` or `state`."""
        ...


class PageStatement(NamedTuple):
    """A statement with its values."""

    sql: str
    values: tuple[object, ...]


def next_text(prefix: str) -> str | None:
    """Return the first text after all that begin with the prefix; None after the last one."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place]) + 1
        if code <= 0x10FFFF:  # noqa: PLR2004 -- the last character.
            return prefix[:place] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)  # noqa: PLR2004 -- surrogates.
    return None


class SearchPlan:
    """The statements of one page. `count` asks how many rows the conditions match, at most `LOOKED_MAX` and one."""

    def __init__(self, sql: SearchSql, search: Search) -> None:
        self._sql = sql
        self._search = search
        self._after = parse_place(sql.name, search)
        self._first = _order_index(search)
        bounded = search.after_us is not None or search.before_us is not None
        self.indexes = _used(search, bounded=bounded)
        """The fields and times that the search needs an index of."""
        others = [each for each in self.indexes if each != self._first]
        self._others = [each for each in others if each == UPDATED or _range(search, each, _INDEXED)]
        if search.states and self._first != STATE:
            self._others.append(STATE)
        if self._followed():
            self._others = []

    def counts(self) -> list[tuple[SearchField | str, PageStatement]]:
        """Return the statements that count what each further index matches."""
        return [(each, self._count(each)) for each in self._others]

    def _count(self, index: SearchField | str) -> PageStatement:
        values = Values(self._sql.mark)
        source = self._sql.source(self._search, index, values)
        found = " AND ".join([source.rows, *self._of_index(index, source, values, _INDEXED)])
        # In the order of the index, so that it is followed, and no further than the limit.
        few = f"SELECT 1 {found} ORDER BY {source.sort} LIMIT {LOOKED_MAX + 1}"
        return PageStatement(f"SELECT count(*) FROM ({few}) AS few", tuple(values.all))

    def page(self, counts: Sequence[tuple[SearchField | str, int]]) -> PageStatement:
        """Return the statement of the page. Its last two columns are the key and the number of each row."""
        few = [(count, place) for place, (_, count) in enumerate(counts) if count <= LOOKED_MAX]
        return self._sorted(counts[min(few)[1]][0]) if few else self._along()

    def goes_on(self, counts: Sequence[tuple[SearchField | str, int]]) -> PageStatement | None:
        """Return the statement that finds where a short page has ended; None if it has read everything."""
        if self._followed() or any(count <= LOOKED_MAX for _, count in counts):
            return None
        values = Values(self._sql.mark)
        source, inner = self._inner(values)
        key = "NULL" if source.key is None else self._sql.cursor_key(self._search.order, source.key)
        sql = f"SELECT {key}, {source.number} {inner} LIMIT 1 OFFSET {LOOKED_MAX - 1}"
        return PageStatement(sql, tuple(values.all))

    def cursor(self, key: object, number: int) -> str:
        """Return the cursor of a page that ends with this key and number."""
        return place_cursor(self._sql.name, self._search, key, number)

    def _followed(self) -> bool:
        """Return whether the index of the order alone answers the search."""
        values = Values(self._sql.mark)
        return not self._residual(self._first, "q", values, _RANGES)

    def _inner(self, values: Values) -> tuple[IndexRows, str]:
        """Return the rows along the index of the order, from the cursor on."""
        source = self._sql.source(self._search, self._first, values)
        conditions = [source.rows, *self._of_index(self._first, source, values, _RANGES)]
        keyed = source.key if self._search.order != CREATED else None
        conditions += self._later(keyed, source.number, values)
        found = " AND ".join(conditions)
        return source._replace(key=keyed), f"{found} ORDER BY {self._sort(keyed, source.number)}"

    def _along(self) -> PageStatement:
        values, search = Values(self._sql.mark), self._search
        source, inner = self._inner(values)
        residual = self._residual(self._first, "q", values, _RANGES)
        looked = LOOKED_MAX if residual else search.limit + 1
        key = "NULL" if source.key is None else self._sql.cursor_key(search.order, "q.search_key")
        inside = "w.*" if source.key is None else f"w.*, {source.key} AS search_key"
        where = f" WHERE {' AND '.join(residual)}" if residual else ""
        # A limit inside keeps the order, and the rows come one by one: the outer limit ends the reading early.
        sql = (
            f"SELECT {self._sql.columns('q')}, {key}, q.number "
            f"FROM (SELECT {inside} {inner} LIMIT {looked}) AS q{where} LIMIT {search.limit + 1}"
        )
        return PageStatement(sql, tuple(values.all))

    def _sorted(self, index: SearchField | str) -> PageStatement:
        values, search, sql = Values(self._sql.mark), self._search, self._sql
        source = sql.source(search, index, values)
        found = " AND ".join([source.rows, *self._of_index(index, source, values, _INDEXED)])
        key = self._order_key("q")
        conditions = [*self._residual(index, "q", values, _INDEXED), *self._later(key, "q.number", values)]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        last_key = "NULL" if key is None else sql.cursor_key(search.order, key)
        text = (
            f"WITH found AS MATERIALIZED (SELECT w.* {found} ORDER BY {source.sort} LIMIT {RAN_UP * LOOKED_MAX}) "
            f"SELECT {sql.columns('q')}, {last_key}, q.number FROM found AS q{where} "
            f"ORDER BY {self._sort(key, 'q.number')} LIMIT {search.limit + 1}"
        )
        return PageStatement(text, tuple(values.all))

    def _order_key(self, table: str) -> str | None:
        order = self._search.order
        if isinstance(order, SearchField):
            return self._sql.key(order, table)
        return f"{table}.updated_at" if order == UPDATED else None

    def _sort(self, key: str | None, number: str) -> str:
        way = " DESC" if self._search.descending else ""
        return f"{number}{way}" if key is None else f"{key}{way}, {number}{way}"

    def _later(self, key: str | None, number: str, values: Values) -> list[str]:
        """Return the condition that a row comes after the cursor."""
        if self._after is None:
            return []
        sign = "<" if self._search.descending else ">"
        last_key, last = self._after
        if key is None:
            return [f"{number} {sign} {values.add(last)}"]
        known = self._sql.restored(self._search.order, last_key, values)
        return [f"({key}, {number}) {sign} ({known}, {values.add(last)})"]

    def _of_index(
        self, index: SearchField | str, source: IndexRows, values: Values, operators: Sequence[str]
    ) -> list[str]:
        """Return the conditions that an index answers."""
        if isinstance(index, SearchField):
            assert source.key is not None
            return [self._compared(each, source.key, values) for each in _range(self._search, index, operators)]
        return self._between(source.key, values) if index == UPDATED and source.key is not None else []

    def _between(self, key: str, values: Values) -> list[str]:
        search = self._search
        after = [] if search.after_us is None else [f"{key} > {self._sql.instant(search.after_us, values)}"]
        before = [] if search.before_us is None else [f"{key} < {self._sql.instant(search.before_us, values)}"]
        return [*after, *before]

    def _residual(self, index: SearchField | str, table: str, values: Values, operators: Sequence[str]) -> list[str]:
        """Return the conditions that an index does not answer, over the row."""
        answered = _range(self._search, index, operators) if isinstance(index, SearchField) else []
        found = [
            self._compared(each, self._sql.key(each.field, table), values)
            for each in self._search.conditions
            if each not in answered
        ]
        if index != UPDATED:
            found += self._between(f"{table}.updated_at", values)
        if self._search.states and index != STATE:
            found.append(f"{table}.state IN ({', '.join(values.add(each) for each in self._search.states)})")
        return found

    def _compared(self, condition: Condition, key: str, values: Values) -> str:
        field, operator = condition.field, condition.operator
        if operator == "in":
            several = ", ".join(self._sql.key_of(field, each, values) for each in condition.values)
            return f"{key} IN ({several})"
        [plain] = condition.values
        if operator == "prefix":
            end = next_text(str(plain))
            begin = f"{key} >= {self._sql.key_of(field, plain, values)}"
            return begin if end is None else f"{begin} AND {key} < {self._sql.key_of(field, end, values)}"
        compared = f"{key} {'<>' if operator == '!=' else operator} {self._sql.key_of(field, plain, values)}"
        # None comes before all values, and has no order.
        return (
            f"{compared} AND {key} > {self._sql.key_of(field, None, values)}" if operator in {"<", "<="} else compared
        )


def _order_index(search: Search) -> SearchField | str:
    """Return the index that has the order of the search."""
    if search.order != CREATED:
        return search.order
    # The entries of one value are in the order of creation.
    return next((each.field for each in search.conditions if each.operator == "="), CREATED)


def _used(search: Search, *, bounded: bool) -> list[SearchField | str]:
    used: list[SearchField | str] = [each.field for each in search.conditions]
    if bounded or search.order == UPDATED:
        used.append(UPDATED)
    if isinstance(search.order, SearchField):
        used.append(search.order)
    return list(dict.fromkeys(used))


def _range(search: Search, index: SearchField | str, operators: Sequence[str]) -> list[Condition]:
    found = [each for each in search.conditions if each.field == index and each.operator in operators]
    if search.order == CREATED and operators is _RANGES:
        # Only the entries of one value are in the order of creation.
        return [each for each in found if each.operator == "="][:1]
    return found


def _shape(store: str, search: Search) -> str:
    """Return a digest of everything but the place and the length of a page."""
    fields = [(each.field.name, each.operator, list(map(str, each.values))) for each in search.conditions]
    whole = [store, search.machine, search.order_text, search.states, search.after_us, search.before_us, fields]
    return hashlib.blake2b(msgspec.json.encode(whole), digest_size=6).hexdigest()


def place_cursor(store: str, search: Search, key: object, number: int) -> str:
    """Return the cursor of a page that ends with this key and number."""
    place = msgspec.json.encode([_shape(store, search), key, number])
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


def parse_place(store: str, search: Search) -> tuple[object, int] | None:
    """Return key and number of the last row of the page before. Raises InvalidPayload for another search's cursor."""
    text = search.cursor
    if text is None:
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        shape, key, number = msgspec.json.decode(data, type=tuple[str, str | int | float | bool | None, int])
    except (ValueError, msgspec.DecodeError):
        shape, key, number = "", None, 0
    if shape != _shape(store, search):
        raise InvalidPayload(
            f"{text[:100]!r} is not a cursor of this search.",
            why="A cursor says where the page before has ended, in the order of that search.",
            fix="Pass the cursor of the page before, with the same conditions and the same order.",
        )
    return key, number


Rows = Sequence[Any]
"""Rows of any driver; their values are read by place."""

PageSteps = Generator[PageStatement, Rows, tuple[Rows, str | None]]
"""Yields statements, gets their rows, and returns the rows of a page with its cursor."""


def read_page(steps: PageSteps, run: Callable[[PageStatement], Rows]) -> tuple[Rows, str | None]:
    """Return the rows of a page and its cursor, by a function that runs a statement."""
    rows: Rows | None = None
    while True:
        try:
            statement = next(steps) if rows is None else steps.send(rows)
        except StopIteration as done:
            return cast("tuple[Rows, str | None]", done.value)
        rows = run(statement)


def page_steps(plan: SearchPlan, limit: int) -> PageSteps:
    """Read a page of up to `limit` rows, of which the last two columns are left to the cursor."""
    counts: list[tuple[SearchField | str, int]] = []
    for index, statement in plan.counts():
        [[count]] = yield statement
        counts.append((index, count))
    rows = yield plan.page(counts)
    if len(rows) > limit:
        return rows[:limit], plan.cursor(*rows[limit - 1][-2:])
    end = plan.goes_on(counts)
    if end is None:
        return rows, None
    for key, number in (yield end):
        return rows, plan.cursor(key, number)
    return rows, None


class NotIndexed(UnavailableError):
    """The index of a field is not complete."""


def not_ready(machine: str, names: Sequence[str], progress: str) -> NotIndexed:
    """Return the error for fields whose index is not complete."""
    return NotIndexed(
        f"machine {machine!r} cannot be searched by {', '.join(names)} yet: {progress}.",
        why="The field became searchable with this release, and the store still reads the workflows that it has.",
        fix="Repeat the search a little later. Nothing else waits for it.",
    )


def matches(search: Search, state: str, updated_us: int, context: Mapping[str, object]) -> bool:
    """Return whether a workflow of the machine is one of those that are searched."""
    return (
        (not search.states or state in search.states)
        and (search.after_us is None or updated_us > search.after_us)
        and (search.before_us is None or updated_us < search.before_us)
        and all(each.holds(plain_of(each.field, context)) for each in search.conditions)
    )
