"""Values go in as PostgreSQL takes them and come out as they went in."""

import math
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import DialectError, TransactionError
from interlock.sql.stored_values import ResultColumn, Row, Statement, decoder, encoder, row_class
from interlock.sql.types import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    PLAIN_TYPES,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    UUID_TYPE,
    Type,
    declared,
    parse_declared,
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
values = st.one_of(
    st.tuples(st.just(INT2), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(INT4), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(INT8), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(FLOAT8), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(
        st.just(NUMERIC), st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**50), max_value=10**50)
    ),
    st.tuples(st.just(TEXT), texts),
    st.tuples(st.just(BOOL), st.booleans()),
    st.tuples(st.just(BYTEA), st.binary()),
    st.tuples(st.just(TIMESTAMPTZ), st.datetimes(timezones=st.just(UTC))),
    st.tuples(st.just(UUID_TYPE), st.uuids()),
    st.tuples(st.just(JSONB), documents),
    st.tuples(st.just(PLAIN_TYPES["int8[]"]), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=3)),
    st.tuples(st.just(PLAIN_TYPES["text[]"]), st.lists(st.none() | texts, max_size=3)),
    st.tuples(st.just(PLAIN_TYPES["uuid[]"]), st.lists(st.none() | st.uuids(), max_size=3)),
    st.tuples(st.just(PLAIN_TYPES["bytea[]"]), st.lists(st.none() | st.binary(), max_size=3)),
    st.tuples(st.just(PLAIN_TYPES["bool[]"]), st.lists(st.none() | st.booleans(), max_size=3)),
    st.tuples(st.just(PLAIN_TYPES["timestamptz[]"]), st.lists(st.datetimes(timezones=st.just(UTC)), max_size=3)),
    st.tuples(st.sampled_from([kind for kind in PLAIN_TYPES.values() if kind is not UNKNOWN]), st.none()),
)


def through(kind: Type, value: object) -> object:
    statement = Statement("", "read", (kind,), (ResultColumn("v", kind),))
    [result] = statement.decode(statement.encode([value]))
    return result


@given(values)
def test_a_value_comes_back_as_it_went_in(typed: tuple[Type, object]) -> None:
    kind, value = typed
    assert through(kind, value) == value
    if kind is not JSONB:  # Whole floats come back as they would from PostgreSQL.
        assert type(through(kind, value)) is type(value)


class Size(IntEnum):
    LARGE = 3


def test_subclasses_and_wider_numbers_are_taken() -> None:
    assert through(INT4, Size.LARGE) == 3
    assert type(through(INT4, Size.LARGE)) is int
    assert through(FLOAT8, 3) == 3.0
    assert through(NUMERIC, 3) == Decimal(3)
    assert through(TIMESTAMPTZ, datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == datetime(
        2030, 1, 1, tzinfo=UTC
    )
    assert through(BYTEA, bytearray(b"x")) == b"x"
    assert str(through(NUMERIC, Decimal("1E+3"))) == "1000"
    assert str(through(NUMERIC, Decimal("-0.00"))) == "0.00"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INT8, 2**63),
        (INT8, -(2**63) - 1),
        (INT4, 2**31),
        (INT2, 2**15),
        (INT8, True),
        (INT8, 1.0),
        (INT8, "1"),
        (INT8, Decimal(1)),
        (FLOAT8, math.nan),
        (FLOAT8, math.inf),
        (FLOAT8, True),
        (FLOAT8, 10**400),
        (NUMERIC, 1.5),
        (NUMERIC, Decimal("NaN")),
        (NUMERIC, Decimal("Infinity")),
        (TEXT, 1),
        (TEXT, b"x"),
        (TEXT, "a\0b"),
        (TEXT, "\ud800"),
        (BOOL, 1),
        (BYTEA, "x"),
        (TIMESTAMPTZ, datetime(2030, 1, 1)),  # noqa: DTZ001 - naive on purpose
        (TIMESTAMPTZ, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=10)))),
        (TIMESTAMPTZ, datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-10)))),
        (TIMESTAMPTZ, "2030-01-01"),
        (UUID_TYPE, "00000000-0000-0000-0000-00000000000g"),
        (UUID_TYPE, "0000-0000"),
        (JSONB, {"a": math.nan}),
        (JSONB, Decimal("1.5")),
        (JSONB, datetime(2030, 1, 1, tzinfo=UTC)),
        (JSONB, {"\ud800": 1}),
        (PLAIN_TYPES["int8[]"], 5),
        (PLAIN_TYPES["int8[]"], "12"),
        (PLAIN_TYPES["int8[]"], [1, "x"]),
        (PLAIN_TYPES["int8[]"], [[1]]),
        (PLAIN_TYPES["int4[]"], [2**31]),
        (PLAIN_TYPES["text[]"], ["a\0b"]),
        (JSONB, {1: 2}),
        (JSONB, [UUID(int=1)]),
        (JSONB, ["\0"]),
    ],
)
def test_what_postgresql_would_not_take_is_refused(kind: Type, value: object) -> None:
    with pytest.raises(TransactionError) as caught:
        through(kind, value)
    assert "$1" in caught.value.what


@pytest.mark.parametrize("text", ["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"])
def test_the_text_of_a_uuid_is_taken_for_one(text: str) -> None:
    assert through(UUID_TYPE, text) == UUID(text)


def test_a_numeric_has_a_bound() -> None:
    for value in (Decimal("1E+1000"), Decimal("1E-1000")):
        with pytest.raises(DialectError):
            through(NUMERIC, value)


def test_a_document_is_written_as_postgresql_writes_it() -> None:
    statement = Statement("", "read", (JSONB,))
    document: dict[str, object] = {"bb": 1, "a": [1e22, 1.50, True, None], "é": "x\n\u0001", "ccc": {}}
    written = '{"a": [10000000000000000000000, 1.5, true, null], "bb": 1, "é": "x\\n\\u0001", "ccc": {}}'
    assert statement.encode([document]) == (written,)


def test_an_interval_comes_back_as_the_driver_of_postgresql_gives_it() -> None:
    stored = encoder(INTERVAL)(timedelta(days=1, seconds=90, microseconds=5), 1)
    assert stored == "0 1 90000005"
    decode = decoder(INTERVAL, checked=False)
    assert decode is not None
    assert decode(stored) == timedelta(days=1, seconds=90, microseconds=5)
    assert decode("14 2 0") == timedelta(days=365 + 2 * 30 + 2)
    assert decode("-14 0 0") == timedelta(days=-(365 + 2 * 30))


def test_an_array_has_a_bound() -> None:
    with pytest.raises(TransactionError, match="at most 100,000"):
        through(PLAIN_TYPES["int8[]"], [0] * 100_001)


def test_a_document_has_a_depth() -> None:
    document: list[object] = []
    for _ in range(300):
        document = [document]
    with pytest.raises(TransactionError):
        through(JSONB, document)


@pytest.mark.parametrize("args", [(), (1, 2)])
def test_every_parameter_has_one_value(args: tuple[object, ...]) -> None:
    with pytest.raises(TransactionError):
        Statement("", "read", (INT8,)).encode(args)


@pytest.mark.parametrize("checked", [True, False])
def test_a_zero_has_no_sign(checked: bool) -> None:
    statement = Statement("SELECT ?1", "read", (FLOAT8,), (ResultColumn("d", FLOAT8, checked=checked),))
    [stored] = statement.encode([-0.0])
    assert str(stored) == "0.0"
    assert str(statement.decode([-0.0])[0]) == "0.0"


def test_a_computed_number_is_verified_when_it_is_read() -> None:
    statement = Statement(
        "", "read", (), (ResultColumn("n", INT4, checked=True), ResultColumn("d", FLOAT8, checked=True))
    )
    assert statement.decode((5, 1.5)) == (5, 1.5)
    assert statement.decode((None, None)) == (None, None)
    for row in ((2**31, 1.5), (9.3e18, 1.5), (5, math.inf)):
        with pytest.raises(TransactionError):
            statement.decode(row)


@pytest.mark.parametrize(
    "kind",
    [
        *(kind for kind in PLAIN_TYPES.values() if kind is not UNKNOWN),
        Type("varchar", length=9),
        Type("numeric", precision=9, scale=2),
    ],
)
def test_the_catalog_remembers_the_type(kind: Type) -> None:
    assert parse_declared(declared(kind)) == kind
    assert declared(kind).upper() != "INTEGER"


@pytest.mark.parametrize("text", ["", "integer", "blob", "numeric", "varchar(1,2)", "text(5)", "nonsense"])
def test_a_type_that_the_dialect_never_writes_is_not_known(text: str) -> None:
    assert parse_declared(text) is None


def test_a_row_is_a_tuple_with_names() -> None:
    row: Row = row_class(("id", "count", "?column?", "a", "a", "_fields"))((1, 2, 3, 4, 5, 6))
    assert row.__eq__((1, 2, 3, 4, 5, 6)) is True
    assert row[0] == row.id == 1
    assert getattr(row, "count") == 2  # noqa: B009 - a column hides the method, which a type checker cannot know
    assert hash(row) == hash(tuple(row))
    assert pickle.loads(pickle.dumps(row)) == row
    assert pickle.loads(pickle.dumps(row)).id == 1
    with pytest.raises(AttributeError, match="no column 'nope'"):
        _ = row.nope
    assert isinstance(row, Row)
    assert "id=1" in repr(row)
    assert row_class(("x", "y"))((1, 2))._asdict() == {"x": 1, "y": 2}
