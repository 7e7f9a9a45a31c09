"""Statements that nobody thought of: typed expressions, functions, conditions, operators in a row, updates, aggregates.

Expressions are text, as a user writes them. Most have the types that PostgreSQL wants; some have not, and then both
engines must fail. Numbers lean towards the edges of their types.
"""

from hypothesis import strategies as st

CREATE = (
    "CREATE TABLE t (id integer PRIMARY KEY, s smallint, i integer, n bigint, d double precision, p numeric, "
    "q numeric(6,2), x text, v varchar(4), ok boolean, at timestamptz, j jsonb, tags text[])"
)
INSERT = (
    "INSERT INTO t VALUES (1, 1, 10, 100, 1.5, 1.50, 9.99, 'abc', 'ab', true, '2030-01-31 10:20:30.456789+00', "
    '\'{"a": 1, "b": [1, 2.50, null, {"c": "x"}], "c": {"a": true, "b": {}}}\', \'{a,b}\'), '
    "(2, -3, -7, -9, -0.25, -1.5, -0.01, 'ABC', 'Ab', false, '2028-02-29 00:00:00+00', "
    "'[1, \"a\", [2, [3]], {\"a\": null}, -1.0]', '{}'), "
    "(3, 32767, 2147483647, 9223372036854775807, 1e308, 12345678901234567890.123456789, 9999.99, 'zé', '', NULL, "
    "'1999-12-31 23:59:59.999999+00', '\"a\"', '{NULL,\"a b\",é}'), "
    "(4, -32768, -2147483648, -9223372036854775808, -1e308, -0.000000001, 0.00, '', 'a%', true, "
    "'1969-07-20 20:17:40+00', '{}', '{a}'), "
    "(5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
    "(6, 0, 0, 0, 0, 0, 0.5, 'a_c', 'abc', false, '1970-01-01 00:00:00+00', '[]', '{c,b,a}')"
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
        | _called(inner, ["greatest({}, 5)", "least({}, i, -2)", "mod({}, 7)", "floor({})", "sign({})", "trunc({})"])
    ),
    max_leaves=4,
)
numerics = st.recursive(
    _NUMERICS | _INTEGERS.map("({})::numeric".format),
    lambda inner: (
        _binary(inner, ["+", "-", "*", "/", "%"])
        | _called(inner, ["abs({})", "(- {})", "round({})", "round({}, 2)", "round({}, -1)", "floor({})", "ceil({})"])
        | _called(inner, ["({})::numeric(12,3)", "({})::bigint", "({})::text::numeric"])
        | _called(inner, ["trunc({})", "trunc({}, 1)", "sign({})", "greatest({}, 1.50, p)", "mod({}, 2.5)"])
    ),
    max_leaves=4,
)
floats = st.recursive(
    _FLOATS | _INTEGERS.map("({})::double precision".format) | _NUMERICS.map("({})::double precision".format),
    lambda inner: (
        _binary(inner, ["+", "-", "*", "/"])
        | _called(inner, ["abs({})", "(- {})", "round({})", "floor({})", "ceil({})", "({})::numeric", "({})::integer"])
        | _called(inner, ["trunc({})", "sign({})", "sqrt(abs({}))", "least({}, d)", "to_jsonb({})"])
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
_PLACES = st.sampled_from(["0", "1", "2", "3", "-1", "-2", "s", "100", "-2147483648", "2147483647"])
_calls = st.one_of(
    st.tuples(
        st.sampled_from(["left({}, {})", "right({}, {})", "substr({}, {})", "lpad({}, {} % 9, 'y')"]),
        _TEXTS,
        _PLACES,
    ).map(lambda part: part[0].format(*part[1:])),
    st.tuples(_TEXTS, _PLACES, _PLACES).map(lambda part: f"substring({part[0]} from {part[1]} for {part[2]})"),
    st.tuples(
        st.sampled_from(
            ["strpos({}, {})", "replace({}, {}, 'z')", "btrim({}, {})", "ltrim({}, {})", "starts_with({}, {})",
             "concat({}, s, {}, ok, d)", "concat_ws(',', {}, i, {})", "split_part({}, {}, 1)", "greatest({}, {})"]
        ),
        _TEXTS,
        _TEXTS,
    ).map(lambda part: part[0].format(*part[1:])),
    _called(_TEXTS, ["reverse({})", "md5({})", "octet_length({})", "char_length({})", "repeat({}, 2)", "trim({})"]),
)  # fmt: skip

_SPANS = st.sampled_from(
    ["interval '1 day'", "interval '1 month'", "interval '-13 months 5 days'", "interval '02:30:00.5'",
     "interval '1 year'", "interval '100000 seconds'", "interval '1 month 40 days -1 second'"]
)  # fmt: skip
_spans = st.one_of(
    _SPANS,
    st.tuples(st.sampled_from(["s", "i % 1000", "q", "0.3", "-1.5", "d / 1e308", "1"]), _SPANS).map(
        lambda part: f"({part[0]}) * {part[1]}"
    ),
    st.tuples(_SPANS, st.sampled_from(["3", "7", "-0.7", "q + 1"])).map(lambda part: f"{part[0]} / ({part[1]})"),
    st.tuples(_SPANS, st.sampled_from("+-"), _SPANS).map(lambda part: f"({' '.join(part)})"),
    st.sampled_from(["(at - '2000-02-29')", "(at - at)", "('2030-06-01 12:00+02' - at)"]),
)
_moments = st.recursive(
    st.sampled_from(["at", "'2028-02-29 12:00:00+00'::timestamptz", "'2030-01-31'::timestamptz", "to_timestamp(q)"]),
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-"), _spans).map(lambda part: f"({' '.join(part)})")
        | _called(
            inner, [f"date_trunc('{unit}', {{}})" for unit in ("minute", "day", "week", "month", "quarter", "year")]
        )
    ),
    max_leaves=3,
)
times = st.one_of(
    _moments,
    _called(
        _moments,
        [f"extract({field} FROM {{}})" for field in ("epoch", "dow", "doy", "week", "second", "month", "isoyear")]
        + ["({})::text", "to_jsonb({})", "greatest({}, at)"],
    ),
    _called(_spans, [f"extract({field} FROM {{}})" for field in ("epoch", "month", "year", "day", "hour", "second")]),
    _binary(_moments, ["<", "=", "IS DISTINCT FROM"]),
    _binary(_spans, ["<", "=", ">="]),
)

_LITERALS = st.sampled_from(
    ["{}", "[]", '{"a": 1}', '{"b": [2.5]}', '[1, "a"]', "5", '"a"', "null", "true", "[[3]]", '{"c": {"a": true}}']
).map("'{}'".format)  # fmt: skip
_KEYS_AND_PLACES = st.sampled_from(["'a'", "'b'", "'c'", "''", "0", "1", "-1", "3", "x", "s"])
_PATHS = st.sampled_from(
    ["'{a}'", "'{b,1}'", "'{c,b}'", "'{b,3,c}'", "'{}'", "'{2,1,0}'", "'{-1}'", "'{c,new}'", "ARRAY['c', 'a']", "tags"]
)
_documents = st.recursive(
    st.sampled_from(["j", "j", "to_jsonb(x)", "to_jsonb(p)", "to_jsonb(s)", "to_jsonb(tags)", "to_jsonb(ok)"])
    | _LITERALS.map("{}::jsonb".format),
    lambda inner: st.one_of(
        st.tuples(inner, _KEYS_AND_PLACES).map(lambda part: f"({part[0]} -> {part[1]})"),
        st.tuples(inner, _KEYS_AND_PLACES).map(lambda part: f"({part[0]} - {part[1]})"),
        st.tuples(inner, st.sampled_from(["#>", "#-"]), _PATHS).map(lambda part: f"({' '.join(part)})"),
        _binary(inner, ["||"]),
        st.tuples(inner, _PATHS, _LITERALS, st.sampled_from(["", ", true", ", false"])).map(
            lambda part: f"jsonb_set({part[0]}, {part[1]}, {part[2]}{part[3]})"
        ),
        st.tuples(inner, inner).map(lambda part: f"jsonb_build_object('k', {part[0]}, 'a', {part[1]}, 'x', x, 'd', q)"),
        inner.map("jsonb_build_array({}, NULL, x, s)".format),
        inner.map("jsonb_strip_nulls({})".format),
    ),
    max_leaves=3,
)
documents = st.one_of(
    _documents,
    st.tuples(_documents, st.sampled_from(["->>"]), _KEYS_AND_PLACES).map(lambda part: f"({' '.join(part)})"),
    st.tuples(_documents, st.sampled_from(["#>>"]), _PATHS).map(lambda part: f"({' '.join(part)})"),
    st.tuples(_documents, st.sampled_from(["@>", "<@", "=", "<>"]), _LITERALS | _documents).map(
        lambda part: f"({' '.join(part)})"
    ),
    st.tuples(_documents, st.sampled_from(["'a'", "'b'", "x", "''"])).map(lambda part: f"({part[0]} ? {part[1]})"),
    _called(
        _documents,
        ["jsonb_typeof({})", "({})::text", "jsonb_array_length({})", "({} -> 'a')::integer", "({} ->> 'a')::numeric"],
    ),
)

_LISTS = st.sampled_from(
    ["tags", "'{a,b}'::text[]", "ARRAY[x, v]", "ARRAY['a', NULL]", "ARRAY[]::text[]", "(tags || 'a'::text)",
     "array_remove(tags, 'a')", "array_append(tags, x)", "(tags || ARRAY['z'])"]
)  # fmt: skip
lists = st.one_of(
    _LISTS,
    st.tuples(st.sampled_from(["x", "v", "'a'"]), st.sampled_from(["= ANY", "<> ALL"]), _LISTS).map(
        lambda part: f"({part[0]} {part[1]} ({part[2]}))"
    ),
    _binary(_LISTS, ["=", "<>", "@>", "<@", "IS DISTINCT FROM"]),
    _called(_LISTS, ["cardinality({})", "array_length({}, 1)", "array_position({}, 'a')", "to_jsonb({})"]),
    st.tuples(st.sampled_from(["i", "n", "s"]), st.lists(_INTEGERS | st.just("NULL"), min_size=1, max_size=3)).map(
        lambda part: f"({part[0]} <> ALL (ARRAY[{', '.join(part[1])}]))"
    ),
)
computed = st.one_of(_calls, times, documents, lists)

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
    st.sampled_from(["x ILIKE 'A%'", "v ILIKE x", "j ? 'a'", "j @> '[1]'", "'a' = ANY (tags)", "at < '2000-01-01'"]),
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

_OTHER_LEAVES = st.tuples(
    st.sampled_from(["", "", "", "", "NOT ", "- "]),
    st.sampled_from(["j", "j", "'a'", "'{}'", "0", "s", "x", "tags", "at", "interval '1 day'", "'{a,b}'", "2", "NULL"]),
    st.sampled_from(["", "", "", "", "", "::jsonb", "::text", "::text[]", " IS NULL", " IN ('a')", " LIKE 'a'", "[1]"]),
).map("".join)
_OTHER_WORDS = st.sampled_from(
    ["->", "->", "->>", "->>", "#>", "#>>", "#-", "@>", "<@", "?", "?|", "||", "-", "+", "*", "=", "<>", "<", "AND",
     "= ANY", "IS DISTINCT FROM", "ILIKE"]
)  # fmt: skip
other_soup = st.lists(st.tuples(_OTHER_LEAVES, _OTHER_WORDS), min_size=1, max_size=3).flatmap(
    lambda pairs: _OTHER_LEAVES.map(lambda last: " ".join([word for pair in pairs for word in pair] + [last]))
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
    st.sampled_from(["", "", " FILTER (WHERE id > 2)", " FILTER (WHERE ok)"]),
).map(lambda part: f"{part[0]}({part[1]}{part[2]}){part[3]}") | st.sampled_from(
    ["bool_and(ok)", "bool_or(s > 0)", "string_agg(x, ',' ORDER BY id)", "array_agg(q ORDER BY id DESC)",
     "jsonb_agg(j ORDER BY id)", "jsonb_object_agg(id, x ORDER BY id)", "array_agg(DISTINCT s ORDER BY s)",
     "jsonb_agg(p ORDER BY s, id) FILTER (WHERE ok)", "string_agg(v, x ORDER BY x DESC, id)"]
)  # fmt: skip
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
