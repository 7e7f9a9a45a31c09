"""Statements that nobody thought of: typed expressions, conditions, operators in a row, updates, aggregates.

Expressions are text, as a user writes them. Most have the types that PostgreSQL wants; some have not, and then both
engines must fail. Numbers lean towards the edges of their types.
"""

from hypothesis import strategies as st

CREATE = (
    "CREATE TABLE t (id integer PRIMARY KEY, s smallint, i integer, n bigint, d double precision, p numeric, "
    "q numeric(6,2), x text, v varchar(4), ok boolean)"
)
INSERT = (
    "INSERT INTO t VALUES (1, 1, 10, 100, 1.5, 1.50, 9.99, 'abc', 'ab', true), "
    "(2, -3, -7, -9, -0.25, -1.5, -0.01, 'ABC', 'Ab', false), "
    "(3, 32767, 2147483647, 9223372036854775807, 1e308, 12345678901234567890.123456789, 9999.99, 'zé', '', NULL), "
    "(4, -32768, -2147483648, -9223372036854775808, -1e308, -0.000000001, 0.00, '', 'a%', true), "
    "(5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
    "(6, 0, 0, 0, 0, 0, 0.5, 'a_c', 'abc', false)"
)
SETUP = (CREATE, INSERT)

_INTEGERS = st.sampled_from(
    ["s", "i", "n", "0", "1", "2", "3", "7", "10", "2147483647", "2147483648", "9223372036854775807", "-1", "-5"]
)
_NUMERICS = st.sampled_from(["p", "q", "0.1", "1.50", "2.5", "-0.005", "1e10", "100.00"])
_FLOATS = st.sampled_from(["d", "0.5::double precision", "3::double precision", "1e200::double precision"])
_TEXTS = st.sampled_from(["x", "v", "'abc'", "'a'", "''", "'B'", "'a%'"])


def _binary(operands: st.SearchStrategy[str], operators: list[str]) -> st.SearchStrategy[str]:
    return st.tuples(operands, st.sampled_from(operators), operands).map(lambda part: f"({' '.join(part)})")


def _called(operands: st.SearchStrategy[str], functions: list[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(functions), operands).map(lambda part: part[0].format(part[1]))


integers = st.recursive(
    _INTEGERS,
    lambda inner: (
        _binary(inner, ["+", "-", "*", "/", "%"])
        | _called(inner, ["abs({})", "(- {})", "({})::bigint", "({})::integer", "({})::smallint", "(- ({}))"])
    ),
    max_leaves=4,
)
numerics = st.recursive(
    _NUMERICS | _INTEGERS.map("({})::numeric".format),
    lambda inner: (
        _binary(inner, ["+", "-", "*", "/", "%"])
        | _called(inner, ["abs({})", "(- {})", "round({})", "round({}, 2)", "round({}, -1)", "floor({})", "ceil({})"])
        | _called(inner, ["({})::numeric(12,3)", "({})::bigint", "({})::text::numeric"])
    ),
    max_leaves=4,
)
floats = st.recursive(
    _FLOATS | _INTEGERS.map("({})::double precision".format) | _NUMERICS.map("({})::double precision".format),
    lambda inner: (
        _binary(inner, ["+", "-", "*", "/"])
        | _called(inner, ["abs({})", "(- {})", "round({})", "floor({})", "ceil({})", "({})::numeric", "({})::integer"])
    ),
    max_leaves=4,
)
_mixed = st.one_of(integers, numerics, floats)
arithmetic = st.one_of(
    integers,
    numerics,
    floats,
    _binary(_mixed, ["+", "-", "*", "/"]),
    _binary(_mixed, ["=", "<", ">=", "<>", "IS DISTINCT FROM"]),
)

_texts = st.recursive(
    _TEXTS,
    # A condition on a numeric, whose collation must stay inside.
    lambda inner: _binary(inner, ["||"]) | _called(inner, ["(CASE WHEN p > 1 THEN {} ELSE '' END)"]),
    max_leaves=3,
)
_atoms = st.one_of(
    _binary(integers, ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]),
    _binary(numerics, ["=", "<", ">"]),
    _binary(_texts, ["=", "<>", "<", ">=", "LIKE", "NOT LIKE"]),
    st.sampled_from(["ok", "ok IS TRUE", "ok IS NOT TRUE", "ok IS NULL", "ok IS NOT NULL", "ok IS NOT FALSE", "true"]),
    st.tuples(_mixed, _mixed, _mixed).map(lambda part: f"({part[0]} BETWEEN {part[1]} AND {part[2]})"),
    st.tuples(_INTEGERS, st.lists(_INTEGERS | _NUMERICS | st.just("NULL"), min_size=1, max_size=3)).map(
        lambda part: f"({part[0]} NOT IN ({', '.join(part[1])}))"
    ),
    _called(
        _texts, ["({} IS NULL)", "(length({}) > 2)", "(coalesce({}, 'none') = 'none')", "(nullif({}, 'abc') IS NULL)"]
    ),
    st.sampled_from(["i", "x = 1", "ok = 1", "p = x", "nope"]),  # Wrong, and to be refused by both.
)
conditions = st.recursive(
    _atoms,
    lambda inner: _binary(inner, ["AND", "OR"]) | _called(inner, ["(NOT {})", "({} IS NULL)", "({} IS NOT TRUE)"]),
    max_leaves=4,
)

# No parentheses at all: whatever binds differently shows.
_WORDS = st.sampled_from(
    ["+", "-", "*", "/", "%", "||", "=", "<", ">=", "<>", "AND", "OR", "LIKE", "IS DISTINCT FROM", "AND NOT", "= NOT"]
)
_ENDINGS = st.sampled_from(
    ["", "", "", " IS NULL", " IS NOT NULL", " IS TRUE", " IS NOT FALSE", " BETWEEN 1 AND 3", " IN (1, 2)",
     " NOT IN (2)", " LIKE 'a%'", "::text", "::bigint"]
)  # fmt: skip
_LEAVES = st.tuples(
    st.sampled_from(["", "", "", "- ", "NOT "]),
    st.sampled_from(["i", "s", "3", "x", "'a'", "ok", "true", "p", "NULL"]),
    _ENDINGS,
).map("".join)
operator_soup = st.lists(st.tuples(_LEAVES, _WORDS), min_size=1, max_size=4).flatmap(
    lambda pairs: _LEAVES.map(lambda last: " ".join([word for pair in pairs for word in pair] + [last]))
)

_assignments = st.one_of(
    integers.map("s = {}".format),
    integers.map("i = {}".format),
    integers.map("n = {}".format),
    st.tuples(st.sampled_from("sin"), st.sampled_from(["+", "-"]), _INTEGERS).map(
        lambda p: f"{p[0]} = {p[0]} {p[1]} {p[2]}"
    ),
    _mixed.map("d = {}".format),
    _mixed.map("p = {}".format),
    _mixed.map("q = {}".format),
    _mixed.map("i = {}".format),
    _texts.map("x = {}".format),
    _texts.map("v = {}".format),
    integers.map("x = {}".format),
    st.tuples(_atoms, integers, integers).map(lambda p: f"n = CASE WHEN {p[0]} THEN {p[1]} ELSE {p[2]} END"),
    _atoms.map("ok = {}".format),
)
updates = st.tuples(_assignments, st.integers(0, 6)).map(
    lambda part: (
        f"UPDATE t SET {part[0]}" + (f" WHERE id = {part[1]}" if part[1] else "") + " RETURNING id, s, i, n, p, q, x, v"
    )
)

_aggregated = st.tuples(
    st.sampled_from(["sum", "avg", "min", "max", "count"]),
    st.sampled_from(["", "DISTINCT "]),
    st.sampled_from(["s", "i", "n", "p", "q", "x", "i + s", "n / 2", "p * 2"]),
).map(lambda part: f"{part[0]}({part[1]}{part[2]})")
_KEYS = st.sampled_from(["ok", "length(x)", "id % 2", "q"])
aggregates = st.one_of(
    st.lists(_aggregated, min_size=1, max_size=3).map(lambda items: f"SELECT {', '.join(items)} FROM t WHERE id <> 3"),
    st.tuples(_KEYS, _aggregated, _aggregated).map(
        lambda part: (
            f"SELECT {part[0]} AS k, {part[1]} FROM t WHERE id NOT IN (3, 4) "
            f"GROUP BY {part[0]} HAVING {part[2]} IS NOT NULL ORDER BY 1"
        )
    ),
    _aggregated.map(
        lambda item: f"SELECT ok, {item} AS a, count(*) FROM t WHERE id > 4 GROUP BY ok ORDER BY a DESC, ok"
    ),
)
