"""D1: which statements may run under READ COMMITTED; whatever may hide a second look at a table may not."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import DialectError
from interlock.postgres.isolation import StatementParameter, plan_of

RELAXED = [
    ("write", "UPDATE t SET n = n + 1 WHERE id = $1"),
    ("write", "UPDATE t AS x SET n = x.n + 1 WHERE x.id = 1"),
    ("write", "UPDATE t * SET n = n + 1 WHERE id = 1"),
    ("write", "UPDATE t SET n = t.n + 1 WHERE t.id = 1"),
    ("write", "UPDATE t SET (a, b) = (1, 2) WHERE id IN (1, 2)"),
    ("write", 'UPDATE "s.x"."t.y" SET n = 1 WHERE id = 1'),
    ("write", "UPDATE s.t SET n = pg_catalog.abs(n) WHERE id = 1"),
    ("write", "UPDATE größe SET n = 1 WHERE id = 1"),
    ("write", "UPDATE t SET a = '(SELECT 1)' WHERE id = 1"),
    ("write", "UPDATE t SET a = $$ (SELECT 1) $$ WHERE id = 1"),
    ("write", "UPDATE t SET a = $q$ $$ (SELECT 1) $q$ WHERE id = 1"),
    ("write", "UPDATE t SET a = E'\\' (SELECT 1)' WHERE id = 1"),
    ("write", "UPDATE t SET n = 1 /* (SELECT /* 1 */ ) */ WHERE id = 1 -- (SELECT 1)"),
    ("write", "DELETE FROM t WHERE id = 1 RETURNING n"),
    ("write", "INSERT INTO t (id, n) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n"),
    ("write", "INSERT INTO t (id, n) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET (n) = ROW (t.n + 1)"),
    ("write", "INSERT INTO t DEFAULT VALUES"),
    ("write", "SELECT n FROM t WHERE id = 1 FOR UPDATE"),
    ("write", "SELECT n FROM t WHERE id = 1 FOR SHARE"),
    ("write", "SELECT nextval('s')"),
    ("read", "SELECT n FROM t WHERE id = 1"),
    ("read", "SELECT a, count(*) FILTER (WHERE n > 1) FROM t GROUP BY a, b ORDER BY a, b"),
    ("read", "SELECT lastval, currval FROM t"),
    ("read", "SELECT 1"),
    ("read", "VALUES (1), (2)"),
    ("read", "TABLE t"),
    ("write", 'UPDATE t SET n = "abs"(n) WHERE id = 1'),
    ("write", 'UPDATE U&"t" SET n = 1 WHERE id = 1'),
    ("schema", "CREATE TABLE t (n integer)"),
    ("schema", "TRUNCATE t"),
]
STRICT = [
    ("write", "UPDATE ONLY t SET n = 1"),
    ("write", "UPDATE t SET n = 1 WHERE id = floor(random() * 16)"),
    ("write", "UPDATE t SET n = f() WHERE id = 1"),
    ("write", "UPDATE t SET n = next() WHERE id = 1"),
    ("write", "UPDATE t SET n = filter(1) WHERE id = 1"),
    ("write", "UPDATE t SET n = conflict(1) WHERE id = 1"),
    ("write", "UPDATE t SET n = set(1) WHERE id = 1"),
    ("write", "UPDATE t SET n = s.abs(n) WHERE id = 1"),
    ("write", "UPDATE t SET n = f$1(n) WHERE id = 1"),
    ("write", "UPDATE t SET n = größe(n) WHERE id = 1"),
    ("write", "UPDATE t SET n = \u017fqrt(n) WHERE id = 1"),
    ("write", "UPDATE t SET n = now\u00a0() WHERE id = 1"),
    ("write", "UPDATE t SET n = n OPERATOR(s.+) 1 WHERE id = 1"),
    ("write", "UPDATE t SET n = 1 WHERE CURRENT OF x"),
    ("write", "DELETE FROM t USING u WHERE t.id = u.id"),
    ("write", "INSERT INTO t SELECT max(n) + 1 FROM t"),
    ("write", "INSERT INTO t TABLE u"),
    ("write", "INSERT INTO t VALUES (1) RETURNING (SELECT max(n) FROM t)"),
    ("write", "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET n = (SELECT n FROM t)"),
    ("write", "INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 2 WHERE t.n IN (VALUES (1))"),
    ("write", "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE"),
    ("write", "WITH x AS (DELETE FROM t RETURNING n) SELECT n FROM x"),
    ("write", "SELECT f(n) FROM t"),
    ("write", "SELECT n INTO u FROM t"),
    ("write", "EXPLAIN ANALYZE UPDATE t SET n = (SELECT 1)"),
    ("write", "UPDATE t SET a = '\\', n = (SELECT 1), b = '\\' WHERE id = 1"),
    ("write", "UPDATE t SET n = 1 --\r + (SELECT 1) WHERE id = 1"),
    ("write", "UPDATE t SET a$x$ = (SELECT 1), b$x$ = 2 WHERE id = 1"),
    ("read", "SELECT n FROM t, u"),
    ("read", "SELECT n FROM t TABLESAMPLE system (1)"),
    ("read", "WITH x AS (SELECT n FROM t) SELECT * FROM x JOIN (SELECT 1) y ON (true) JOIN z USING (id)"),
    ("read", "SELECT n FROM (SELECT n FROM t) x WHERE EXISTS (SELECT 1 FROM u)"),
    ("read", "(SELECT n FROM t) UNION SELECT 1"),
]


@pytest.mark.parametrize(("kind", "sql"), RELAXED)
def test_a_statement_on_one_table_runs_as_it_is(kind: str, sql: str) -> None:
    plan = plan_of(sql)
    assert (plan.kind, plan.serializable) == (kind, False)


@pytest.mark.parametrize(("kind", "sql"), STRICT)
def test_a_statement_that_may_look_further_is_serializable(kind: str, sql: str) -> None:
    plan = plan_of(sql)
    assert (plan.kind, plan.serializable) == (kind, True)


SIMPLE = [
    "UPDATE t SET n = {} + 1 , a = 2 WHERE id = $1",
    "UPDATE t SET n = n + 1 WHERE id = $1 AND n > {}",
    "DELETE FROM t WHERE id = {} RETURNING n",
    "INSERT INTO t ( id , n ) VALUES ( 1 , {} )",
    "INSERT INTO t VALUES ( 1 , 2 ) ON CONFLICT ( id ) DO UPDATE SET n = t.n + {}",
    "INSERT INTO t VALUES ( 1 , 2 ) ON CONFLICT ( id ) DO UPDATE SET n = 1 WHERE t.n < {} RETURNING n",
    "UPDATE t SET n = n RETURNING n , {}",
]
LOOKS = [
    "(SELECT n FROM t)",
    "(SELECT max(n) FROM u WHERE a = 'x')",
    "(WITH x AS (SELECT 1) SELECT * FROM x)",
    "(TABLE t)",
    "(VALUES (1))",
    "any_name(1)",
    '"a b"(1)',
    "x.lower('a')",
    "(1 OPERATOR(x.@) 2)",
    "ARRAY(SELECT n FROM t)",
    "CASE WHEN EXISTS (SELECT 1 FROM t) THEN 1 ELSE 2 END",
]
NOISE = st.lists(
    st.sampled_from(
        [" ", "\n", "\t", "--x'\n", "/* ' */", "/* /* $$ */ */", "'it''s' || ", "$$ ' $$ || ", "E'\\'' || "]
    ),
    max_size=4,
).map("".join)


@given(st.sampled_from(SIMPLE), st.sampled_from(LOOKS), NOISE, NOISE, st.sampled_from([str.lower, str.upper, str]))
def test_a_second_look_anywhere_is_never_overlooked(
    form: str, look: str, before: str, behind: str, case: Callable[[str], str]
) -> None:
    """Whatever stands around it; what hides behind quotes and comments is no part of the statement."""
    written = " " + before + case(look) + " " + behind.replace(" || ", " ")
    assert plan_of(form.format(written)).serializable


@given(st.sampled_from(SIMPLE), NOISE)
def test_noise_alone_costs_no_retry(form: str, noise: str) -> None:
    assert not plan_of(form.format(" " + noise + " 5 ")).serializable


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS a INTO TEMP x",
        "SELECT 1 AS a INTO TEMPORARY TABLE x",
        "CREATE TEMP TABLE x (a integer)",
        "CREATE OR REPLACE TEMP VIEW x AS SELECT 1",
        "CREATE TABLE pg_temp.x (a integer)",
        'CREATE TABLE "pg_temp".x (a integer)',
        "SELECT set_config('search_path', 'x', false)",
        "SELECT pg_catalog.\"set_config\"('search_path', 'x', false)",
        "SELECT pg_advisory_lock(1)",
        "SET search_path = x",
        "COMMIT",
        "SELECT 1; SELECT 2",
        " -- nothing",
    ],
)
def test_what_would_stay_in_a_connection_is_refused(sql: str) -> None:
    with pytest.raises(DialectError):
        plan_of(sql)


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("UPDATE c SET n = (SELECT n FROM c WHERE id = $1) + 1 WHERE id = $1", "c"),
        ("WITH x AS (SELECT n FROM u) UPDATE c SET n = 1 WHERE id = $1", "c"),
        ("DELETE FROM c USING u WHERE c.id = $1", "c"),
    ],
)
def test_a_statement_that_looks_at_more_still_says_which_row_it_changes(sql: str, table: str) -> None:
    """D9: a conflict of it has a name."""
    plan = plan_of(sql)
    assert (plan.serializable, plan.table, plan.key) == (True, table, (StatementParameter(0),))


@pytest.mark.parametrize(
    "sql", ["INSERT", "WITH x AS (SELECT 1) SELECT a FROM t, x FOR UPDATE", "UPDATE", "DELETE FROM"]
)
def test_what_changes_no_table_that_can_be_told_has_no_name(sql: str) -> None:
    assert plan_of(sql).table is None
