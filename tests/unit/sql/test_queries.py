"""What SQLite is given for queries and for changes with the help of other rows."""

import pytest

from interlock.errors import DialectError, TransactionError
from tests.unit.sql.lane import translated


def test_a_query_that_locks_is_no_read() -> None:
    assert translated("SELECT id FROM counter").kind == "read"
    assert translated("SELECT id FROM counter FOR UPDATE SKIP LOCKED").kind == "lock"
    assert translated("SELECT s.id FROM (SELECT id FROM counter FOR SHARE) AS s").kind == "lock"
    assert "UPDATE" not in translated("SELECT id FROM counter FOR UPDATE").text


def test_values_are_computed_before_the_first_change() -> None:
    text = translated("UPDATE counter SET n = (SELECT max(n) FROM counter)").text
    assert " FROM (SELECT 1)" in text
    assert "FROM (" not in translated("UPDATE counter SET n = n + 1 WHERE id IN (SELECT n FROM counter)").text


def test_one_source_row_is_proven_by_its_key() -> None:
    text = translated("UPDATE item SET price = c.n FROM counter AS c WHERE c.id = item.id").text
    assert "interlock_same" not in text
    text = translated("UPDATE counter SET n = i.id FROM item AS i WHERE i.price = counter.n").text
    assert "interlock_same" in text


def test_one_row_is_upserted_without_a_guard() -> None:
    update = "ON CONFLICT (id) DO UPDATE SET n = counter.n + excluded.n"
    assert "interlock" not in translated(f"INSERT INTO counter (id, n) VALUES ($1, $2) {update}").text
    assert "interlock_propose" in translated(f"INSERT INTO counter (id, n) VALUES ($1, $2), (2, 2) {update}").text
    assert "interlock" not in translated(f"INSERT INTO counter (id, n) SELECT 1, 2 {update}").text


def test_a_value_of_a_key_needs_no_guard() -> None:
    assert "interlock_single" not in translated("SELECT (SELECT n FROM counter WHERE id = $1)").text
    assert "interlock_single" in translated("SELECT (SELECT n FROM counter WHERE i = 1)").text


def test_windows_say_where_nulls_go() -> None:
    text = translated("SELECT rank() OVER (ORDER BY i), lag(n) OVER (ORDER BY id) FROM counter").text
    assert 'rank() OVER (ORDER BY "counter"."i" NULLS LAST)' in text
    assert 'lag("counter"."n", 1) OVER (ORDER BY "counter"."id")' in text


@pytest.mark.parametrize(
    ("sql", "what", "fix"),
    [
        ("WITH gone AS (DELETE FROM item RETURNING id) SELECT count(*) FROM item", "changes item", "transact()"),
        ("UPDATE counter SET n = 1 FROM item RETURNING item.id", "RETURNING", "changed table"),
        (
            "SELECT sum(n) OVER (ORDER BY id ROWS 1 + 1 PRECEDING) FROM counter",
            "written whole number",
            "Write the number",
        ),
        ("SELECT DISTINCT ON (i) i FROM counter", "DISTINCT ON", "ORDER BY"),
        ("SELECT c.id FROM item, counter AS c RIGHT JOIN item AS o ON o.id = c.id", "comma", "CROSS JOIN"),
        ("SELECT id FROM shop.counter", "another schema", "one after the other"),
        ("UPDATE shop.counter SET n = 1", "another schema", "one after the other"),
        ("INSERT INTO shop.counter (id) VALUES (1)", "another schema", "one after the other"),
        ("DELETE FROM shop.counter", "another schema", "one after the other"),
        ("INSERT INTO counter (id) VALUES (1), (2) ON CONFLICT (n) DO UPDATE SET i = 1", "several rows", "one row"),
        ("DELETE FROM 'counter'", "syntax error at or near \"'counter'\", at line 1, column 13", "at that place"),
        ("DROP TABLE\n 'two'", "at line 2, column 2", "at that place"),
    ],
)
def test_a_refusal_says_what_to_write_instead(sql: str, what: str, fix: str) -> None:
    with pytest.raises(DialectError) as caught:
        translated(sql)
    assert what in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.why


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM counter WHERE row_number() OVER () = 1",
        "SELECT id FROM counter JOIN item USING (id, nope)",
        "SELECT count(*) FROM counter FOR UPDATE",
        "SELECT DISTINCT ON (i) i FROM counter ORDER BY id",
        "VALUES (1), (2, 3)",
        "UPDATE counter SET (n, i) = (1, 2, 3)",
        "TRUNCATE counter",
        "ALTER TABLE item RENAME COLUMN note TO name",
    ],
)
def test_what_postgresql_refuses_too_is_an_error(sql: str) -> None:
    with pytest.raises(TransactionError):
        translated(sql)
