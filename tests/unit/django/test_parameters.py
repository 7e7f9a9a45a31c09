"""Django's placeholders and values become those of PostgreSQL's dialect."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.db import ProgrammingError

from interlock.django.parameters import JsonText, convert, literal, literals


def test_each_placeholder_gets_a_number_and_the_type_of_its_literal() -> None:
    text, values = convert("UPDATE t SET a = %s, b = %s WHERE c = %s", ["x", 5, None])
    assert text == "UPDATE t SET a = $1, b = ($2)::integer WHERE c = $3"
    assert values == ["x", 5, None]


@pytest.mark.parametrize(
    ("value", "cast"),
    [
        (True, "boolean"),
        (2**31 - 1, "integer"),
        (-(2**31), "integer"),
        (2**31, "bigint"),
        (2**63, "numeric"),
        (1.5, "double precision"),
        (Decimal("1.50"), "numeric"),
        (b"\x00", "bytea"),
        (date(2030, 1, 2), "date"),
        (time(1, 2), "time"),
        (datetime(2030, 1, 2), "timestamp"),  # noqa: DTZ001 -- a naive one.
        (datetime(2030, 1, 2, tzinfo=UTC), "timestamptz"),
        (timedelta(1), "interval"),
        (UUID(int=1), "uuid"),
    ],
)
def test_a_value_has_the_type_that_postgresql_has_for_its_literal(value: object, cast: str) -> None:
    assert convert("SELECT %s", [value]) == (f"SELECT ($1)::{cast}", [value])


def test_equal_values_of_a_query_share_a_number_so_that_it_can_group_by_an_expression() -> None:
    text, values = convert("SELECT a + %s FROM t WHERE b = %s GROUP BY a + %s", [1, "1", 1])
    assert text == "SELECT a + ($1)::integer FROM t WHERE b = $2 GROUP BY a + ($1)::integer"
    assert values == [1, "1"]


def test_values_of_two_types_with_one_text_do_not_share_a_number() -> None:
    assert convert("SELECT %s, %s", [[1], "[1]"]) == ("SELECT $1, $2", [[1], "[1]"])


def test_equal_values_of_a_change_do_not_so_that_its_text_stays_the_same() -> None:
    assert convert("INSERT INTO t VALUES (%s, %s)", ["x", "x"]) == ("INSERT INTO t VALUES ($1, $2)", ["x", "x"])


def test_numbers_beside_a_window_are_written_because_a_plan_needs_them() -> None:
    text, values = convert("SELECT lag(a, %s) OVER (ORDER BY b) FROM t WHERE c = %s", [2, "x"])
    assert (text, values) == ("SELECT lag(a, (2)) OVER (ORDER BY b) FROM t WHERE c = $1", ["x"])


def test_text_before_a_cast_is_read_by_the_cast() -> None:
    text, values = convert("SELECT (%s)::date, CAST(%s AS integer), %s::jsonb, %s AS a", ["2030-01-02", "5", "{}", "5"])
    assert text == "SELECT (($1)::text)::date, CAST(($2)::text AS integer), ($3)::text::jsonb, $4 AS a"
    assert values == ["2030-01-02", "5", "{}", "5"]


def test_a_percent_sign_is_written_twice() -> None:
    assert convert("SELECT a FROM t WHERE a LIKE '%%x' AND b = %s", ["y"])[0].count("%") == 1


def test_placeholders_may_have_names() -> None:
    assert convert("SELECT %(a)s, %(b)s, %(a)s", {"a": "x", "b": "y"}) == ("SELECT $1, $2, $1", ["x", "y"])


@pytest.mark.parametrize(
    ("sql", "params"), [("SELECT %s", []), ("SELECT 1", ["x"]), ("SELECT %d", [1]), ("SELECT %", [])]
)
def test_placeholders_and_parameters_must_fit(sql: str, params: list[object]) -> None:
    with pytest.raises(ProgrammingError):
        convert(sql, params)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (-5, "-5"),
        (Decimal("1.50"), "1.50::numeric"),
        ("it's 100%", "'it''s 100%'"),
        (b"\x00\xff", "'\\x00ff'::bytea"),
        (date(2030, 1, 2), "'2030-01-02'::date"),
        (timedelta(days=-1, seconds=5), "'-1 days 5.000000 seconds'::interval"),
        ([], "'{}'"),
        (['a"b\\', None, [1]], r"""'{"a\"b\\",NULL,{"1"}}'"""),
        (JsonText('{"a": 1}'), "'{\"a\": 1}'::jsonb"),
    ],
)
def test_a_definition_has_its_values_as_literals(value: object, text: str) -> None:
    assert literal(value) == text
    assert literals("DEFAULT %s", [value]) == f"DEFAULT {text}"
