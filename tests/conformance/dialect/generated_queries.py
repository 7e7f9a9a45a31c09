"""Statements that nobody thought of: joins, windows, subqueries, changes with the help of other tables, recursion.

All of them are about the table of `generated` and a second one that shares some of its keys. Whatever is compared row
by row is sorted by a key, and whatever takes one row of several sorts by a key, too: the rest is chance in PostgreSQL.
"""

from hypothesis import strategies as st

SETUP = (
    "CREATE TABLE u (id integer PRIMARY KEY, t integer, i integer, n bigint, p numeric, x text)",
    (
        "INSERT INTO u VALUES (1, 1, 10, 5, 1.5, 'abc'), (2, 1, NULL, -9, 1.50, NULL), (3, 2, 10, 0, 2, 'ABC'), "
        "(4, NULL, -7, NULL, NULL, ''), (7, 6, 0, 7, -0.5, 'a_c'), (9, 99, 2, 100, 100, 'zz')"
    ),
)


def _filled(template: str, **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries(parts).map(lambda chosen: template.format(**chosen))


def _chosen(*options: str) -> st.SearchStrategy[str]:
    return st.sampled_from(options)


# --- Joins ------------------------------------------------------------------------------------------------------------

_SIDES = _chosen("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_ON = _chosen("u.t = t.id", "u.id = t.id", "u.i = t.i", "u.id = t.id AND u.i = t.i", "t.x = u.x", "t.p = u.p")
_CONDITIONS = _chosen(
    "true", "t.id > 2", "u.id IS NULL", "t.id IS NOT NULL AND u.n > 0", "coalesce(u.i, t.i) >= 0",
    "t.i = u.i OR u.p = 1.5",
    "u.id IN (SELECT t FROM u)", "NOT EXISTS (SELECT 1 FROM u AS o WHERE o.t = t.id)", "u.n > (SELECT avg(n) FROM u)",
)  # fmt: skip
_THIRD = _chosen(
    "", " LEFT JOIN u AS v ON v.t = u.id", " RIGHT JOIN u AS v ON v.id = t.id", " CROSS JOIN u AS v", ", u AS v",
    " FULL JOIN u AS v ON v.id = u.id", " JOIN u AS v USING (id)", ", (VALUES (1), (2)) AS v (id)",
    " LEFT JOIN generate_series(1, 3) AS v (id) ON v.id = u.i",
)  # fmt: skip
joins = st.one_of(
    _filled(
        "SELECT t.id, u.id, t.x, u.p FROM t {side} u ON {on} WHERE {where} ORDER BY t.id {first}, u.id {second}",
        side=_SIDES,
        on=_ON,
        where=_CONDITIONS,
        first=_chosen("", "DESC", "NULLS FIRST", "DESC NULLS LAST"),
        second=_chosen("", "DESC", "NULLS FIRST"),
    ),
    _filled(
        "SELECT t.id, u.id, v.id FROM t {side} u ON {on}{third} WHERE {where} ORDER BY 1, 2, 3",
        side=_SIDES,
        on=_ON,
        third=_THIRD,
        where=_CONDITIONS,
    ),
    _filled(
        "SELECT * FROM (SELECT id, i FROM t) AS a {side} (SELECT id, i, n FROM u) AS b USING ({using}) "
        "ORDER BY 1, 2, 3",
        side=_SIDES,
        using=_chosen("id", "i", "id, i", "i, id"),
    ),
    _filled(
        "SELECT id, count(*), sum(u.n) FROM t {side} u USING (id) WHERE {where} GROUP BY id ORDER BY id {first}",
        side=_SIDES,
        where=_CONDITIONS,
        first=_chosen("", "DESC", "NULLS FIRST"),
    ),
    _filled(
        "SELECT t.id, t.x, max(u.n), count(u.id) FROM t {side} u ON {on} GROUP BY t.id ORDER BY t.id",
        side=_chosen("JOIN", "LEFT JOIN"),
        on=_ON,
    ),
    _filled(
        "SELECT DISTINCT ON ({key}) t.id, u.id FROM t {side} u ON {on} ORDER BY {key} {order}, t.id, u.id",
        key=_chosen("u.t", "t.p", "t.ok", "u.x"),
        side=_SIDES,
        on=_ON,
        order=_chosen("", "DESC", "NULLS FIRST"),
    ),
)

# --- Windows ----------------------------------------------------------------------------------------------------------

_PARTITION = _chosen("", "PARTITION BY ok ", "PARTITION BY id % 2 ", "PARTITION BY x, ok ", "PARTITION BY p > 0 ")
_DIRECTION = _chosen("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
_BOUNDS = _chosen(
    "UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "0 PRECEDING", "BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
    "BETWEEN 2 PRECEDING AND 1 PRECEDING", "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING", "BETWEEN 10 PRECEDING AND 3 FOLLOWING",
    "BETWEEN 1 FOLLOWING AND CURRENT ROW",
)  # fmt: skip
_EXCLUDED = _chosen("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE TIES", " EXCLUDE GROUP")
_KEYS = _chosen("s", "i", "n", "p", "q", "x", "v", "ok", "id % 3", "length(x)")
# What does not depend on the order of equals.
_STEADY = _chosen(
    "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "count(*)", "count(i)", "sum(s)", "avg(i)", "min(n)",
    "max(x)", "sum(q)", "avg(q)", "sum(n / 100)", "max(i)",
)  # fmt: skip
_PLACED = _chosen(
    "row_number()", "ntile(3)", "lag(i)", "lead(n, 2)", "lag(x, 1, 'none')", "lag(s, 1, 0)", "first_value(p)",
    "last_value(q)", "nth_value(v, 2)", "sum(p)", "avg(p)", "min(p)", "max(q)", "sum(d / 1e300)", "avg(d / 1e300)",
)  # fmt: skip
_KINDS = _chosen("ROWS", "RANGE", "GROUPS")
windows = st.one_of(
    _filled(
        "SELECT id, {function} OVER ({partition}ORDER BY {key}{direction}) AS w FROM t ORDER BY id",
        function=_STEADY,
        partition=_PARTITION,
        key=_KEYS,
        direction=_DIRECTION,
    ),
    _filled(
        "SELECT id, {function} OVER ({partition}ORDER BY {key}{direction} {kind} {bounds}{excluded}) "
        "FROM t ORDER BY id",
        function=_STEADY,
        partition=_PARTITION,
        key=_KEYS,
        direction=_DIRECTION,
        kind=_chosen("RANGE", "GROUPS"),
        bounds=_BOUNDS,
        excluded=_EXCLUDED,
    ),
    _filled(
        "SELECT id, {function} OVER ({partition}ORDER BY {key}{direction}, id {kind} {bounds}{excluded}) "
        "FROM t ORDER BY id",
        function=_PLACED | _STEADY,
        partition=_PARTITION,
        key=_KEYS,
        direction=_DIRECTION,
        kind=_KINDS,
        bounds=_BOUNDS,
        excluded=_EXCLUDED,
    ),
    _filled(
        "SELECT ok, count(*), {outer} OVER (ORDER BY {key}, ok) FROM t GROUP BY ok ORDER BY ok",
        outer=_chosen("sum(count(*))", "rank()", "lag(max(id))", "sum(sum(s))", "row_number()"),
        key=_chosen("count(*)", "max(id) DESC", "sum(s)"),
    ),
    _filled(
        "SELECT s.id FROM (SELECT id, {function} OVER w AS r FROM t WINDOW w AS ({partition}ORDER BY {key}, id)) AS s "
        "WHERE s.r = 1 ORDER BY s.id",
        function=_chosen("row_number()", "count(*)", "rank()"),
        partition=_PARTITION,
        key=_KEYS,
    ),
)

# --- Subqueries and WITH ----------------------------------------------------------------------------------------------

_SCALARS = _chosen(
    "(SELECT i FROM u WHERE u.id = t.id)", "(SELECT i FROM u WHERE u.t = t.id)", "(SELECT max(i) FROM u)",
    "(SELECT n::integer FROM u WHERE u.x = t.x)", "(SELECT o.i FROM t AS o WHERE o.id = t.id - 1)",
    "(SELECT count(*) FROM t AS o WHERE o.id < t.id)", "(SELECT o.i FROM t AS o WHERE o.s = t.s)",
    "(SELECT i FROM u ORDER BY id LIMIT 1)", "(SELECT i FROM u WHERE i = 10)",
    "(SELECT sum(o.s) FROM t AS o WHERE o.ok = t.ok)",
    "(SELECT u.i FROM u JOIN t AS o ON o.id = u.t WHERE u.id = t.id)", "(VALUES (5))", "(SELECT i FROM u WHERE false)",
)  # fmt: skip
subqueries = st.one_of(
    _filled("SELECT id, {value} AS value FROM t WHERE id <> 3 ORDER BY id", value=_SCALARS),
    _filled("SELECT id FROM t WHERE id = {value} OR i > {other} ORDER BY id", value=_SCALARS, other=_SCALARS),
    _filled(
        "WITH a AS (SELECT id, i FROM t WHERE id < {limit}), "
        "b (k) AS {materialized}(SELECT {value} FROM t WHERE id = 1) "
        "SELECT a.id, b.k FROM a {side} b ON a.i = b.k ORDER BY 1, 2",
        limit=_chosen("3", "5", "9"),
        materialized=_chosen("", "MATERIALIZED ", "NOT MATERIALIZED "),
        value=_SCALARS,
        side=_SIDES,
    ),
    _filled(
        "WITH RECURSIVE r (k, d) AS (SELECT id, 0 FROM u WHERE {start} {union} SELECT {following}, r.d + 1 FROM r "
        "JOIN u ON {step} WHERE r.d < 4) SELECT k, d FROM r ORDER BY k, d",
        start=_chosen("id = 1", "t = 1", "t IS NULL", "true"),
        union=_chosen("UNION", "UNION ALL"),
        following=_chosen("u.id", "u.t", "r.k + 1"),
        step=_chosen("u.t = r.k", "u.id = r.k", "u.id = r.k + 1", "u.i = r.k"),
    ),
)

# --- Changes ----------------------------------------------------------------------------------------------------------

_WHERE = _chosen(
    "", " WHERE id < 4", " WHERE id IN (SELECT t FROM u)", " WHERE i = (SELECT max(o.i) FROM t AS o)",
    " WHERE NOT EXISTS (SELECT 1 FROM t AS o WHERE o.i > t.i)",
)  # fmt: skip
_SOURCES = _chosen(
    "u", "(SELECT t AS id, max(i) AS i, max(n) AS n, max(x) AS x FROM u GROUP BY t) AS u",
    "(VALUES (1, 5, 6, 'v'), (2, NULL, 7, 'w'), (1, 5, 6, 'v')) AS u (id, i, n, x)",
    "u JOIN u AS w ON w.id = u.id", "(SELECT id, i, n, x FROM t) AS u",
)  # fmt: skip
changes = st.one_of(
    _filled("UPDATE t SET i = {value}{where} RETURNING id, i", value=_SCALARS, where=_WHERE),
    _filled(
        "UPDATE t SET i = {value}, n = {other}, x = 'set'{where} RETURNING id, i, n, x",
        value=_SCALARS,
        other=_SCALARS,
        where=_WHERE,
    ),
    _filled(
        "UPDATE t SET ({columns}) = (SELECT {values} FROM u WHERE {on}){where} RETURNING id, i, n, x",
        columns=_chosen("i, n", "n, i"),
        values=_chosen("u.i, u.n", "max(u.i), min(u.n)", "t.n, u.i", "1 AS a, NULL AS b"),
        on=_chosen("u.id = t.id", "u.t = t.id", "false"),
        where=_WHERE,
    ),
    _filled(
        "UPDATE t SET i = {value} FROM {source} WHERE {on} RETURNING t.id, t.i",
        value=_chosen(
            "u.i", "t.i + 1", "u.n", "7", "coalesce(u.i, t.s)", "(SELECT max(o.i) FROM t AS o WHERE o.id = u.id)"
        ),
        source=_SOURCES,
        on=_chosen("u.id = t.id", "u.i = t.i", "u.x = t.x", "u.id < t.id", "u.id = 1"),
    ),
    _filled(
        "DELETE FROM t USING {source} WHERE {on} RETURNING t.id",
        source=_SOURCES,
        on=_chosen("u.id = t.id", "u.i = t.i", "u.x = t.x", "u.id < t.id", "u.id = 1 AND t.ok"),
    ),
    _filled("DELETE FROM t{where} RETURNING id", where=_WHERE),
    _filled(
        "INSERT INTO u (id, i, n) VALUES {rows} ON CONFLICT (id) DO {action} RETURNING id, i, n",
        rows=st.lists(
            _filled(
                "({id}, {i}, {n})",
                id=_chosen("1", "2", "3", "50", "51"),
                i=_chosen("1", "NULL", "DEFAULT"),
                n=_chosen("5", "(SELECT max(n) FROM u)"),
            ),
            min_size=1,
            max_size=3,
        ).map(", ".join),
        action=_chosen("NOTHING", "UPDATE SET i = excluded.i", "UPDATE SET n = u.n + excluded.n, i = u.id"),
    ),
    _filled(
        "INSERT INTO u (id, i) SELECT {id}, {i} FROM {source} ON CONFLICT (id) DO {action} RETURNING id, i",
        id=_chosen("t.id", "t.id + 100", "t.id % 3"),
        i=_chosen("t.i", "1", "t.s"),
        source=_chosen("t", "t WHERE t.id < 3", "t JOIN u AS o ON o.id = t.id"),
        action=_chosen("NOTHING", "UPDATE SET i = excluded.i"),
    ),
)

# --- Rows, and set operations side by side ----------------------------------------------------------------------------

_LEFT_ROWS = _chosen("(s, x)", "(i, n)", "(n, p)", "(x, ok)", "(p, q)", "(id, i)", "(v, s)")
_RIGHT_ROWS = _chosen(
    "(1, 'abc')", "(10, 100)", "(NULL, 1.5)", "(i, n)", "(0, 0)", "('abc', true)", "(1.50, 9.990)", "(s, x)",
    "('ab', 1)", "(2, NULL)", "(n, q)", "(6, 0)",
)  # fmt: skip
rows = st.one_of(
    _filled(
        "SELECT id, {left} {operator} {right} AS r FROM t ORDER BY id",
        left=_LEFT_ROWS,
        operator=_chosen("=", "<>", "<", "<=", ">", ">="),
        right=_RIGHT_ROWS,
    ),
    _filled(
        "SELECT id FROM t WHERE {left} {word} ({first}, {second}) ORDER BY id",
        left=_LEFT_ROWS,
        word=_chosen("IN", "NOT IN"),
        first=_RIGHT_ROWS,
        second=_RIGHT_ROWS,
    ),
    _filled(
        "SELECT id FROM t WHERE ({left}) {word} (SELECT {columns} FROM u WHERE {where}) ORDER BY id",
        left=_chosen("id, i", "i, n", "x, id"),
        word=_chosen("IN", "NOT IN"),
        columns=_chosen("id, i", "t, i", "i, n", "x, id", "NULL::integer, id"),
        where=_chosen("true", "id < 3", "i IS NOT NULL AND x IS NOT NULL", "false"),
    ),
)
_QUERIES = _chosen(
    "SELECT 1", "SELECT 2", "SELECT i FROM u", "SELECT id FROM t WHERE id < 4", "VALUES (1), (10), (NULL)",
    "SELECT n FROM u", "SELECT NULL", "(SELECT i FROM t ORDER BY id LIMIT 2)", "(SELECT 1 UNION ALL SELECT 1)",
    "(SELECT id FROM t WHERE id < 4 EXCEPT SELECT 2)", "(SELECT i FROM u EXCEPT (SELECT 1 EXCEPT SELECT 1))",
    "(SELECT i FROM u INTERSECT (SELECT 1 UNION SELECT 10))",
)  # fmt: skip
_OPERATIONS = _chosen("UNION", "UNION ALL", "EXCEPT", "INTERSECT")
set_operations = st.lists(st.tuples(_OPERATIONS, _QUERIES), min_size=1, max_size=4).flatmap(
    lambda pairs: _QUERIES.map(
        lambda first: " ".join([first, *(word for pair in pairs for word in pair), "ORDER BY 1"])
    )
)
numeric_unions = st.lists(
    _chosen("SELECT p FROM u", "SELECT 1.5", "SELECT i FROM u", "SELECT q FROM t"), min_size=2, max_size=3
).map(lambda parts: f"SELECT count(*), sum(s.c) FROM ({' UNION '.join(parts)}) AS s (c)")
