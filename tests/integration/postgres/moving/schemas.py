"""Any database of the dialect: columns of every type, keys, constraints, defaults, indexes, references, rows."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import apsw
from hypothesis import strategies as st

from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.rows import StoredRow
from interlock.sql.functions.decimals import fit
from interlock.sql.parse import quoted_name
from interlock.sql.stored_values import (
    TIME_MAX,
    TIME_MIN,
    StoredValue,
    array_text,
    json_text,
    microseconds,
    numeric_text,
)
from interlock.sql.types import PLAIN_TYPES, UNKNOWN, Type
from tests.unit.relocate.lanes import defined

EVERY = """CREATE TABLE every (
  id bigint PRIMARY KEY, small smallint, whole integer, exact numeric, money numeric(12,2), rough double precision,
  words text, short varchar(8), flag boolean, raw bytea, at timestamptz, code uuid, doc jsonb,
  ids bigint[], notes text[], flags boolean[], codes uuid[], prices numeric[], times timestamptz[]
)"""
DAY_US = 86_400_000_000
LATER = frozenset({"date", "time", "timestamp", "interval", "json", "varchar", "bpchar", "jsonb"})
"""Types whose journeys are not drawn yet, as such or as elements; varchar, bpchar and jsonb are drawn as columns."""
NAMES = ("item", 'Weird "name"', "select", "größe", "a b", "x'y", "order", "col_1")
TYPES = [
    *(kind for kind in PLAIN_TYPES.values() if kind is not UNKNOWN and kind.name.removesuffix("[]") not in LATER),
    PLAIN_TYPES["varchar"],
    PLAIN_TYPES["jsonb"],
    Type("varchar", length=5),
    Type("bpchar", length=5),
    Type("numeric", precision=12, scale=3),
    Type("numeric", precision=20, scale=0),
]
KEYS = [kind for kind in TYPES if kind.name not in {"json", "jsonb"} and not kind.is_array]
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "\\N", "\\.", "a\tb\nc\rd\\e", "NULL", "{}", '"', "é́🐘", "'", "\x01\x7f", "\u2028"]
)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30).filter(
    lambda number: number.adjusted() > -900
) | st.sampled_from([Decimal(0), Decimal("0.000"), Decimal("1.50"), Decimal(-1), Decimal("9" * 900), Decimal("1e-900")])
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
STORED: dict[str, st.SearchStrategy[StoredValue]] = {
    "int2": st.integers(-(2**15), 2**15 - 1) | st.sampled_from([-(2**15), 2**15 - 1]),
    "int4": st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), 2**31 - 1]),
    "int8": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1]),
    "numeric": DECIMALS.map(numeric_text),
    "float8": st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)
    | st.sampled_from([5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 0.1, 1e15, 1e16]),
    "text": TEXTS,
    "varchar": TEXTS,
    "bool": st.sampled_from([0, 1]),
    "bytea": st.binary(max_size=12),
    "timestamptz": st.integers(TIME_MIN, TIME_MAX)
    | st.sampled_from([TIME_MIN, TIME_MAX, 0, -1, microseconds(datetime(2000, 1, 1, tzinfo=UTC))]),
    "timestamp": st.integers(TIME_MIN, TIME_MAX) | st.sampled_from([TIME_MIN, TIME_MAX, 0, -1]),
    "date": st.integers(TIME_MIN // DAY_US, TIME_MAX // DAY_US),
    "time": st.integers(0, DAY_US - 1),
    "interval": st.tuples(
        st.integers(-120_000, 120_000), st.integers(-(10**6), 10**6), st.integers(-(10**15), 10**15)
    ).map(lambda parts: " ".join(map(str, parts))),
    "uuid": st.binary(min_size=16, max_size=16),
    "json": DOCUMENTS.map(json_text),
    "jsonb": DOCUMENTS.map(json_text),
}
DEFAULTS: dict[str, tuple[str, ...]] = {
    "int2": ("7", "-7"),
    "int4": ("0", "-2147483648", "1 + 1"),
    "int8": ("9223372036854775807", "-1", "5 * 3"),
    "numeric": ("1.50", "-0.25", "3"),
    "float8": ("1.5", "-1", "0.1"),
    "text": ("'it''s'", "''", "'a' || 'b'", "'NULL'", "lower('X')"),
    "varchar": ("'ab'", "''"),
    "bpchar": ("'ab'", "''"),
    "bool": ("true", "false"),
    "bytea": ("'\\x00ff'",),
    "timestamptz": ("now()", "current_timestamp", "'2030-01-02 03:04:05.678901+00'", "(now() + interval '10 minutes')"),
    "date": ("'2030-01-02'",),
    "time": ("'10:20'",),
    "timestamp": ("'2030-01-02 03:04:05'",),
    "interval": ("'1 day'",),
    "json": ("'[]'",),
    "uuid": ("gen_random_uuid()", "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'"),
    "jsonb": ("'[]'", """'{"b": 1.50, "a": [null]}'""", "'null'"),
}
# Each is made true for every row, by OR NOT; what matters is that both engines keep it.
CONDITIONS: dict[str, tuple[str, ...]] = {
    "int2": ("{} > 5", "{} IN (1, 2, 3)", "{} BETWEEN -4 AND 4"),
    "int4": ("{} % 3 = 1", "abs({}::bigint) > 7", "{} <> 5"),
    "int8": ("{} >= 0", "{} IN (1, 2)", "coalesce({}, 0) < 100", "CASE WHEN {} > 0 THEN true ELSE false END"),
    "numeric": ("{} > 0.5", "round({}, 2) = {}", "{} IN (1, 2.5)"),
    "float8": ("{} < 1.5", "{} BETWEEN 0 AND 1"),
    "text": (
        "length({}) < 5",
        "{} LIKE 'a%'",
        "{} NOT IN ('x', 'y''z')",
        "{} || 'x' <> 'yx'",
        "{} IS DISTINCT FROM ''",
    ),
    "varchar": ("length({}) < 5", "{} LIKE 'a%'", "{} IN ('x', 'y')", "{} = 'z'", "left({}, 1) = 'q'"),
    "bpchar": ("length({}) < 5", "{} LIKE 'a%'", "{} IN ('x', 'y')", "{} = 'z'", "left({}, 1) = 'q'"),
    "bool": ("{}", "NOT {}", "{} IS TRUE"),
    "bytea": ("{} <> '\\x00'", "{} IS NULL"),
    "timestamptz": ("{} > '2020-01-01'", "extract(year FROM {}) > 2000", "{} < '2030-01-01 00:00:00.000001+00'"),
    "date": ("{} > '2020-01-01'",),
    "time": ("{} > '10:00'",),
    "timestamp": ("{} > '2020-01-01'",),
    "interval": ("{} > '1 day'",),
    "json": ("{} IS NOT NULL",),
    "uuid": ("{} <> '6ba7b810-9dad-11d1-80b4-00c04fd430c8'",),
    "jsonb": ("{} ->> 'a' = 'x'", "jsonb_typeof({}) = 'object'", "{} @> '{{\"a\": 1}}'", "{} ? 'b'"),
}


def stored(kind: Type) -> st.SearchStrategy[StoredValue]:
    """A value as a lane stores it."""
    if kind.is_array:
        return st.lists(st.none() | stored(kind.element), max_size=4).map(array_text)
    if kind.name == "bpchar":
        return TEXTS.map(lambda text: text[: kind.length].ljust(kind.length or 0))
    if kind.length is not None:
        return TEXTS.map(lambda text: text[: kind.length])
    if kind.precision is not None and kind.scale is not None:
        precision, scale = kind.precision, kind.scale
        units = st.integers(-(10**precision) + 1, 10**precision - 1)
        return units.map(lambda number: fit(str(Decimal(number).scaleb(-scale)), precision, scale))
    return STORED[kind.name]


@dataclass
class Drawn:
    """A database that was drawn: its definitions, and rows for each table."""

    definitions: list[str]
    rows: dict[str, list[StoredRow]]

    def made(self) -> apsw.Connection:
        """A lane with all of it; a row that breaks a unique constraint is left out."""
        connection = defined(*self.definitions)
        for table in shape_of_lane(connection).tables:
            places = ", ".join("?" * len(table.columns))
            text = f"INSERT OR IGNORE INTO {quoted_name(table.name)} VALUES ({places})"
            connection.executemany(text, self.rows[table.name])
        return connection


@st.composite
def databases(draw: st.DrawFn) -> Drawn:
    """Some tables, each of which may refer to one before it."""
    drawn = Drawn([], {})
    parents: list[tuple[str, str, Type]] = []
    for number, name in enumerate(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))):
        table = f"{name}{number}"
        key = draw(st.sampled_from(["none", "one", "two", "serial", "always", "by default"]))
        numbered = key in {"serial", "always", "by default"}
        kinds = [draw(st.sampled_from(KEYS)) for _ in range({"none": 0, "one": 1, "two": 2}.get(key, 0))]
        if numbered:
            kinds = [draw(st.sampled_from([PLAIN_TYPES["int4"], PLAIN_TYPES["int8"]]))]
        keys = len(kinds)
        kinds += draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
        names = [f"{NAMES[(place * 3 + number) % len(NAMES)]}{place}" for place in range(len(kinds))]
        required = [place < keys or draw(st.booleans()) for place in range(len(kinds))]
        values = [
            stored(kind) if must else st.none() | stored(kind) for kind, must in zip(kinds, required, strict=True)
        ]
        if numbered:
            values[0] = st.integers(1, 1000)
        parts = [
            _numbered(names[place], kind, key)
            if numbered and place == 0
            else _column(draw, names[place], kind, required=required[place] and place >= keys)
            for place, kind in enumerate(kinds)
        ]
        if keys and not numbered:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted_name, names[:keys]))})")
        if draw(st.booleans()) and parents:
            parent, column, kind = draw(st.sampled_from(parents))
            reaction = draw(st.sampled_from(["", " ON DELETE CASCADE", " ON UPDATE SET NULL"]))
            parts.append(f'"parent" {kind} REFERENCES {quoted_name(parent)} ({quoted_name(column)}){reaction}')
            present = [row[0] for row in drawn.rows[parent]]
            values.append(st.sampled_from([None, *present]))
        parts += _constraints(draw, names, kinds)
        drawn.definitions.append(f"CREATE TABLE {quoted_name(table)} ({', '.join(parts)})")
        drawn.definitions += _indexes(draw, table, names, kinds)
        drawn.rows[table] = _unique_keys(draw(st.lists(st.tuples(*values), max_size=20)), kinds[:keys])
        if keys == 1 and kinds[0].name != "numeric" and not any("UNIQUE" in text for text in drawn.definitions):
            # All of its rows are there, whatever else is.
            parents.append((table, names[0], kinds[0]))
    return drawn


def _unique_keys(rows: list[StoredRow], keys: list[Type]) -> list[StoredRow]:
    """One row per key: a child must not refer to one that is left out."""
    if not keys:
        return rows
    known = {
        tuple(
            Decimal(str(value)) if kind.name == "numeric" else value for value, kind in zip(row, keys, strict=False)
        ): row
        for row in rows
    }
    return list(known.values())


def _numbered(name: str, kind: Type, key: str) -> str:
    if key == "serial":
        return f"{quoted_name(name)} {'serial' if kind.name == 'int4' else 'bigserial'} PRIMARY KEY"
    return f"{quoted_name(name)} {kind} GENERATED {key.upper()} AS IDENTITY PRIMARY KEY"


def _column(draw: st.DrawFn, name: str, kind: Type, *, required: bool) -> str:
    text = f"{quoted_name(name)} {kind}{' NOT NULL' if required else ''}"
    if kind.name not in {"bytea[]", "timestamptz[]"} and draw(st.booleans()):
        listed = ("'{}'",) if kind.is_array else DEFAULTS[kind.name]
        text += f" DEFAULT {draw(st.sampled_from(listed))}"
    if draw(st.booleans()) and not kind.is_array:
        text += f" CHECK ({_condition(draw, name, kind)})"
    return text


def _condition(draw: st.DrawFn, name: str, kind: Type) -> str:
    condition = draw(st.sampled_from(CONDITIONS[kind.name])).format(*[quoted_name(name)] * 2)
    return f"({condition}) OR NOT ({condition})"


def _constraints(draw: st.DrawFn, names: list[str], kinds: list[Type]) -> list[str]:
    found: list[str] = []
    comparable = [name for name, kind in zip(names, kinds, strict=True) if kind in KEYS]
    if draw(st.booleans()) and comparable:
        listed = draw(st.lists(st.sampled_from(comparable), min_size=1, max_size=2, unique=True))
        found.append(f"UNIQUE ({', '.join(map(quoted_name, listed))})")
    pairs = [pair for pair in zip(names, kinds, strict=True) if not pair[1].is_array]
    if draw(st.booleans()) and pairs:
        first, second = draw(st.sampled_from(pairs)), draw(st.sampled_from(pairs))
        found.append(f"CHECK (({_condition(draw, *first)}) AND ({_condition(draw, *second)}))")
    return found


def _indexes(draw: st.DrawFn, table: str, names: list[str], kinds: list[Type]) -> list[str]:
    comparable = [name for name, kind in zip(names, kinds, strict=True) if kind in KEYS]
    found: list[str] = []
    for number in range(draw(st.integers(0, 2)) if comparable else 0):
        listed = draw(st.lists(st.sampled_from(comparable), min_size=1, max_size=2, unique=True))
        columns = ", ".join(quoted_name(name) + draw(st.sampled_from(["", " DESC"])) for name in listed)
        unique = draw(st.sampled_from(["", "", "UNIQUE "]))
        where = ""
        if draw(st.booleans()):
            pairs = [pair for pair in zip(names, kinds, strict=True) if not pair[1].is_array]
            where = f" WHERE {_condition(draw, *draw(st.sampled_from(pairs)))}"
            where = "" if "extract(" in where else where  # PostgreSQL takes none that depends on a time zone.
        name = quoted_name(f"by {number} {table}".lower())
        found.append(f"CREATE {unique}INDEX {name} ON {quoted_name(table)} ({columns}){where}")
    return found
