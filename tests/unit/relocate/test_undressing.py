"""What PostgreSQL shows is made plainer without a change of meaning, and nothing inside of constants and names."""

import pytest

from interlock.relocate.postgres_shape import undressed
from interlock.sql.types import INT8, NUMERIC, TEXT, VARCHAR, Type

COLUMNS: dict[str, Type] = {"name": VARCHAR, "t": TEXT, "n": INT8, "price": NUMERIC, "x'y": VARCHAR, "left": TEXT}


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("((name)::text = 'q'::text)", "(\"name\" = 'q')"),
        ("(t ~~ 'a%'::text)", "(\"t\" LIKE 'a%')"),
        ("(t !~~* 'a~~b'::text)", "(\"t\" NOT ILIKE 'a~~b')"),
        (
            "((name)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))",
            "(\"name\" IN ('a', 'b'))",
        ),
        ("((name)::text <> ALL ((ARRAY['a'::character varying])::text[]))", "(\"name\" NOT IN ('a'))"),
        ("((\"x'y\")::text = 'z'::text)", "(\"x'y\" = 'z')"),
        ('("left"(t, 1) = "left")', '(left("t", 1) = "left")'),
        ("(ROW(n, n) > ROW(1, 2))", "((n, n) > (1, 2))"),
        ("CASE\n    WHEN (n > 1) THEN true\n    ELSE false\nEND", "CASE WHEN (n > 1) THEN true ELSE false END"),
        ("(TRIM(BOTH FROM t) <> 'ROW( ~~ ''x''::text'::text)", "(trim(\"t\") <> 'ROW( ~~ ''x''::text')"),
        ("(n = ANY (ARRAY[(1)::bigint, (2)::bigint]))", "(n IN (1, 2))"),
    ],
)
def test_it_is_plainer(shown: str, plain: str) -> None:
    *_, plainest = undressed(shown, COLUMNS)
    assert plainest == plain


@pytest.mark.parametrize(
    "shown", ["((price)::text = (n)::text)", "((name)::text[] = x)", "(t = 'x'::character varying(3))"]
)
def test_casts_that_mean_something_stay(shown: str) -> None:
    *_, plainest = undressed(shown, COLUMNS)
    assert plainest.count("::") == shown.count("::")


def test_a_list_of_a_varchar_column_is_taken_as_in() -> None:
    """PostgreSQL would show its own text of the list in another form once it has parsed it again."""
    shown = "((name)::text <> ALL ((ARRAY['a'::character varying, 'b'::character varying])::text[]) AND (n > 1))"
    first, *_ = undressed(shown, COLUMNS)
    assert first == "(\"name\" NOT IN ('a', 'b') AND (n > 1))"
