"""What SQLite is given: native where it can be, quoted and qualified always, and never anything of the caller's."""

import re

import pytest

from interlock.errors import DialectError, TransactionError
from interlock.sql.registered_functions import aggregate_functions, collations, scalar_functions, window_functions
from tests.unit.sql.lane import SOURCES, translated

CALLED = re.compile(r"interlock_\w+(?=\()|(?<=COLLATE )interlock_\w+")
# A call of every function that is registered.
EVERYTHING = r"""
SELECT n * n, n / i, n % i FROM counter;
SELECT -price, price + 1, price - 1, price * 2, price / 2, price % 2 FROM item;
SELECT weight * 2, weight / 2, round(weight), weight::integer, weight::numeric, abs(price) FROM item;
SELECT round(price), floor(price), ceil(price), price::double precision, price::integer FROM item;
SELECT note::integer, note::bigint, note::smallint, note::numeric, note::double precision FROM item;
SELECT note::boolean, note::uuid, note::timestamptz, note::uuid::text, upper(note), lower(note) FROM item;
SELECT sum(n), avg(n), sum(i), avg(i) FROM counter;
SELECT sum(price), avg(price), sum(weight), avg(weight) FROM item;
SELECT now(), random(), gen_random_uuid();
SELECT string_agg(DISTINCT note, ',' ORDER BY note) FROM item;
SELECT id FROM item WHERE name LIKE $1 AND weight + 1 > 2 AND id + 1 > 2 LIMIT $2 OFFSET $3;
INSERT INTO item (name) VALUES ($1);
SELECT price::numeric(5,2) FROM item ORDER BY price;
SELECT trunc(price, 1), sign(price), sign(weight), sqrt(weight), power(weight, 2), least(price),
  least(id) FROM item;
SELECT greatest(price), greatest(id), left(note, 1), right(note, 1), substr(note, 1), substr(note, 1,
  2) FROM item;
SELECT strpos(note, 'a'), btrim(note), ltrim(note), rtrim(note), replace(note, 'a', 'b'), md5(note) FROM item;
SELECT btrim(note, 'a'), ltrim(note, 'a'), rtrim(note, 'a'), lpad(note, 1), rpad(note, 1),
  reverse(note) FROM item;
SELECT lpad(note, 1, 'a'), rpad(note, 1, 'a'), repeat(note, 2), split_part(note, ',', 1), concat(note,
  ok) FROM item;
SELECT concat_ws(',', note), starts_with(note, 'a'), octet_length(note), note ILIKE 'a', weight::text FROM item;
SELECT now() + interval '1 day', now() - interval '1 day', date_trunc('day', now()),
  to_timestamp(weight) FROM item;
SELECT extract(epoch FROM now() - now()), extract(year FROM now()), now() - now() < - interval '1 day' FROM item;
SELECT now() + (interval '1 day' + interval '1 day' * 2 - interval '1 day' / 2), now()::text FROM item;
SELECT document -> 'a', document ->> 'a', document -> 0, document ->> 0, document #> '{a}',
  document #>> '{a}' FROM item;
SELECT document @> '{}', document ? 'a', document ?| '{a}', document ?& '{a}', document = '{}' FROM item;
SELECT document || '{}', document - 'a', document - 0, document #- '{a}', jsonb_set(document, '{a}',
  '1') FROM item;
SELECT jsonb_typeof(document), jsonb_array_length(document), jsonb_strip_nulls(document),
  document::text FROM item;
SELECT jsonb_build_object('a', weight, 'b', now(), 'c', ARRAY[1]), jsonb_build_array(note),
  note::jsonb FROM item;
SELECT document::integer, document::bigint, document::smallint, document::numeric, document::boolean FROM item;
SELECT document::double precision, id = ANY (ARRAY[1]::bigint[]),
  price = ANY (ARRAY[price]::numeric[]) FROM item;
SELECT array_length(ARRAY[1], 1), array_append(ARRAY[1], 2), array_remove(ARRAY[1], 1), (ARRAY[1])[1] FROM item;
SELECT array_position(ARRAY[1], 1), ARRAY[1] @> ARRAY[1], ARRAY[1] || ARRAY[1], concat('\x00'::bytea) FROM item;
SELECT string_agg(note, ','), array_agg(id), jsonb_agg(note), jsonb_object_agg(id, note) FROM item;
SELECT id FROM counter WHERE i + 1 > 5 AND (i::smallint) + 1::smallint > 5;
SELECT (SELECT i FROM counter WHERE n = 1), g FROM generate_series(1, 9, $1) AS g;
SELECT u.a FROM unnest($1::bigint[], $2::text[]) AS u (a, b);
UPDATE counter SET n = o.price::bigint FROM item AS o WHERE o.weight = counter.i;
INSERT INTO counter (id, n) VALUES (1, 1), (2, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n;
SELECT sum(n) OVER (), avg(n) OVER (), avg(i) OVER () FROM counter;
SELECT sum(price) OVER w, avg(price) OVER w, min(price) OVER w, max(price) OVER w, sum(weight) OVER w,
  avg(weight) OVER w
FROM item WINDOW w AS (ORDER BY id);
"""


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


def test_a_list_of_keys_is_looked_up() -> None:
    statement = translated("SELECT n FROM counter WHERE id = ANY($1)")
    assert str(statement.parameters[0]) == "bigint[]"
    assert '"counter"."id" IN (SELECT value FROM json_each' in statement.text
    assert statement.encode([[1, None]]) == ("[1,null]",)


def test_chance_is_asked_for_each_row_and_never_looked_up() -> None:
    text = translated("SELECT n FROM counter WHERE i = floor(random() * 16)::integer").text
    assert '+"counter"."i" = +interlock_int4(' in text


def test_the_order_of_a_key_needs_no_word_about_nulls() -> None:
    assert translated("SELECT id FROM counter ORDER BY id DESC").text.endswith("ORDER BY 1 DESC")
    assert translated("SELECT id FROM counter ORDER BY i DESC").text.endswith('"counter"."i" DESC NULLS FIRST')


def test_every_function_that_is_called_is_registered() -> None:
    known = {function.name for function in scalar_functions(SOURCES)}
    known |= {function.name for function in aggregate_functions()}
    known |= {function.name for function in window_functions()}
    known |= {collation.name for collation in collations()}
    statements = [sql for sql in EVERYTHING.split(";\n") if sql]
    called = {name for sql in statements for name in CALLED.findall(translated(sql).text)}
    assert called <= known


def test_parameters_take_their_types_from_where_they_stand() -> None:
    statement = translated("UPDATE item SET price = $1, name = $2, document = $3 WHERE ok = $4 AND id = $5")
    assert [str(kind) for kind in statement.parameters] == ["numeric", "varchar", "jsonb", "boolean", "bigint"]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT 1; SELECT 2", "2 statements"),
        ("", "empty"),
        (";", "empty"),
        ("  -- nothing\n", "empty"),
        ("SELECT ifnull(1, 2)", "ifnull()"),
        ("SELECT @ FROM counter", 'syntax error at or near "FROM", at line 1, column 10'),
        ("SELECT :a", ":"),
        ("SELECT ?", "syntax error"),
        ("SELECT user FROM counter", "USER"),
        ("SELECT id FROM interlock_groups", "interlock_groups"),
        ("SELECT name FROM sqlite_schema", "sqlite_schema"),
        ("SELECT " + "abs(" * 500 + "1" + ")" * 500, "nested"),
        ("SELECT '" + "x" * 1_000_000 + "'", "1,000,"),
        ('SELECT a.id FROM counter AS a JOIN counter AS "A" ON true', "two relations"),
        ("nonsense", 'syntax error at or near "nonsense"'),
        ("SELECT FROM WHERE", 'syntax error at or near "WHERE"'),
        ("INSERT INTO counter VALUES (1, , 3)", 'syntax error at or near ","'),
        ("DELETE FROM counter WHERE id IN (1,,2)", 'syntax error at or near ","'),
        ("BEGIN", "begins or ends a transaction"),
        ("COMMENT ON TABLE t IS 'x'", "COMMENT ON"),
        ("SELECT id FROM counter WHERE n = %s", "syntax error"),
        ("SELECT id FROM item WHERE price = ANY ($1::bigint[])", "= ANY (bigint[])"),
        ("SELECT now() + interval '1-2'", "'1-2'"),
        ("SELECT ARRAY[[1]]", "array of arrays"),
        (f"SELECT ARRAY[{'1, ' * 100}1]", "ARRAY[…] of 101 elements"),
        ("SELECT jsonb_agg(DISTINCT note) FROM item", "jsonb_agg(DISTINCT"),
        (f"SELECT to_jsonb(v) FROM (VALUES ({'1, ' * 50}1)) AS v", "a row with 51 columns"),
        ("SELECT width_bucket(1, ARRAY[1]) FROM item", "the function width_bucket(integer, integer[])"),
        ("SELECT id FROM item WHERE id IN (1, random()::bigint)", "random()"),
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
        "SELECT left(note) FROM item",
        "UPDATE counter SET n = $1, i = $1",
    ],
)
def test_what_postgresql_refuses_too_is_an_error_of_the_transaction(sql: str) -> None:
    with pytest.raises(TransactionError):
        translated(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE FUNCTION f() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "ALTER TABLE item ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE item SET TABLESPACE other",
        "DROP TABLE IF EXISTS",
        "CREATE TABLE q (a integer) WITH",
        "SELECT id FROM item WHERE name SIMILAR TO 'a' OR id",
    ],
)
def test_what_the_parser_does_not_know_is_refused_without_a_word_on_stderr(
    sql: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((DialectError, TransactionError)):
        translated(sql)
    assert caplog.records == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", ["'; DROP TABLE counter; --", '"', "\\", "'' OR 1 = 1", "?1", "--", "/*"])
def test_what_is_written_stays_what_it_was(text: str) -> None:
    literal = "'" + text.replace("'", "''") + "'"
    name = '"' + text.replace('"', '""') + '"'
    statement = translated(f"SELECT {literal}::text AS {name} FROM counter WHERE n = 1 - -1")
    assert statement.text == f'SELECT {literal} AS {name} FROM "counter" WHERE "counter"."n" = interlock_int4(1 - (-1))'
    assert statement.columns[0].name == text


def test_the_schema_public_is_this_database() -> None:
    assert translated("SELECT public.counter.n FROM public.counter").text == translated("SELECT n FROM counter").text


def test_a_referred_table_is_not_dropped() -> None:
    with pytest.raises(TransactionError) as caught:
        translated("DROP TABLE counter")
    assert "item" in caught.value.what
    assert translated("DROP TABLE item").text.startswith('DROP TABLE "item"; ')


def test_a_key_is_one_look_up() -> None:
    for kind in ("bigint", "serial"):
        assert translated(f"CREATE TABLE t (a {kind} PRIMARY KEY)").text.endswith("WITHOUT ROWID")
