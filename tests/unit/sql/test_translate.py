"""What SQLite is given: native where it can be, quoted and qualified always, and never anything of the caller's."""

import re

import pytest

from interlock.errors import DialectError, TransactionError
from interlock.sql.functions import aggregate_functions, collations, scalar_functions
from tests.unit.sql.lane import SOURCES, translated


def test_the_hot_path_is_native() -> None:
    statement = translated("UPDATE counter SET n = n + 1 WHERE id = $1")
    assert statement.text == 'UPDATE "counter" SET "n" = "counter"."n" + 1 WHERE "counter"."id" = ?1'
    assert statement.kind == "write"
    assert not statement.returns_rows


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE counter SET n = n + $1 WHERE id = $2 AND n >= $3",
        "SELECT n + 1, n - i FROM counter WHERE id = $1",
        "SELECT id FROM counter WHERE n BETWEEN $1 AND $2 ORDER BY id LIMIT 10",
        "INSERT INTO counter (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = counter.n + excluded.n",
        "SELECT id, i / 2, i % 10 FROM counter",
        "SELECT count(*), sum(i), max(n) FROM counter",
        "DELETE FROM counter WHERE id IN ($1, $2)",
    ],
)
def test_common_statements_call_no_function_of_ours(sql: str) -> None:
    assert "interlock_" not in translated(sql).text


def test_what_nobody_else_verifies_is_verified_by_a_function() -> None:
    assert translated("UPDATE counter SET n = n + 1 - 5").text.endswith('= interlock_int8("counter"."n" + 1) - 5')
    assert "interlock_int8" in translated("SELECT id FROM counter WHERE n + 1 > 5").text
    assert "interlock_int4" in translated("UPDATE counter SET n = i + 1").text
    [column] = translated("SELECT n + 1 FROM counter").columns
    assert column.checked


def test_the_order_of_a_key_needs_no_word_about_nulls() -> None:
    assert translated("SELECT id FROM counter ORDER BY id DESC").text.endswith("ORDER BY 1 DESC")
    assert translated("SELECT id FROM counter ORDER BY i DESC").text.endswith('"counter"."i" DESC NULLS FIRST')


def test_every_function_that_is_called_is_registered() -> None:
    known = {function.name for function in scalar_functions(SOURCES)}
    known |= {function.name for function in aggregate_functions()}
    known |= {collation.name for collation in collations()}
    statements = [
        "SELECT n * n, n / i, n % i FROM counter",
        "SELECT -price, price + 1, price - 1, price * 2, price / 2, price % 2 FROM item",
        "SELECT weight * 2, weight / 2, round(weight), weight::integer, weight::numeric, abs(price) FROM item",
        "SELECT round(price), floor(price), ceil(price), price::double precision, price::integer FROM item",
        "SELECT note::integer, note::bigint, note::smallint, note::numeric, note::double precision FROM item",
        "SELECT note::boolean, note::uuid, note::timestamptz, note::uuid::text, upper(note), lower(note) FROM item",
        "SELECT sum(n), avg(n), sum(i), avg(i) FROM counter",
        "SELECT sum(price), avg(price), sum(weight), avg(weight) FROM item",
        "SELECT now(), random(), gen_random_uuid()",
        "SELECT id FROM item WHERE name LIKE $1 AND weight + 1 > 2 AND id + 1 > 2 LIMIT $2 OFFSET $3",
        "INSERT INTO item (name) VALUES ($1)",
        "SELECT price::numeric(5,2) FROM item ORDER BY price",
    ]
    called = {name for sql in statements for name in re.findall(r"interlock_\w+", translated(sql).text)}
    assert called <= known
    assert len(called) > 30


def test_parameters_take_their_types_from_where_they_stand() -> None:
    statement = translated("UPDATE item SET price = $1, name = $2, document = $3 WHERE ok = $4 AND id = $5")
    assert [str(kind) for kind in statement.parameters] == ["numeric", "text", "jsonb", "boolean", "bigint"]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT $1", "$1"),
        ("SELECT id FROM counter WHERE $1 IS NULL", "$1"),
        ("SELECT id FROM counter WHERE id = $1 AND i = $1", "$1 is used both as bigint and as integer"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("", "empty"),
        (";", "empty"),
        ("  -- nothing\n", "empty"),
        ("SELECT ifnull(1, 2)", "ifnull()"),
        ("SELECT 1_000", "1_000"),
        ("SELECT @1", "@"),
        ("SELECT :a", ":"),
        ("SELECT ?", "?"),
        ("SELECT user FROM counter", "USER"),
        ("SELECT id FROM interlock_groups", "interlock_groups"),
        ("SELECT name FROM sqlite_schema", "sqlite_schema"),
        ("SELECT " + "(" * 500 + "1" + ")" * 500, "nested"),
        ("SELECT '" + "x" * 100_000 + "'", "100,"),
        ("CREATE TABLE " + "x" * 64 + " (a integer)", "63 bytes"),
        ('SELECT a.id FROM counter AS a JOIN counter AS "A" ON true', "two relations"),
        ("nonsense", "NONSENSE"),
        ("SELECT FROM WHERE", "cannot read"),
    ],
)
def test_a_refusal_names_what_it_refuses(sql: str, what: str) -> None:
    with pytest.raises(DialectError) as caught:
        translated(sql)
    assert what in caught.value.what
    assert caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nope FROM counter",
        "SELECT id FROM nope",
        "SELECT id FROM counter WHERE n",
        "SELECT id FROM counter WHERE n = 'x'",
        "SELECT id FROM item WHERE note = 1",
        "SELECT id, count(*) FROM counter",
        "SELECT id FROM counter WHERE id = $2",
        "UPDATE counter SET id = 1, id = 2",
    ],
)
def test_what_postgresql_refuses_too_is_an_error_of_the_transaction(sql: str) -> None:
    with pytest.raises(TransactionError):
        translated(sql)


@pytest.mark.parametrize("text", ["'; DROP TABLE counter; --", '"', "\\", "'' OR 1 = 1", "?1", "--", "/*"])
def test_what_is_written_stays_what_it_was(text: str) -> None:
    literal = "'" + text.replace("'", "''") + "'"
    name = '"' + text.replace('"', '""') + '"'
    statement = translated(f"SELECT {literal}::text AS {name} FROM counter WHERE n = 1 - -1")
    assert statement.text == f'SELECT {literal} AS {name} FROM "counter" WHERE "counter"."n" = interlock_int4(1 - (-1))'
    assert statement.columns[0].name == text


def test_a_referred_table_is_not_dropped() -> None:
    with pytest.raises(TransactionError) as caught:
        translated("DROP TABLE counter")
    assert "item" in caught.value.what
    assert translated("DROP TABLE item").text == 'DROP TABLE "item"'


def test_a_key_is_one_look_up_and_a_numbered_one_is_the_row_number() -> None:
    assert translated("CREATE TABLE t (a bigint PRIMARY KEY)").text.endswith("WITHOUT ROWID")
    numbered = translated("CREATE TABLE t (a serial PRIMARY KEY)").text
    assert "INTEGER PRIMARY KEY AUTOINCREMENT" in numbered
    assert "ROWID" not in numbered
