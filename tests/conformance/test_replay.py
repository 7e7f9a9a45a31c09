"""Scripts of other projects as the campaign reads them."""

from pathlib import Path

import pytest

from tests.conformance.dialect.campaign import Campaign, run_scripts
from tests.conformance.dialect.replay import parsed, read_statements, script_files, sort_columns, split_statements
from tests.conformance.engines import Postgres, postgres_server

PSQL = r"""
SELECT 'a;b', "c;d", E'it\'s;', $x$ e; $$ f; $x$ /* g; /* h; */ i; */;
\set name value
SELECT 1 \gset
COPY t (a) FROM stdin;
1;2
\.
SELECT 2; SELECT 3
"""

RECORDS = """
# A comment.
statement ok
CREATE TABLE t (a integer)

skipif postgresql
query I
SELECT 'not here'

onlyif mysql
statement ok
SELECT 'nor here'

onlyif postgresql
query I rowsort
SELECT a
FROM t
----
5

hash-threshold 8
"""


def test_statements_end_at_semicolons_outside_of_quotes_and_comments() -> None:
    assert list(split_statements(PSQL)) == [
        r"""SELECT 'a;b', "c;d", E'it\'s;', $x$ e; $$ f; $x$ /* g; /* h; */ i; */""",
        "SELECT 1",
        "COPY t (a) FROM stdin",
        "SELECT 2",
        "SELECT 3",
    ]
    assert list(split_statements("SELECT 'open; SELECT 1;")) == ["SELECT 'open; SELECT 1;"]
    assert list(split_statements("SELECT $$open; /* this one, too")) == ["SELECT $$open; /* this one, too"]


def test_records_are_read_without_results_and_without_those_of_other_engines(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "a.slt"
    file.write_text(RECORDS)
    (tmp_path / "b.txt").write_text("SELECT 1;")
    assert script_files(tmp_path) == [file]
    assert list(read_statements(file)) == ["CREATE TABLE t (a integer)", "SELECT a\nFROM t"]


def test_the_order_of_rows_is_compared_by_the_columns_that_are_sorted_first() -> None:
    names = ("a", "b", "b", "c")
    assert sort_columns(parsed("SELECT 1 ORDER BY c, 1")[1], names) == [3, 0]
    assert sort_columns(parsed("SELECT 1 ORDER BY a, lower(c), c")[1], names) == [0]
    assert sort_columns(parsed("SELECT 1 ORDER BY b")[1], names) == []
    assert sort_columns(parsed("SELECT 1 ORDER BY 9")[1], names) == []
    assert parsed("SELEC 1") == ("", {})


@pytest.mark.slow
def test_a_folder_is_replayed_from_empty_tables_and_differences_are_taken_back(tmp_path: Path) -> None:
    first = "CREATE TABLE t (a integer, at timestamptz DEFAULT now()); INSERT INTO t (a) VALUES (1), (2);"
    (tmp_path / "1.sql").write_text(f"{first} SELECT a FROM t ORDER BY a; SELECT 1 +; SELECT nothing;")
    (tmp_path / "2.sql").write_text(
        "CREATE TABLE t (b text DEFAULT gen_random_uuid()::text); INSERT INTO t DEFAULT VALUES;"
    )
    with postgres_server() as url, Postgres(url) as postgres:
        campaign = Campaign(postgres)
        run_scripts(campaign, tmp_path)
        assert not campaign.report.differences
        assert campaign.report.counts == {"same": 5, "refused": 1, "both failed": 1}
        # A table that one engine alone has shows in every statement on it, and none of them stays.
        postgres.execute("ROLLBACK; CREATE TABLE t (a integer); BEGIN")
        run_scripts(campaign, tmp_path)
    assert campaign.report.differences[0][0].startswith("CREATE TABLE t (a integer")
