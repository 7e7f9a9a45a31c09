"""Which words are names. The conformance suite compares the words themselves with PostgreSQL's."""

import pytest

from interlock.errors import DialectError
from interlock.sql.grammar import settle_names
from interlock.sql.parse import LanePostgres


def names(sql: str) -> list[str]:
    tokens = LanePostgres().tokenize(sql)
    settle_names(tokens)
    return [token.text for token in tokens if token.token_type.name == "IDENTIFIER"]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("INSERT INTO Log (a) VALUES (1)", ["log", "a"]),
        ("INSERT INTO position (a) VALUES (length(b))", ["position", "a", "b"]),
        ("CREATE TABLE IF NOT EXISTS count (a integer REFERENCES max (a))", ["count", "a", "max", "a"]),
        ("CREATE INDEX i ON sum (a)", ["i", "sum", "a"]),
        ("WITH min (a) AS (SELECT min(b)), max (c) AS (SELECT 1) SELECT a", ["min", "a", "b", "max", "c", "a"]),
        ("SELECT count(a), max (b) FROM t WHERE list < 1 AND xor", ["a", "b", "t", "list", "xor"]),
        ("SELECT a::double precision, b::text, CAST(c AS int8), d::blob", ["a", "b", "c", "d", "blob"]),
        ('SELECT "Quoted", É, date FROM left', ["Quoted", "É"]),
    ],
)
def test_names_are_told_from_key_words_calls_and_types(sql: str, found: list[str]) -> None:
    assert names(sql) == found


def test_some_words_are_an_alias_only_after_as() -> None:
    assert names("SELECT a AS year, year FROM t ORDER BY year") == ["a", "t"]
    with pytest.raises(DialectError, match="YEAR without AS"):
        names("SELECT a year FROM t")
