"""F4: what a search finds is what a filter in Python finds, in the same order, page by page, on every store."""

import math
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.core.search import MachineSearch, Search, SearchField, search_fields, search_of
from interlock.errors import InvalidPayload, UnavailableError
from interlock.store import lane_search, lane_store, search_pages
from interlock.store.lane_store import SEARCH_SQL, SqliteStore
from interlock.store.postgres import search_indexes
from interlock.store.postgres.store import PostgresStore
from interlock.store.protocol import Old, Store
from interlock.store.records import Row
from interlock.store.search_pages import PageStatement, SearchPlan, page_steps
from tests.conformance.store.places import Place
from tests.conformance.store.samples import MACHINE, begun, moved, run, started


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every kind of field. Defaults are not written, so a store has to know them."""

    customer: str = "nobody"
    cents: int = 0
    ratio: float = 0.5
    price: Decimal = Decimal("1.50")
    paid: bool = True
    day: date = date(2026, 1, 1)
    at: datetime | None = None
    ref: uuid.UUID | None = None
    color: Color = Color.RED
    level: Level | None = None


ALL: dict[str, Any] = {
    "where": [],
    "order": "created_at",
    "states": (),
    "updated_after": None,
    "updated_before": None,
    "limit": 100,
}
zones_east = timezone(timedelta(hours=9))
json = msgspec.json.Encoder().encode
NAMES = tuple(Context.__struct_fields__)
FIELDS: tuple[SearchField, ...] = search_fields(Context, NAMES, MACHINE, "") or ()
DECLARED = MachineSearch(MACHINE, 1, FIELDS)

decimals = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [Decimal(0), Decimal("-0"), Decimal("0E+3"), Decimal("1E+5"), Decimal("100000.00"), Decimal("-1E-7")]
    ),
).filter(lambda each: len(str(each)) < 500 and abs(each.adjusted()) < 9_000)
BEGIN, END = datetime(2, 1, 1), datetime(9998, 1, 1)  # noqa: DTZ001 -- bounds, for times in any timezone.
zones = st.sampled_from([UTC, timezone(timedelta(hours=-5, minutes=-30)), timezone(timedelta(hours=9))])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "customer": st.one_of(texts, st.sampled_from(["ada", "adb", "a'd", 'a"\\', "nobody", "x" * 499])),
    "cents": st.one_of(st.integers(-3, 3), st.integers(-(2**63) + 1, 2**63 - 1)),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "price": decimals,
    "paid": st.booleans(),
    "day": st.dates(),
    "at": st.none() | st.datetimes(BEGIN, END, timezones=zones),
    "ref": st.none() | st.uuids(),
    "color": st.sampled_from(Color),
    "level": st.none() | st.sampled_from(Level),
}
contexts = st.builds(Context, **VALUES)
RANGED = ("customer", "cents", "ratio", "price", "day", "at")


@st.composite
def searches(draw: st.DrawFn, known: Sequence[Context]) -> dict[str, Any]:
    """Conditions, an order and a size of pages; values that occur are more likely."""
    where: list[tuple[str, str, Any]] = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=3)):
        values = VALUES[name] | st.sampled_from([getattr(each, name) for each in known])
        operators: list[str] = ["=", "!=", "in", *(["<", "<=", ">", ">="] if name in RANGED else [])]
        operator: str = draw(st.sampled_from([*operators, *(["prefix"] if name == "customer" else [])]))
        if operator == "in":
            where.append((name, operator, draw(st.lists(values, min_size=1, max_size=3))))
        else:
            ranged = operator not in {"=", "!="}
            where.append((name, operator, draw(values.filter(lambda each: not ranged or each is not None))))  # noqa: B023
    order = draw(st.sampled_from(["created_at", "updated_at", *NAMES]))
    states = draw(st.sampled_from([(), ("new",), ("new", "paid")]))
    times = st.none() | st.integers(900, 1_050).map(
        lambda at_us: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
    )
    return {
        "where": where,
        "order": draw(st.sampled_from(["", "-"])) + order,
        "states": states,
        "updated_after": draw(times),
        "updated_before": draw(times),
        "limit": draw(st.integers(1, 4)),
    }


def plain(value: object) -> Any:  # noqa: ANN401 -- of any field.
    """A value as Python compares it."""
    return value.value if isinstance(value, Enum) else value


def holds(context: Context, name: str, operator: str, value: Any) -> bool:  # noqa: ANN401 -- of any field.
    """The condition, as Python has it."""
    mine, other = plain(getattr(context, name)), [plain(each) for each in value] if operator == "in" else plain(value)
    if operator == "in":
        return mine in other
    if operator in {"=", "!="}:
        return bool((mine == other) == (operator == "="))
    if mine is None:
        return False
    if operator == "prefix":
        return bool(mine.startswith(other))
    return bool({"<": mine < other, "<=": mine <= other, ">": mine > other, ">=": mine >= other}[operator])


def expected(rows: Sequence[tuple[Row, Context]], asked: dict[str, Any]) -> list[str]:
    """The ids that a filter in Python finds, in its order; `rows` are in the order of creation."""
    epoch = datetime.fromtimestamp(0, UTC)
    found: list[tuple[Any, str]] = []
    name = asked["order"].removeprefix("-")
    for number, (row, context) in enumerate(rows):
        at = epoch + timedelta(microseconds=row.updated_us)
        if asked["updated_after"] is not None and not at > asked["updated_after"]:
            continue
        if asked["updated_before"] is not None and not at < asked["updated_before"]:
            continue
        if asked["states"] and row.state not in asked["states"]:
            continue
        if all(holds(context, *condition) for condition in asked["where"]):
            times: dict[str, Any] = {"created_at": 0, "updated_at": row.updated_us}
            key: Any = plain(getattr(context, name)) if name in NAMES else times[name]
            key = str(key) if name == "ref" and key is not None else key
            found.append((((key is not None, 0 if key is None else key), number), row.id))
    return [each for _, each in sorted(found, reverse=asked["order"].startswith("-"))]


def wanted(declared: MachineSearch, cursor: str | None, asked: dict[str, Any]) -> Search:
    """The search of these arguments."""
    return search_of(declared, cursor=cursor, **asked)


async def find(store: Store, declared: MachineSearch, asked: dict[str, Any]) -> list[str]:
    """All ids, page by page."""
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.search(wanted(declared, cursor, asked))
        assert len(page.rows) <= asked["limit"]
        ids += [row.id for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            return ids


async def fill(store: Store, *searches: MachineSearch) -> None:
    """Declare, and wait for the indexes."""
    if await store.declare_search(searches):
        while await store.fill_search():
            pass


@pytest.mark.slow
@pytest.mark.parametrize("looked", [1, 3, 5_000])
def test_a_search_finds_what_a_filter_in_python_finds(
    place: Place, looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tiny bounds too, so that both ways of reading and short pages are met."""
    monkeypatch.setattr(search_pages, "LOOKED_MAX", looked)

    async def scenario(data: st.DataObject) -> None:
        known = data.draw(st.lists(contexts, min_size=1, max_size=10))
        suffix = uuid.uuid4().hex
        declared = DECLARED._replace(machine=f"m{suffix}")
        rows: list[tuple[Row, Context]] = []
        async with place.opened() as store:
            await fill(store, declared)
            for number, context in enumerate(known):
                state, at_us = data.draw(st.sampled_from(["new", "paid", "gone"])), data.draw(st.integers(900, 1_050))
                one = started(
                    f"{suffix}{number}", machine=declared.machine, state=state, at_us=at_us, context=json(context)
                )
                rows.append(((await begun(store, one))[0], context))
            for at, context in data.draw(st.dictionaries(st.integers(0, len(known) - 1), contexts, max_size=3)).items():
                [row] = await begun(store, moved(rows[at][0], context=json(context), at_us=1_060))
                rows[at] = (row, context)
            for _ in range(20):
                asked = data.draw(searches(known))
                assert await find(store, declared, asked) == expected(rows, asked), asked

    @settings(
        max_examples=8,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
            HealthCheck.filter_too_much,
        ],
        database=None,
    )
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        run(lambda: scenario(data))

    check()


def test_fields_of_all_types_are_found_by_equality_and_sorted(place: Place) -> None:
    """The quick part of the test above."""
    some = [
        Context("ada", 5, 0.1, Decimal("10.0"), paid=False, at=datetime(2026, 1, 1, 9, tzinfo=zones_east)),
        Context("bob", -5, 1e22, Decimal("9.99"), level=Level.HIGH, color=Color.BLUE, ref=uuid.UUID(int=5)),
        Context("adam", 2**62, -0.5, Decimal("-1E+2"), at=datetime(2026, 1, 1, 1, tzinfo=UTC), day=date(2025, 12, 31)),
    ]

    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            rows = [(await begun(store, started(f"w{at}", context=json(each))))[0] for at, each in enumerate(some)]
            pairs = list(zip(rows, some, strict=True))
            for name in NAMES:
                for order in (name, f"-{name}"):
                    asked = {**ALL, "order": order, "limit": 2}
                    assert await find(store, DECLARED, asked) == expected(pairs, asked), order
                for each in some:
                    asked = {**ALL, "where": [(name, "=", getattr(each, name))]}
                    assert await find(store, DECLARED, asked) == expected(pairs, asked), name
            assert await find(store, DECLARED, {**ALL, "where": [("customer", "prefix", "ad")]}) == ["w0", "w2"]

    run(scenario)


def test_a_pruned_workflow_is_found_no_more(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            await begun(store, started("a", active=False, context=b"{}"), started("b", active=False, context=b"{}"))
            await begun(store, started("last", state="else", context=b"{}"))
            await store.prune(Old(machine=MACHINE, state="new", before_us=5_000), after=None, limit=1)
            assert await find(store, DECLARED, {**ALL, "order": "-updated_at"}) == ["last", "b"]
            assert await find(store, DECLARED, {**ALL, "where": [("customer", "=", "nobody")]}) == ["b", "last"]

    run(scenario)


def test_a_cursor_of_another_search_is_refused(place: Place) -> None:
    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            await begun(store, *(started(f"w{at}", context=b"{}") for at in range(3)))
            asked = {**ALL, "order": "cents", "limit": 1}
            cursor = (await store.search(wanted(DECLARED, None, asked))).cursor
            for other in ({"order": "-cents"}, {"where": [("cents", ">", 1)]}, {"states": ("new",)}):
                with pytest.raises(InvalidPayload, match="not a cursor of this search"):
                    await store.search(wanted(DECLARED, cursor, {**asked, **other}))
            for text in ("", "x", "WzFd", "é"):
                with pytest.raises(InvalidPayload, match="not a cursor of this search"):
                    await store.search(wanted(DECLARED, text, asked))

    run(scenario)


def test_contexts_of_any_shape_can_be_written_and_count_as_none(place: Place) -> None:
    """An earlier version of the machine may have stored anything under the same name."""
    odd = ['"x"', "[1]", '{"a":1}', "1.5", "true", '"2026-02-30T99:99:99Z"', '"1E99999"', '"Infinity"', "null", '"-"']

    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            for at, each in enumerate(odd):
                whole = "{" + ",".join(f'"{name}":{each}' for name in NAMES) + "}"
                await begun(store, started(f"w{at}", context=whole.encode()))
            assert set(await find(store, DECLARED, {**ALL, "where": [("ref", "!=", uuid.UUID(int=1))]})) == {
                f"w{at}" for at in range(len(odd))
            }
            assert "w1" in await find(store, DECLARED, {**ALL, "where": [("cents", "=", None)]})
            for name in NAMES:
                assert len(await find(store, DECLARED, {**ALL, "order": name})) == len(odd)

    run(scenario)


class NoNumber(msgspec.Struct):
    """JSON has no infinity."""

    wanted: float = math.inf


class NotANumber(msgspec.Struct):
    wanted: Decimal = Decimal("NaN")


class AnotherType(msgspec.Struct):
    wanted: int = True


class Lines(msgspec.Struct):
    """What SQL could take for the end of a statement, and for quotes."""

    wanted: str = "a;\nb '\\ %"


class Nul(msgspec.Struct):
    wanted: str = "a\0b"


@pytest.mark.parametrize("small", [0, search_indexes.SMALL])
@pytest.mark.parametrize("context", [NoNumber, NotANumber, AnotherType, Lines, Nul])
def test_any_default_can_be_searched_by(
    place: Place, context: type[msgspec.Struct], small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that cannot be computed would refuse every write."""
    monkeypatch.setattr(search_indexes, "SMALL", small)
    declared = MachineSearch(MACHINE, 1, search_fields(context, ("wanted",), MACHINE, "") or ())

    async def scenario() -> None:
        async with place.opened() as store:
            await begun(store, started("before", context=b"{}"))
            await fill(store, declared)
            await begun(store, started("after", context=b"{}"))
            assert await find(store, declared, {**ALL, "order": "wanted"}) == ["before", "after"]

    run(scenario)


def test_a_text_with_nul_counts_as_none(place: Place) -> None:
    """A lane found it by what stands before the NUL; PostgreSQL stores no such text."""

    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            try:
                await begun(store, started("nul", context=b'{"customer":"a\\u0000b"}'))
            except InvalidPayload:
                return
            await begun(store, started("escaped", context=b'{"customer":"a\\\\u0000b"}'))
            assert await find(store, DECLARED, {**ALL, "where": [("customer", "prefix", "a")]}) == ["escaped"]
            assert await find(store, DECLARED, {**ALL, "where": [("customer", "=", None)]}) == ["nul"]

    run(scenario)


def test_a_cursor_at_none_is_short(place: Place) -> None:
    """It is sent in addresses, whose length is bounded."""
    nothing = b'{"price":null,"ratio":null,"customer":null,"at":null,"paid":null}'

    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            await begun(store, *(started(f"w{at}", context=nothing) for at in range(2)), started("w2", context=b"{}"))
            for order in ("price", "ratio", "customer", "paid", "-price"):
                asked = {**ALL, "order": order, "limit": 1}
                for cursor in [None, (await store.search(wanted(DECLARED, None, asked))).cursor]:
                    assert len((await store.search(wanted(DECLARED, cursor, asked))).cursor or "") < 100
                assert sorted(await find(store, DECLARED, asked)) == ["w0", "w1", "w2"]

    run(scenario)


# --- Indexes: what is added later, what is dropped, and that no statement reads everything ---------------------------


def test_a_field_is_added_to_what_is_stored_and_refused_until_it_is_complete(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_search, "BATCH", 2)
    monkeypatch.setattr(lane_store, "FIRST_BATCHES", 1)
    monkeypatch.setattr(search_indexes, "SMALL", 0)
    later = MachineSearch(MACHINE, 2, FIELDS[:2])

    async def scenario() -> None:
        async with place.opened() as store:
            rows = await begun(store, *(started(f"w{at}", context=b'{"cents":%d}' % at) for at in range(9)))
            asked = {**ALL, "order": "-cents"}
            if await store.declare_search([later]):
                with pytest.raises(UnavailableError, match=r"cannot be searched by cents yet: .*(of|not there)"):
                    await store.search(wanted(later, None, asked))
                # Writers go on meanwhile: a start, a move before its batch, and one after it.
                await store.fill_search()
                await begun(store, moved(rows[8], context=b'{"cents":-1}'), moved(rows[0], context=b'{"cents":100}'))
                await begun(store, started("new", context=b'{"cents":50}'))
                while await store.fill_search():
                    pass
                assert await find(store, later, asked) == ["w0", "new", *(f"w{at}" for at in range(7, 0, -1)), "w8"]
            assert not await store.declare_search([later])
            assert not await store.fill_search()

    run(scenario)


def test_an_earlier_version_drops_no_index_of_a_later_one_and_a_later_one_drops_what_it_does_not_declare(
    place: Place,
) -> None:
    """A rolling deploy: both versions open the store again and again."""
    first, second = MachineSearch(MACHINE, 1, FIELDS[:1]), MachineSearch(MACHINE, 2, FIELDS[1:2])
    by_customer, by_cents = {**ALL, "order": "customer"}, {**ALL, "order": "cents"}

    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, first)
            await begun(store, started("w", context=b"{}"))
            await fill(store, second)
            assert await find(store, second, by_cents) == ["w"]
            if store.__class__.__name__ != "MemoryStore":
                with pytest.raises(UnavailableError, match="its index is not there"):
                    await find(store, first, by_customer)
            await fill(store, first)
            assert await find(store, first, by_customer) == ["w"]
            assert await find(store, second, by_cents) == ["w"]
            await fill(store, MachineSearch(MACHINE, 3, None))
            assert await indexes(store) == []

    run(scenario)


async def indexes(store: Store) -> list[str]:
    """The names of all indexes of searches that the store has."""
    if isinstance(store, PostgresStore):
        return sorted(await store._indexes.known())
    if isinstance(store, SqliteStore):
        names = await store._all("SELECT name FROM sqlite_schema WHERE name LIKE 'workflow\\_search\\_%' ESCAPE '\\'")
        return [name for (name,) in names]
    return []


SHAPES: list[dict[str, Any]] = [
    {"where": [("customer", "=", "c-5")]},
    {"where": [("customer", "=", "c-5"), ("cents", ">", 10)]},
    {"where": [("customer", "=", "c-5")], "order": "-updated_at"},
    {"where": [("customer", "=", "c-5")], "order": "price"},
    {"where": [("cents", ">", 10)], "order": "-updated_at"},
    {"where": [("cents", ">=", 10), ("cents", "<", 20)], "order": "cents"},
    {"where": [("cents", "in", [1, 5, 7])]},
    {"where": [("cents", "!=", 5)]},
    {"where": [("customer", "prefix", "c-1")], "order": "at"},
    {"where": [("at", "=", None)], "order": "-created_at"},
    {"order": "-updated_at"},
    {"order": "updated_at", "states": ("new",)},
    {"order": "-cents", "states": ("paid", "gone")},
    {"updated_after": datetime(1970, 1, 1, tzinfo=UTC), "order": "customer"},
    {"updated_after": datetime(1970, 1, 1, tzinfo=UTC), "updated_before": datetime(1971, 1, 1, tzinfo=UTC)},
]


@pytest.mark.parametrize("place", ["local", "postgres"], indirect=True)
@pytest.mark.parametrize("looked", [3, 5_000])
def test_no_statement_of_a_search_reads_everything(place: Place, looked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of each, for the first page and the next one, however few or many rows match."""
    monkeypatch.setattr(search_pages, "LOOKED_MAX", looked)

    async def scenario() -> None:
        async with place.opened() as store:
            await fill(store, DECLARED)
            contexts = [Context(f"c-{at % 40}", at % 50, price=Decimal(at)) for at in range(2_000)]
            await begun(store, *(started(f"w{at}", context=json(each)) for at, each in enumerate(contexts)))
            seen = 0
            for shape in SHAPES:
                cursor: str | None = None
                for _ in range(2):
                    search = wanted(DECLARED, cursor, {**ALL, "limit": 2, **shape})
                    seen += await check_plans(store, search)
                    cursor = (await store.search(search)).cursor
            assert seen >= 2 * len(SHAPES)

    run(scenario)


async def check_plans(store: Store, search: Search) -> int:
    """Look at the plan of each statement of a page; return how many there were."""
    if isinstance(store, PostgresStore):
        await store._pool.write(f"ANALYZE {store._schema}.workflows", ())
    plan = SearchPlan(SEARCH_SQL if isinstance(store, SqliteStore) else store._search_sql, search)  # type: ignore[attr-defined]
    steps, seen = page_steps(plan, search.limit), 0
    rows: Sequence[Any] | None = None
    while True:
        try:
            each = next(steps) if rows is None else steps.send(rows)
        except StopIteration:
            return seen
        seen += 1
        if isinstance(store, SqliteStore):
            refuse_scan_of_lane(await store._all(f"EXPLAIN QUERY PLAN {each.sql}", *each.values), each)
            rows = await store._all(each.sql, *each.values)
        else:
            assert isinstance(store, PostgresStore)
            lines = [row[0] for row in await store._pool.read(f"EXPLAIN {each.sql}", *each.values)]
            refuse_scan_of_postgres(lines, each)
            rows = await store._pool.read(each.sql, *each.values)


def refuse_scan_of_lane(lines: Sequence[tuple[Any, ...]], statement: PageStatement) -> None:
    """Every table is searched, or read along an index from one end, for a limited number of rows."""
    for *_, detail in lines:
        limited = "LIMIT" in statement.sql and ("SCAN s" in detail or "SCAN q" in detail or "SCAN few" in detail)
        one_row = "SCAN CONSTANT" in detail or "SCAN (subquery" in detail
        allowed = limited or one_row or "SCAN found" in detail
        assert "SCAN" not in detail or allowed, (detail, statement.sql)
        assert "TEMP B-TREE" not in detail or "FROM found" in statement.sql, (detail, statement.sql)


def refuse_scan_of_postgres(lines: Sequence[str], statement: PageStatement) -> None:
    """The workflows are read by one of the indexes for it."""
    scans = [line for line in lines if "Scan" in line and not any(each in line for each in ABOVE)]
    assert scans, lines
    for line in scans:
        assert "Index Scan" in line or "Index Only Scan" in line, (lines, statement.sql)
        assert "workflows_search_" in line or "workflows_by_" in line, (line, statement.sql)


ABOVE = ("Subquery Scan", "CTE Scan", "Bitmap Heap Scan")
"""Scans of what other scans have found; below the last is one of an index."""
