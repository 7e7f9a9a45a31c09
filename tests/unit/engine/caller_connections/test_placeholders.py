"""Statements for psycopg: every parameter by its name, wherever it stands, and no other sign is taken for one."""

import pytest

from interlock.engine.caller_transactions import named_values, with_named_placeholders


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT $1::text[], $2", "SELECT %(p1)s::text[], %(p2)s"),
        ("SELECT $1, $1", "SELECT %(p1)s, %(p1)s"),
        ("SELECT $11 + $1", "SELECT %(p11)s + %(p1)s"),
        ("SELECT a % $1 FROM t WHERE b LIKE '50%'", "SELECT a %% %(p1)s FROM t WHERE b LIKE '50%%'"),
        ("SELECT 1", "SELECT 1"),
    ],
)
def test_a_statement_is_written_as_psycopg_has_it(sql: str, expected: str) -> None:
    assert with_named_placeholders(sql) == expected


def test_values_have_the_names_of_their_places() -> None:
    assert named_values(["a", None]) == {"p1": "a", "p2": None}
