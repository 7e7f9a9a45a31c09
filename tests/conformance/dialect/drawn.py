"""Statements drawn by chance from the registry: every function, operator and cast, over all types, with NULLs.

A drawing gives the text, how many leading columns its ORDER BY fixes, and whether the order in which its parts are
evaluated is left open (then one engine may meet an error that the other one never computes).

Sections: types and values, expressions, queries, changes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Final
from uuid import UUID

from interlock.sql.aggregates import NAMES as AGGREGATES
from interlock.sql.postgres_catalog import functions_named
from interlock.sql.registered_functions import CASTS, FUNCTION_NAMES, FUNCTIONS, OPERATORS
from interlock.sql.types import PLAIN_TYPES

# --- Types and values -------------------------------------------------------------------------------------------------

POOLS: Final[dict[str, tuple[str, ...]]] = {
    "int2": ("0", "1", "-1", "3", "32767", "-32768", "7"),
    "int4": ("0", "1", "-1", "2", "5", "10", "2147483647", "-2147483648", "100"),
    "int8": ("0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "4294967296"),
    "numeric": ("0", "1.50", "-0.005", "2.5", "12345678901234567890.123456789", "1e10", "-7", "0.00", "100.00"),
    "float8": ("0", "1.5", "-0.25", "1e300", "1e-300", "3", "0.1", "-2.5", "123456789.123"),
    "text": ("", "a", "abc", "ABC", "a%", "a_c", "zé", " x ", "1", "b,c", "Hello World", "\U0001f600", "o''k"),
    "varchar": ("", "a", "ab", "é", "12", "x y"),
    "bpchar": ("", "a", "ab ", "é", "12", "x y"),
    "bool": ("true", "false", "t", "off"),
    "bytea": (r"\x", r"\x00", r"\x00ff", r"\x616263"),
    "date": ("2030-01-31", "2028-02-29", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31"),
    "time": ("00:00", "10:20:30.456789", "23:59:59.999999", "12:00"),
    "timestamp": ("2030-01-31 10:20:30.456789", "2028-02-29", "1970-01-01", "1969-07-20 20:17:40", "9999-12-31 23:59"),
    "timestamptz": ("2030-01-31 10:20:30+02", "2028-02-29 00:00:00+00", "1970-01-01", "1999-12-31 23:59:59.999999Z"),
    "interval": (
        "1 day",
        "1 month",
        "-13 months 5 days",
        "02:30:00.5",
        "0 days",
        "1 year 2 days 03:04:05",
        "-1 second",
    ),
    "uuid": ("00000000-0000-0000-0000-000000000000", "123e4567-e89b-12d3-a456-426614174000"),
    "mood": ("sad", "ok", "happy"),
    "json": ('{"a": 1}', "[1, 2]", "null", '"x"'),
    "jsonb": ('{"a": 1, "b": [1, 2.50, null]}', "{}", "[]", '[1, "a", {"c": null}]', '"a"', "5", "null", "true"),
    "int4[]": ("{}", "{1,2,3}", "{NULL,5}", "{3,1,2}"),
    "int8[]": ("{}", "{1,9223372036854775807}"),
    "text[]": ("{}", "{a,b}", '{NULL,"a b",é}', "{a}", "{c,b,a}", "{b,1}"),
    "numeric[]": ("{}", "{1.50,2}", "{NULL,-0.5}"),
    "bool[]": ("{t,f}", "{}"),
    "date[]": ("{2030-01-31}", "{}"),
    "float8[]": ("{1.5,2}", "{}"),
}
"""Texts of interesting values by type; `mood` is an enumeration."""

VALUES: Final[dict[str, tuple[object, ...]]] = {
    "int2": (0, 1, -1, 32767),
    "int4": (0, 1, 5, -2147483648),
    "int8": (0, 1, 9223372036854775807),
    "numeric": (Decimal("1.50"), Decimal(0), Decimal("-0.005")),
    "float8": (0.0, 1.5, -0.25),
    "text": ("", "a", "abc", "zé", "b,c"),
    "varchar": ("a", "ab"),
    "bpchar": ("a", "ab "),
    "bool": (True, False),
    "bytea": (b"", b"abc"),
    "date": (date(2030, 1, 31), date(1970, 1, 1)),
    "time": (time(10, 20, 30, 456789), time(0)),
    "timestamp": (datetime(2030, 1, 31, 10, 20, 30), datetime(1970, 1, 1)),  # noqa: DTZ001 -- without a zone
    "timestamptz": (datetime(2030, 1, 31, 10, 20, 30, tzinfo=UTC),),
    "interval": (timedelta(days=1), timedelta(seconds=-1)),
    "uuid": (UUID(int=0), UUID("123e4567-e89b-12d3-a456-426614174000")),
    "jsonb": ({"a": 1}, [1, None]),
    "mood": ("sad", "happy"),
    "int4[]": ([], [1, 2, None]),
    "text[]": ([], ["a", None]),
}
"""Values of parameters."""

TYPES: Final = tuple(POOLS)
_SCALARS: Final = tuple(name for name in TYPES if not name.endswith("[]"))
_ELEMENTS: Final = tuple(name[:-2] for name in TYPES if name.endswith("[]"))
COLUMNS: Final = {f"c_{name.replace('[]', '_list')}": name for name in TYPES}
"""The columns of the table `a`, one of each type."""

_BARE: Final = frozenset({"int2", "int4", "int8", "numeric"})
_SEED_OF_ROWS: Final = 5


def _constant(name: str, chance: Random) -> str:
    text = chance.choice(POOLS[name])
    return f"'{text}'::{name}"


def setup() -> tuple[str, ...]:
    """Return the statements that make the tables: `a` has a column of every type, `b` and `c` have constraints."""
    chance = Random(_SEED_OF_ROWS)  # Always the same rows.
    columns = ", ".join(f"{column} {name}" for column, name in COLUMNS.items())
    rows = [
        ", ".join([str(key), *("NULL" if key == 5 or chance.random() < 0.1 else _constant(n, chance) for n in TYPES)])
        for key in range(1, 8)
    ]
    return (
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
        f"CREATE TABLE a (id integer PRIMARY KEY, {columns})",
        f"INSERT INTO a VALUES ({'), ('.join(rows)})",
        (
            "CREATE TABLE b (id integer PRIMARY KEY, k integer UNIQUE, s smallint DEFAULT 3 CHECK (s > 0), "
            "x varchar(4) NOT NULL DEFAULT 'x', p numeric(6,2), j jsonb, "
            "g integer GENERATED ALWAYS AS (s * 2) STORED, CHECK (k <> 13 OR p IS NULL))"
        ),
        "INSERT INTO b VALUES (1, 10, 1, 'a', 1.5, '{}'), (2, 20, 2, 'b', NULL, NULL), (3, NULL, 3, '', 9.99, '[1]')",
        (
            "CREATE TABLE c (id integer PRIMARY KEY, b integer REFERENCES b (id) ON DELETE CASCADE, "
            "k integer, x text, m mood DEFAULT 'ok', UNIQUE (b, x))"
        ),
        (
            "INSERT INTO c VALUES (1, 1, 1, 'p', 'ok'), (2, 1, NULL, 'q', 'sad'), (3, 2, 2, NULL, NULL), "
            "(4, NULL, NULL, 'p', 'ok')"
        ),
        "CREATE VIEW d (id, k, x) AS SELECT c.id, c.k + b.s, coalesce(c.x, b.x) FROM c LEFT JOIN b ON b.id = c.b",
    )


# --- Expressions ------------------------------------------------------------------------------------------------------

_UNSTEADY: Final = frozenset(
    {"random", "gen_random_uuid", "uuidv4", "uuidv7", "now", "transaction_timestamp", "statement_timestamp"}
)
_COMPARED: Final = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_VARIADIC: Final = ("concat", "concat_ws", "jsonb_build_array", "jsonb_build_object", "greatest", "least", "coalesce")
_FUNCTION_KEYS: Final = sorted(
    key
    for key, entry in FUNCTIONS.items()
    if entry.kind == "function" and key[0] in FUNCTION_NAMES and key[0] not in _UNSTEADY and key[0] != "position"
)
_OPERATOR_KEYS: Final = sorted(OPERATORS)
_CAST_KEYS: Final = sorted(key for key in CASTS if not key[0].startswith("any"))
_AGGREGATES: Final = sorted(AGGREGATES)
_FIELDS: Final = (
    "epoch", "year", "month", "day", "hour", "minute", "second", "dow", "doy", "week", "quarter", "isoyear", "isodow",
    "century", "decade", "milliseconds", "microseconds",
)  # fmt: skip
_UNITS: Final = ("year", "month", "day", "hour", "minute", "second", "week", "quarter", "century", "nope")
_SPECIAL: Final[dict[str, dict[int, tuple[str, ...]]]] = {
    "extract": {0: _FIELDS},
    "date_part": {0: _FIELDS},
    "date_trunc": {0: _UNITS, 2: ("UTC",)},
    "timezone": {0: ("UTC",)},
    "encode": {1: ("hex", "base64", "escape")},
    "decode": {0: ("00ff", "YWJj", "abc", "zz"), 1: ("hex", "base64")},
    "repeat": {1: ("0", "2", "-1", "3")},
    "lpad": {1: ("0", "5", "-1")},
    "rpad": {1: ("0", "5", "-1")},
    "chr": {0: ("65", "233", "0", "-1", "128512")},
    "factorial": {0: ("0", "5", "-1", "20")},
}
"""Arguments that are drawn from a short list, by function and place."""


class Expressions:
    """Draws expressions over the constants, and over the columns of `a` if there is a row."""

    def __init__(self, chance: Random, *, columns: bool, parameters: bool = False) -> None:
        self.chance = chance
        self.columns = columns
        self.parameters = parameters
        self.args: list[object] = []
        self.open_order = False
        """Whether an error may be met by one engine alone."""

    def any_expression(self, depth: int = 2) -> str:
        """Draw a function, operator, cast or special form."""
        return self.chance.choice(_FORMS)(self, depth)

    def typed(self, name: str, depth: int) -> str:
        """Draw an expression that should have that type."""
        if depth > 0 and self.chance.random() < 0.35:
            inner = self.chance.choice(_BY_RESULT.get(name, (Expressions.cast,)))(self, depth - 1)
            return inner if self.chance.random() < 0.5 else f"({inner})::{name}"
        return self.leaf(name)

    def leaf(self, name: str) -> str:
        """Draw a constant, a column or NULL: mostly of that type, sometimes without one, rarely of another."""
        chance = self.chance
        dice = chance.random()
        if dice < 0.06:
            name = chance.choice(TYPES)
        is_known = name in POOLS
        if not is_known:
            name = "text"
        if dice < 0.1:
            return chance.choice(("NULL", f"NULL::{name}"))
        if self.columns and dice < 0.6:
            return chance.choice([column for column, has in COLUMNS.items() if has == name])
        if self.parameters and is_known and name in VALUES and dice < 0.8:
            return self.parameter(name)
        text = chance.choice(POOLS[name])
        if dice < 0.75:
            return f"'{text}'"
        if dice < 0.9 and name in _BARE:
            return text
        return f"'{text}'::{name}"

    def parameter(self, name: str) -> str:
        """Draw a parameter: a new one, with its type or without, or rarely one that is there already."""
        chance = self.chance
        if self.args and chance.random() < 0.1:
            return f"${chance.randint(1, len(self.args))}"
        self.args.append(chance.choice(VALUES[name]))
        return f"${len(self.args)}{chance.choice(('', f'::{name}'))}"

    def _arguments(self, function: str, takes: tuple[str, ...], depth: int) -> list[str]:
        chance = self.chance
        element = chance.choice(_ELEMENTS)
        written: list[str] = []
        for place, wants in enumerate(takes):
            special = _SPECIAL.get(function, {}).get(place)
            if special is not None:
                text = chance.choice(special)
                written.append(text if wants.startswith("int") else f"'{text}'")
            elif wants in {"anycompatiblearray", "anyarray"}:
                written.append(self.typed(f"{element}[]", depth))
            elif wants in {"anycompatible", "anyelement", "anynonarray"}:
                written.append(self.typed(element, depth))
            else:
                written.append(self.typed(chance.choice(_SCALARS) if wants == "any" else wants, depth))
        return written

    def function(self, depth: int) -> str:
        """A call of a function of the registry."""
        return self.called(self.chance.choice(_FUNCTION_KEYS), depth)

    def called(self, key: tuple[str, tuple[str, ...]], depth: int) -> str:
        name, takes = key
        arguments = self._arguments(name, takes, depth)
        if self.chance.random() < 0.02 and arguments:
            arguments.pop()
        if name == "extract":
            return f"extract({self.chance.choice(_FIELDS)} FROM {arguments[-1]})"
        if name == "overlay" and len(arguments) >= 3:
            rest = f" FOR {arguments[3]}" if len(arguments) > 3 else ""
            return f"overlay({arguments[0]} PLACING {arguments[1]} FROM {arguments[2]}{rest})"
        return f"{name}({', '.join(arguments)})"

    def operator(self, depth: int) -> str:
        """An operator of the registry."""
        return self.operated(self.chance.choice(_OPERATOR_KEYS), depth)

    def operated(self, key: tuple[str, tuple[str, ...]], depth: int) -> str:
        name, takes = key
        arguments = self._arguments(name, takes, depth)
        return f"({name} {arguments[0]})" if len(arguments) == 1 else f"({arguments[0]} {name} {arguments[1]})"

    def cast(self, depth: int) -> str:
        """A cast of the registry, or of any pair of types."""
        source, target = self.chance.choice(_CAST_KEYS)
        if self.chance.random() < 0.2:
            source, target = self.chance.choice(TYPES), self.chance.choice(TYPES)
        size = {"numeric": "(6,2)", "varchar": "(3)", "bpchar": "(3)", "timestamptz": "(3)", "time": "(0)"}.get(
            target, ""
        )
        suffix = size if self.chance.random() < 0.2 else ""
        if source in {"text", "varchar"} and target in POOLS and self.chance.random() < 0.8:
            return f"('{self.chance.choice(POOLS[target])}'::{source})::{target}{suffix}"
        return f"({self.typed(source, depth)})::{target}{suffix}"

    def comparison(self, depth: int) -> str:
        """A comparison of two values, mostly of one type."""
        name = self.chance.choice(TYPES)
        other = name if self.chance.random() < 0.8 else self.chance.choice(TYPES)
        return f"({self.typed(name, depth)} {self.chance.choice(_COMPARED)} {self.typed(other, depth)})"

    def membership(self, depth: int) -> str:
        """IN, BETWEEN, ANY and ALL."""
        name = self.chance.choice(TYPES)
        first, second, third = (self.typed(name, depth) for _ in range(3))
        negated = self.chance.choice(("", "NOT "))
        self.open_order = True
        match self.chance.randrange(4):
            case 0:
                return f"({first} {negated}IN ({second}, {third}))"
            case 1:
                return f"({first} {negated}BETWEEN {self.chance.choice(('', 'SYMMETRIC '))}{second} AND {third})"
            case 2:
                quantity = self.chance.choice(("ANY", "ALL"))
                return f"({first} {self.chance.choice(_COMPARED[:6])} {quantity} (ARRAY[{second}, {third}]))"
            case _:
                element = self.chance.choice(_ELEMENTS)
                return f"({self.typed(element, depth)} = ANY ({self.typed(element + '[]', depth)}))"

    def variadic(self, depth: int) -> str:
        """A function of any number of arguments, or a conditional one."""
        name = self.chance.choice(_VARIADIC)
        if name in {"greatest", "least", "coalesce"}:
            self.open_order = self.open_order or name == "coalesce"
            kind = self.chance.choice(TYPES)
            return f"{name}({', '.join(self.typed(kind, depth) for _ in range(self.chance.randint(1, 3)))})"
        values = [self.typed(self.chance.choice(TYPES), depth) for _ in range(self.chance.randint(1, 4))]
        return f"{name}({', '.join(values)})"

    def conditional(self, depth: int) -> str:
        """CASE, NULLIF, a test for NULL or truth, AND and OR."""
        self.open_order = True
        name = self.chance.choice(TYPES)
        first, second = self.typed(name, depth), self.typed(name, depth)
        truth, other = self.typed("bool", depth), self.typed("bool", depth)
        forms = (
            f"CASE WHEN {truth} THEN {first} ELSE {second} END",
            f"CASE {first} WHEN {second} THEN {truth} END",
            f"nullif({first}, {second})",
            f"({first} IS {self.chance.choice(('', 'NOT '))}NULL)",
            f"({truth} IS {self.chance.choice(('', 'NOT '))}{self.chance.choice(('TRUE', 'FALSE', 'UNKNOWN'))})",
            f"({truth} {self.chance.choice(('AND', 'OR'))} {other})",
            f"(NOT {truth})",
            f"to_jsonb({first})",
        )
        return self.chance.choice(forms)

    def array(self, depth: int) -> str:
        """ARRAY[…], an element of one, or a pattern match."""
        element = self.chance.choice(_ELEMENTS)
        text = self.typed("text", depth)
        forms = (
            f"ARRAY[{self.typed(element, depth)}, {self.typed(element, depth)}]",
            f"({self.typed(element + '[]', depth)})[{self.typed('int4', 0)}]",
            f"({text} {self.chance.choice(('LIKE', 'NOT LIKE', 'ILIKE'))} {self.leaf('text')})",
            f"position({text} in {self.leaf('text')})",
            f"trim({self.chance.choice(('', 'leading ', 'both '))}{self.leaf('text')} from {text})",
            f"substring({text} from {self.leaf('int4')} for {self.leaf('int4')})",
            f"(({self.typed('timestamptz', depth)}) AT TIME ZONE 'UTC')",
        )
        return self.chance.choice(forms)

    def aggregate(self) -> str:
        """An aggregate over the rows, in a fixed order."""
        name = self.chance.choice(_AGGREGATES)
        takes = self.chance.choice([found.takes for found in functions_named(name)] or [("any",)])
        known = tuple(part if part in POOLS or part.startswith("any") else "int4" for part in takes)
        arguments = self._arguments(name, known, 1)
        if not arguments:
            return f"{name}(*)"
        distinct = "DISTINCT " if self.chance.random() < 0.15 else ""
        ordered = f" ORDER BY {arguments[0]}" if distinct else " ORDER BY id"
        tail = " FILTER (WHERE c_bool)" if self.chance.random() < 0.15 else ""
        return f"{name}({distinct}{', '.join(arguments)}{ordered}){tail}"


Form = Callable[[Expressions, int], str]
_FORMS: Final[tuple[Form, ...]] = (
    *[Expressions.function] * 6,
    *[Expressions.operator] * 5,
    *[Expressions.cast] * 3,
    *[Expressions.comparison] * 3,
    Expressions.membership,
    Expressions.variadic,
    Expressions.conditional,
    Expressions.array,
)


def _calling(key: tuple[str, tuple[str, ...]]) -> Form:
    return lambda drawn, depth: drawn.called(key, depth)


def _operating(key: tuple[str, tuple[str, ...]]) -> Form:
    return lambda drawn, depth: drawn.operated(key, depth)


def _by_result() -> dict[str, tuple[Form, ...]]:
    found: dict[str, list[Form]] = {"bool": [Expressions.comparison, Expressions.membership]}
    for key in _FUNCTION_KEYS:
        found.setdefault(FUNCTIONS[key].gives, []).append(_calling(key))
    for key in _OPERATOR_KEYS:
        found.setdefault(OPERATORS[key].gives, []).append(_operating(key))
    return {name: tuple(forms) for name, forms in found.items() if name in PLAIN_TYPES}


_BY_RESULT: Final = _by_result()


# --- Queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drawn:
    """A statement, how many leading columns are sorted (None: every column), and what is left open."""

    sql: str
    keys: int | None = 0
    open_order: bool = False
    changes: bool = False
    args: tuple[object, ...] = ()


_DIRECTIONS: Final = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC")


def expression(chance: Random) -> Drawn:
    """One expression: of constants, on one row, on all rows, as a condition, as a key, in an aggregate."""
    place = chance.randrange(8)
    drawn = Expressions(chance, columns=place > 0, parameters=chance.random() < 0.25)
    return replace(_expression(drawn, place, chance), args=tuple(drawn.args))


def _expression(drawn: Expressions, place: int, chance: Random) -> Drawn:
    match place:
        case 0:
            return Drawn(f"SELECT {drawn.any_expression()}", None, drawn.open_order)
        case 1 | 2 | 3:
            text = f"SELECT {drawn.any_expression()} AS v FROM a WHERE id = {chance.randint(1, 7)}"
            return Drawn(text, None, drawn.open_order)
        case 4:
            return Drawn(f"SELECT id, {drawn.any_expression()} FROM a ORDER BY id", None, drawn.open_order)
        case 5:
            condition = drawn.chance.choice((drawn.comparison, drawn.membership, drawn.conditional))(1)
            return Drawn(f"SELECT id FROM a WHERE {condition} ORDER BY id", None, open_order=True)
        case 6:
            key = drawn.any_expression(1)
            return Drawn(
                f"SELECT {key} AS v, id FROM a ORDER BY 1{chance.choice(_DIRECTIONS)}, 2", None, drawn.open_order
            )
        case _:
            key = chance.choice(("c_bool", "c_int2", "c_numeric", "id % 2"))
            grouped = f" GROUP BY {key} ORDER BY 1" if chance.random() < 0.4 else ""
            head = f"{key}, " if grouped else ""
            return Drawn(f"SELECT {head}{drawn.aggregate()} FROM a{grouped}", 1 if grouped else None, open_order=True)


_TABLES: Final[dict[str, tuple[str, ...]]] = {
    "a": ("id", "c_int2", "c_numeric", "c_text", "c_bool"),
    "b": ("id", "k", "s", "x", "p"),
    "c": ("id", "b", "k", "x"),
    "d": ("id", "k", "x"),
}
_ROWS: Final = (
    ("generate_series(1, 3)", ("n1",)),
    ("generate_series(3, 1, -1) WITH ORDINALITY", ("n1", "n2")),
    ("unnest(ARRAY['a', 'p', NULL])", ("x1",)),
    ("unnest(ARRAY[1, 2], ARRAY['a', 'b', 'c'])", ("n1", "x1")),
    ("""jsonb_array_elements_text('["a", null, "q"]')""", ("x1",)),
    ("""jsonb_each_text('{"a": 1, "p": null}')""", ("x1", "x2")),
    ("regexp_split_to_table('a,p,q', ',')", ("x1",)),
)
"""Functions in FROM, and names of their columns by kind."""

_CONSTANTS: Final = {"n": ("1", "2", "NULL", "1.5"), "x": ("'a'", "''", "NULL"), "l": ("true", "false", "NULL")}
_JOINS: Final = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", ",", "NATURAL JOIN", "USING")


def _kind(name: str) -> str:
    """The kind of a column by its name: x for texts, l for booleans, n for numbers."""
    return "x" if name in {"x", "c_text"} or name[0] == "x" else "l" if name == "c_bool" or name[0] == "l" else "n"


Scope = list[tuple[str, tuple[str, ...]]]
"""Aliases and the columns of each."""


class Queries:
    """Draws queries: joins, groups, windows, CTEs, set operations, with names that may be ambiguous or missing."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.count = 0
        self.sources: dict[str, tuple[str, ...]] = dict(_TABLES)

    def query(self, depth: int = 2) -> Drawn:
        """A whole query; all its columns are sorted, or none."""
        head = ""
        if depth and self.chance.random() < 0.2:
            body, names = self.select(1, ())
            self.sources["w"] = names
            listed = f" ({', '.join(names)})" if self.chance.random() < 0.7 else ""
            head = f"WITH w{listed} AS ({body}) "
        body, names = self.select(depth, ())
        if self.chance.random() < 0.2:
            for _ in range(self.chance.randint(1, 2)):
                other, _ = self.select(1, (), "".join(name[0] for name in names))
                word = self.chance.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
                body = f"{body} {word} {other}"
        if self.chance.random() < 0.6:
            keys = [f"{place}{self.chance.choice(_DIRECTIONS)}" for place in range(1, len(names) + 1)]
            limit = self.chance.choice(("", "", " LIMIT 3", " OFFSET 1", " LIMIT 2 OFFSET 1"))
            return Drawn(f"{head}{body} ORDER BY {', '.join(keys)}{limit}", None, open_order=True)
        return Drawn(f"{head}{body}", 0, open_order=True)

    def source(self, depth: int) -> tuple[str, str, tuple[str, ...]]:
        """A table, a subquery or a list of values: its text, its alias and its columns."""
        chance = self.chance
        self.count += 1
        dice = chance.random()
        if depth > 0 and dice < 0.2:
            body, names = self.select(depth - 1, ())
            alias = f"q{self.count}"
            return f"({body}) AS {alias} ({', '.join(names)})", alias, names
        if dice < 0.27:
            alias = f"f{self.count}"
            text, names = chance.choice(_ROWS)
            return f"{text} AS {alias} ({', '.join(names)})", alias, names
        if dice < 0.35:
            alias = f"v{self.count}"
            return f"(VALUES (1, 'a'), (2, NULL), (NULL, 'p')) AS {alias} (id, x)", alias, ("id", "x")
        name = chance.choice(tuple(self.sources))
        alias = name if chance.random() < 0.4 else f"t{self.count}"
        return (name if alias == name else f"{name} AS {alias}"), alias, self.sources[name]

    def column(self, scope: Scope, kind: str = "") -> str:
        """A column of the scope, mostly qualified and of that kind, rarely not there."""
        chance = self.chance
        if chance.random() < 0.02:
            return chance.choice(("nope", "a.id", "b.k", "c.x", "w.id", "t1.id"))
        pairs = [(alias, name) for alias, names in scope for name in names]
        wanted = [pair for pair in pairs if not kind or _kind(pair[1]) == kind]
        alias, name = chance.choice(wanted or pairs)
        return name if chance.random() < 0.1 else f"{alias}.{name}"

    def condition(self, scope: Scope, depth: int) -> str:
        """A condition on columns of the scope."""
        chance = self.chance
        kind = chance.choice("nnxl")
        left = self.column(scope, kind)
        match chance.randrange(7):
            case 0:
                return f"{left} IS {chance.choice(('', 'NOT '))}NULL"
            case 1 if depth > 0:
                body, _ = self.select(depth - 1, tuple(scope), kind)
                return f"{left} {chance.choice(('IN', 'NOT IN'))} ({body})"
            case 2 if depth > 0:
                body, _ = self.select(depth - 1, tuple(scope))
                return f"{chance.choice(('', 'NOT '))}EXISTS ({body})"
            case 3:
                return f"({self.condition(scope, 0)} {chance.choice(('AND', 'OR'))} {self.condition(scope, 0)})"
            case 4:
                return f"{left} {chance.choice(_COMPARED)} {chance.choice(_CONSTANTS[kind])}"
            case _:
                return f"{left} {chance.choice(_COMPARED)} {self.column(scope, kind)}"

    def from_clause(self, depth: int) -> tuple[str, Scope]:
        """One to three sources with joins."""
        text, alias, names = self.source(depth)
        scope = [(alias, names)]
        for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
            if depth > 0 and self.chance.random() < 0.12:
                body, names = self.select(depth - 1, tuple(scope))
                self.count += 1
                alias = f"l{self.count}"
                side = self.chance.choice(("CROSS JOIN", "JOIN", "LEFT JOIN"))
                text = f"{text} {side} LATERAL ({body}) AS {alias} ({', '.join(names)})"
                text += "" if side == "CROSS JOIN" else " ON true"
                scope = [*scope, (alias, names)]
                continue
            other, alias, names = self.source(depth)
            join = self.chance.choice(_JOINS)
            before, scope = scope, [*scope, (alias, names)]
            if join in {"CROSS JOIN", ",", "NATURAL JOIN"}:
                text = f"{text}{'' if join == ',' else ' '}{join} {other}"
            elif join == "USING":
                side = self.chance.choice(("", "LEFT ", "FULL "))
                shared = [name for name in names if any(name in has for _, has in before)] or ["id"]
                text = f"{text} {side}JOIN {other} USING ({self.chance.choice(shared)})"
            else:
                name = self.chance.choice(names)
                on = f"{alias}.{name} = {self.column(before, _kind(name))}"
                text = f"{text} {join} {other} ON {on}"
        return text, scope

    def select(
        self, depth: int, outer: tuple[tuple[str, tuple[str, ...]], ...], kinds: str = ""
    ) -> tuple[str, tuple[str, ...]]:
        """A SELECT without ORDER BY, and the names by which its columns can be reached."""
        chance = self.chance
        text, inner = self.from_clause(depth)
        scope = [*inner, *outer] if outer and chance.random() < 0.4 else inner
        kinds = kinds or "".join(chance.choice("nnx") for _ in range(chance.randint(1, 3)))
        where = f" WHERE {self.condition(scope, depth)}" if chance.random() < 0.5 else ""
        names = tuple(f"{kind}{place}" for place, kind in enumerate(kinds, start=1))
        *first, last = list(kinds)
        distinct = ""
        tail = ""
        match chance.randrange(6):
            case 0:
                keys = [self.column(inner, kind) for kind in first]
                items = [*keys, self.aggregate(inner, last)]
                word = chance.choice(("", "", "", "ROLLUP ", "CUBE ", "DISTINCT "))
                listed = f"({', '.join(keys)})" if word in {"ROLLUP ", "CUBE "} else ", ".join(keys)
                tail = f" GROUP BY {word}{listed}" if keys else ""
                tail += f" HAVING {self.aggregate(inner, 'n')} IS NOT NULL" if chance.random() < 0.3 else ""
            case 1:
                items = [*(self.column(scope, kind) for kind in first), self.window(inner, last)]
            case 2 if depth > 0:
                body, _ = self.select(0, tuple(scope), last)
                items = [*(self.column(scope, kind) for kind in first), f"(SELECT max(o) FROM ({body}) AS s (o))"]
            case _:
                distinct = "DISTINCT " if chance.random() < 0.2 else ""
                items = [self.item(scope, kind) for kind in kinds]
        return f"SELECT {distinct}{', '.join(items)} FROM {text}{where}{tail}", names

    def first_rows(self) -> Drawn:
        """DISTINCT ON, sorted by everything that it selects."""
        body, names = self.select(1, ())
        listed = ", ".join(names)
        inner = f"({body}) AS q ({listed})"
        rest = ", ".join(f"{name}{self.chance.choice(_DIRECTIONS)}" for name in names)
        return Drawn(f"SELECT DISTINCT ON ({names[0]}) {listed} FROM {inner} ORDER BY {rest}", None, open_order=True)

    def item(self, scope: Scope, kind: str) -> str:
        """A column or a small expression, with or without a name."""
        chance = self.chance
        column = self.column(scope, kind)
        match chance.randrange(8):
            case 0:
                return f"{column} AS {chance.choice(('id', 'x', 'k', 'o1'))}"
            case 1:
                return f"coalesce({column}, {self.column(scope, kind)})"
            case 2 if kind == "n":
                return f"CASE WHEN {column} IS NULL THEN 1 ELSE 0 END"
            case 3 if kind == "x":
                return f"{self.column(scope)}::text"
            case _:
                return column

    def aggregate(self, scope: Scope, kind: str) -> str:
        """An aggregate whose result does not depend on the order of rows."""
        name = self.chance.choice(("count", "min", "max", "sum", "avg", "count(*)") if kind == "n" else ("min", "max"))
        if name == "count(*)":
            return name
        distinct = "DISTINCT " if self.chance.random() < 0.2 else ""
        return f"{name}({distinct}{self.column(scope, kind)})"

    def window(self, scope: Scope, kind: str) -> str:
        """A window function whose result does not depend on the order of equals."""
        ranks = ("rank()", "dense_rank()", "cume_dist()", "percent_rank()", "", "") if kind == "n" else ("",)
        name = self.chance.choice(ranks) or self.aggregate(scope, kind).replace("DISTINCT ", "")
        partition = f"PARTITION BY {self.column(scope)} " if self.chance.random() < 0.5 else ""
        return f"{name} OVER ({partition}ORDER BY {self.column(scope)}{self.chance.choice(_DIRECTIONS)})"


def query(chance: Random) -> Drawn:
    """A query of the tables."""
    drawn = Queries(chance)
    return drawn.first_rows() if chance.random() < 0.05 else drawn.query()


# --- Changes ----------------------------------------------------------------------------------------------------------

_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "id": ("1", "2", "3", "4", "5", "6", "NULL", "2147483648", "'7'", "8.5"),
    "k": ("10", "20", "30", "13", "NULL", "DEFAULT", "'x'"),
    "s": ("1", "0", "-1", "NULL", "DEFAULT", "40000", "2.5"),
    "x": ("'a'", "'abcd'", "'abcde'", "NULL", "DEFAULT", "''", "'ab   '", "12", "'abcd   '"),
    "p": ("1", "1.005", "9999.99", "9999.995", "NULL", "1e3", "-0.001", "DEFAULT"),
    "j": ("'{}'", "'[1, 2.50]'", "NULL", "'nope'", "to_jsonb(1)"),
    "b": ("1", "2", "3", "9", "NULL"),
    "g": ("DEFAULT", "1"),
    "m": ("'sad'", "'happy'", "NULL", "DEFAULT", "'nope'", "'sad'::mood"),
}
_COLUMNS: Final = {"b": ("id", "k", "s", "x", "p", "j", "g"), "c": ("id", "b", "k", "x", "m")}
_WHERES: Final = (
    "", " WHERE id = 1", " WHERE id > 1", " WHERE k IS NULL", " WHERE x = 'a'",
    " WHERE EXISTS (SELECT 1 FROM c AS o WHERE o.b = {0}.id)", " WHERE id IN (SELECT b FROM c)", " WHERE nope",
)  # fmt: skip


def change(chance: Random) -> Drawn:
    """An INSERT, UPDATE or DELETE on the tables with constraints."""
    table = chance.choice(("b", "b", "c"))
    where = chance.choice(_WHERES).format(table)
    second = _COLUMNS[table][1]
    returning = chance.choice(("", " RETURNING *", f" RETURNING id, {second} AS r", f" RETURNING {table}.x"))
    form = chance.choice((*[_inserted] * 4, *[_updated] * 4, _deleted, _changing_parts, _changing_parts))
    return Drawn(form(chance, table, where, returning), changes=True)


def _inserted(chance: Random, table: str, _: str, returning: str) -> str:
    columns = _COLUMNS[table]
    match chance.randrange(4):
        case 0:
            source = f"SELECT id + {chance.randint(3, 9)}, {chance.choice(('k', 'id', 'NULL::integer'))} FROM {table}"
            order = chance.choice((" ORDER BY 2, 1", " ORDER BY id DESC LIMIT 2", " WHERE k > 1", ""))
            return f"INSERT INTO {table} (id, k) {source}{order}{returning}"
        case 1:
            source = chance.choice(
                (
                    "SELECT id + 3, k + 1 FROM b ORDER BY id",
                    "SELECT id, k FROM c ORDER BY id",
                    "SELECT max(id) + 1, NULL FROM b",
                    "VALUES (7, 70), (8, 80)",
                    "SELECT c_int4, c_int2 FROM a WHERE id < 3",
                )
            )
            return f"INSERT INTO {table} (id, k) {source}{_conflict(table, chance)}{returning}"
        case _:
            chosen = ["id", *chance.sample(columns[1:], chance.randint(0, len(columns) - 1))]
            rows = ", ".join(
                f"({', '.join(chance.choice(_VALUES[name]) for name in chosen)})" for _ in range(chance.randint(1, 3))
            )
            return f"INSERT INTO {table} ({', '.join(chosen)}) VALUES {rows}{_conflict(table, chance)}{returning}"


def _updated(chance: Random, table: str, where: str, returning: str) -> str:
    match chance.randrange(5):
        case 0:
            return f"UPDATE {table} SET (k, x) = (SELECT {_PAIR[table]}){where}{returning}"
        case 1:
            source = "(SELECT b, count(*) AS n FROM c GROUP BY b) AS f"
            return f"UPDATE {table} SET k = f.n FROM {source} WHERE f.b = {table}.id RETURNING {table}.id, {table}.k"
        case 2:
            source = chance.choice(("a", "(VALUES (1, 5), (2, 6)) AS a (id, c_int4)"))
            return f"UPDATE {table} SET k = a.c_int4 FROM {source} WHERE a.id = {table}.id RETURNING {table}.id, a.id"
        case _:
            sets = ", ".join(
                f"{name} = {chance.choice((*_VALUES[name], name))}"
                for name in chance.sample(_COLUMNS[table], chance.randint(1, 2))
            )
            return f"UPDATE {table} SET {sets}{where}{returning}"


def _deleted(chance: Random, table: str, where: str, returning: str) -> str:
    if chance.random() < 0.5:
        return f"DELETE FROM {table}{where}{returning}"
    join = chance.choice(("c.b = b.id", "c.id = b.id", "c.k < b.k", "b.x = 'a'"))
    other = "c" if table == "b" else "b"
    return f"DELETE FROM {table} USING {other} WHERE {join} RETURNING {table}.id, {table}.x"


_PAIR: Final = {
    "b": "max(c.k), 'n' FROM c WHERE c.b = b.id",
    "c": "o.k, o.x FROM b AS o WHERE o.id = c.b",
}


def _changing_parts(chance: Random, _table: str, _where: str, _returning: str) -> str:
    """A statement whose WITH changes data, or reads before a change."""
    head = chance.choice(
        (
            "gone AS (DELETE FROM c WHERE id > 2 RETURNING id, b)",
            "made AS (INSERT INTO c (id, b, k) VALUES (50, 1, 5), (51, NULL, 6) RETURNING id, k)",
            "made AS (UPDATE b SET k = k + 1 WHERE id < 3 RETURNING id, k)",
            "made AS (SELECT id, k FROM b WHERE k > 5)",
            "RECURSIVE made (id, k) AS (SELECT 1, 2 UNION ALL SELECT id + 1, k * 2 FROM made WHERE id < 4)",
        )
    )
    name = head.removeprefix("RECURSIVE ").partition(" ")[0]
    tail = chance.choice(
        (
            f"SELECT count(*) FROM {name}",
            f"SELECT * FROM {name} ORDER BY id",
            f"INSERT INTO b (id, k) SELECT id + 60, id + 60 FROM {name} RETURNING id, k",
            f"UPDATE b SET p = n.id FROM {name} AS n WHERE n.id = b.id RETURNING b.id, b.p",
            f"DELETE FROM b WHERE id IN (SELECT id FROM {name}) RETURNING id",
            f"SELECT {name}.id, b.k FROM {name} LEFT JOIN b ON b.id = {name}.id ORDER BY 1",
        )
    )
    return f"WITH {head} {tail}"


def _conflict(table: str, chance: Random) -> str:
    target = {
        "b": ("(id)", "(k)", "", "ON CONSTRAINT b_k_key", "ON CONSTRAINT b_pkey"),
        "c": ("(id)", "(b, x)", "(k)", "ON CONSTRAINT c_b_x_key", "ON CONSTRAINT b_k_key"),
    }[table]
    match chance.randrange(5):
        case 0:
            return f" ON CONFLICT {chance.choice(target)} DO NOTHING"
        case 1:
            where = chance.choice(("", f" WHERE {table}.id > 1", " WHERE excluded.k IS NOT NULL"))
            sets = chance.choice(("x = excluded.x", f"k = coalesce(excluded.k, {table}.k)", "x = 'new', k = 77"))
            return f" ON CONFLICT {chance.choice(target)} DO UPDATE SET {sets}{where}"
        case _:
            return ""


def statement(chance: Random) -> Drawn:
    """Any of them."""
    dice = chance.random()
    if dice < 0.65:
        return expression(chance)
    return query(chance) if dice < 0.87 else change(chance)
