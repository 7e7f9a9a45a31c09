"""The isolation level of a user's statement on PostgreSQL, so that no update is lost (D1).

READ COMMITTED reads a row again after it has waited for it, and nothing else: a subquery, a CTE or another table keeps
its earlier snapshot. So it is used only for a statement on one table without any of these, and everything else is
SERIALIZABLE. An unknown function may contain a query, and makes a statement SERIALIZABLE too.

The text is parsed by PostgreSQL's own grammar and never changed. A statement that is not recognised gets the stricter
level: too strict costs a retry, too loose costs an update. Statements that would leave state in a connection, which
other callers get next, or that would end the surrounding transaction, are refused.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from interlock.clock import Clock
from interlock.errors import DialectError
from interlock.sql.parse import Body, Node, is_syntax_error, kind_of, names_of, parse, split, walk
from interlock.sql.stored_values import Answer
from interlock.sql.types import PLAIN_TYPES, refuse

PLANS_MAX: Final = 1024

Kind = Literal["read", "write", "schema"]


class StatementParameter(NamedTuple):
    """One of the values that are passed beside the text."""

    place: int
    """From 0."""


class StatementPlan(NamedTuple):
    """The plan for running one statement."""

    kind: Kind
    serializable: bool
    table: str | None = None
    """The one table that a statement under READ COMMITTED is about, or another one changes."""
    key: tuple["StatementParameter | int | str", ...] = ()
    """What the row is chosen by: parameters, and values that stand in the text. With them a hot row has a name."""
    seeks: bool = False
    """It changes rows that it finds: to find none may mean that the row was replaced while it waited."""
    adds_row_of: int | None = None
    """How many arguments it has, if it inserts one row or changes the one that is there: one row changes, or none."""


_CONTROL: Final = (
    "it controls the transaction",
    "Use transact for several statements; each call is one whole transaction.",
)
_SESSION: Final = ("it changes a connection that others get after this call", "Write the value into the statement.")
_ALONE: Final = ("it cannot be one statement of a transaction here", "Run it with psql or another client.")
_REFUSED: Final[dict[str, tuple[str, str]]] = {
    "TransactionStmt": _CONTROL,
    **dict.fromkeys(
        (
            "VariableSetStmt", "DiscardStmt", "ListenStmt", "UnlistenStmt", "PrepareStmt", "ExecuteStmt",
            "DeallocateStmt", "DeclareCursorStmt", "FetchStmt", "ClosePortalStmt", "LoadStmt", "ConstraintsSetStmt",
        ),
        _SESSION
    ),
    **dict.fromkeys(
        (
            "CopyStmt", "VacuumStmt", "ClusterStmt", "ReindexStmt", "CheckPointStmt", "CallStmt", "DoStmt",
            "NotifyStmt",
        ),
        _ALONE
    ),
}  # fmt: skip
_CHANGES: Final = frozenset({"InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"})
_READS: Final = frozenset({"SelectStmt", "VariableShowStmt"})
_BEYOND: Final = frozenset(
    {"SubLink", "RangeSubselect", "RangeFunction", "JoinExpr", "CommonTableExpr", "RangeTableSample", "CurrentOfExpr"}
)
"""Nodes that may bring a second table, or a second look at the first one."""

_SESSION_FUNCTIONS: Final = frozenset(
    {
        "set_config", "currval", "lastval", "pg_advisory_lock", "pg_try_advisory_lock", "pg_advisory_lock_shared",
        "pg_try_advisory_lock_shared", "pg_advisory_unlock", "pg_advisory_unlock_all", "pg_advisory_unlock_shared",
    }
)  # fmt: skip
_VOLATILE: Final = frozenset({"clock_timestamp", "gen_random_uuid", "nextval", "random", "setval"})
_SIMPLE: Final = frozenset(
    {
        "abs", "age", "array_agg", "array_append", "array_length", "array_position", "array_remove", "ascii", "avg",
        "bool", "bool_and", "bool_or", "bpchar", "btrim", "bytea", "cardinality", "ceil", "ceiling", "char_length",
        "character_length", "chr", "clock_timestamp", "concat", "concat_ws", "count", "cume_dist", "date", "date_part",
        "date_trunc", "decode", "dense_rank", "div", "encode", "every", "extract", "factorial", "first_value", "float8",
        "floor", "format", "gcd", "gen_random_uuid", "initcap", "int2", "int4", "int8", "jsonb", "jsonb_agg",
        "jsonb_array_length", "jsonb_build_array", "jsonb_build_object", "jsonb_object_agg", "jsonb_set",
        "jsonb_strip_nulls", "jsonb_typeof", "lag", "last_value", "lcm", "lead", "left", "length", "like_escape",
        "lower", "lpad", "ltrim", "make_date", "make_interval", "make_time", "make_timestamp", "max", "md5", "min",
        "mod", "nextval", "now", "nth_value", "ntile", "numeric", "octet_length", "overlay", "percent_rank",
        "pg_sleep", "position", "power", "random", "rank", "repeat", "replace", "reverse", "right", "round",
        "row_number", "rpad", "rtrim", "setval", "sign", "split_part", "sqrt", "starts_with", "statement_timestamp",
        "string_agg", "strpos", "substr", "substring", "sum", "text", "time", "timestamp", "timestamptz", "timezone",
        "to_char", "to_date", "to_jsonb", "to_number", "to_timestamp", "transaction_timestamp", "translate", "trunc",
        "upper", "uuid", "varchar",
    }
)  # fmt: skip
"""Functions of PostgreSQL's own that look at no table, and types that are written like one."""

SIMPLE_NAMES: Final = tuple(sorted(_SIMPLE))
"""The same as PostgreSQL spells them. A function of the user with such a name may be meant instead."""


@lru_cache(maxsize=PLANS_MAX)
def plan_of(sql: str) -> StatementPlan:
    """Return the plan of a statement. Raises DialectError for one that cannot run inside a transaction."""
    try:
        kind, body = split(parse(sql))
    except DialectError as error:
        if is_syntax_error(error):
            return StatementPlan("write", serializable=True)  # PostgreSQL will say what is wrong with it.
        raise
    found = list(walk(body))
    _refuse(kind, body, found)
    calls_are_known = all(_is_known(each, call) for each, call in found if each in {"FuncCall", "A_Expr", "TypeCast"})
    runs = _kind(kind, body, found, calls_are_known=calls_are_known)
    if kind not in _CHANGES | {"SelectStmt"}:
        return StatementPlan(runs, serializable=runs != "schema")
    target = body.get("relation") if kind != "SelectStmt" else _only_table(body)
    others = [each for each, _ in found if each in _BEYOND or each == "RangeVar"]
    reads_one = calls_are_known and kind != "MergeStmt" and "withClause" not in body
    if kind == "SelectStmt":
        if reads_one and not others and "intoClause" not in body:
            return StatementPlan(runs, serializable=False)  # It looks at no table at all.
        reads_one = reads_one and target is not None and others == ["RangeVar"] and "intoClause" not in body
    else:
        reads_one = reads_one and not others and not (kind == "InsertStmt" and not _has_plain_rows(body))
    if not reads_one or target is None or not target.get("inh"):
        table = None if runs != "write" else _changed_table(kind, body, found)
        key = () if table is None else tuple(dict.fromkeys(_key(kind, body)))
        return StatementPlan(runs, serializable=True, table=table, key=key)
    seeks = kind in {"UpdateStmt", "DeleteStmt"}
    if seeks and any(_name(call) in _VOLATILE for each, call in walk(body.get("whereClause")) if each == "FuncCall"):
        return StatementPlan(runs, serializable=True)  # It would find another row each time it is run.
    return StatementPlan(
        runs,
        serializable=False,
        table=_table_name(target),
        key=_key(kind, body),
        seeks=seeks,
        adds_row_of=_adds_row_of(body, found) if kind == "InsertStmt" and ";" not in sql else None,
    )


def _adds_row_of(body: Body, found: list[tuple[str, Body]]) -> int | None:
    values = body.get("selectStmt", {}).get("SelectStmt", {}).get("valuesLists", ())
    if len(values) != 1 or "returningList" in body:
        return None
    return max((each.get("number", 0) for kind, each in found if kind == "ParamRef"), default=0)


def _name(call: Body) -> str:
    return names_of(call["funcname"])[-1]


def _is_known(kind: str, call: Body) -> bool:
    """Return whether a call, operator or cast is PostgreSQL's own, and looks at no table."""
    if kind == "A_Expr":
        return len(call["name"]) == 1
    *prefix, name = names_of(call["typeName"]["names"] if kind == "TypeCast" else call["funcname"])
    known = name in _SIMPLE if kind == "FuncCall" else name in PLAIN_TYPES or prefix == ["pg_catalog"]
    return known and prefix in ([], ["pg_catalog"])


def _refuse(kind: str, body: Body, found: list[tuple[str, Body]]) -> None:
    reason = _REFUSED.get(kind)
    if reason is None and any(_is_temporary(each) for each in _made(kind, body)):
        reason = ("it makes something in a connection that others get after this call", "Make an ordinary table.")
    if reason is not None:
        raise refuse(f"{kind.removesuffix('Stmt').upper()} cannot be run here: {reason[0]}.", fix=reason[1])
    for each, call in found:
        if each == "FuncCall" and _name(call) in _SESSION_FUNCTIONS:
            raise refuse(
                f"{_name(call)} cannot be run here: it belongs to a connection, which others get after this call.",
                fix="Use RETURNING for numbers that the database gave, and `engine.lease` for locks.",
            )


def _made(kind: str, body: Body) -> Iterator[Body]:
    """Yield the tables, views and sequences that a statement makes."""
    for field in ("relation", "view", "sequence"):
        if kind in {"CreateStmt", "ViewStmt", "CreateSeqStmt"} and field in body:
            yield body[field]
    for holder in (body.get("into"), body.get("intoClause")):
        if holder is not None:
            yield holder["rel"]


def _is_temporary(relation: Body) -> bool:
    return relation.get("relpersistence") == "t" or relation.get("schemaname", "").startswith("pg_temp")


def _kind(kind: str, body: Body, found: list[tuple[str, Body]], *, calls_are_known: bool) -> Kind:
    if kind in _CHANGES or kind == "ExplainStmt":  # With ANALYZE it runs what it explains.
        return "write"
    if kind not in _READS:
        return "schema"
    # FOR SHARE locks rows and nextval() takes a number, so neither can be in a transaction that only reads.
    writes = (
        not calls_are_known
        or "intoClause" in body
        or "lockingClause" in body
        or any(each in _CHANGES or each == "LockingClause" for each, _ in found)
        or any(each == "FuncCall" and _name(call) in {"nextval", "setval"} for each, call in found)
    )
    return "write" if writes else "read"


def _only_table(body: Body) -> Body | None:
    """Return the one table in FROM; None when it is not that simple."""
    sources = body.get("fromClause", [])
    return sources[0]["RangeVar"] if len(sources) == 1 and kind_of(sources[0]) == "RangeVar" else None


def _has_plain_rows(body: Body) -> bool:
    """Return whether the rows of an INSERT are written, and not the result of a query."""
    return "selectStmt" not in body or set(body["selectStmt"]["SelectStmt"]) <= {"valuesLists", "limitOption", "op"}


def _changed_table(kind: str, body: Body, found: list[tuple[str, Body]]) -> str | None:
    """Return the table that a statement changes, whatever else it looks at: its hot row has a name too."""
    changes = [body] if kind in _CHANGES else [each for name, each in found if name in _CHANGES]
    return _table_name(changes[0]["relation"]) if changes else None


def _table_name(relation: Body) -> str:
    parts = [relation[field] for field in ("catalogname", "schemaname", "relname") if field in relation]
    return ".".join(part if _is_plain(part) else '"' + part.replace('"', '""') + '"' for part in parts)


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and name == name.lower()


# --- The key of a hot row --------------------------------------------------------------------------------------------


def _key(kind: str, body: Body) -> tuple[StatementParameter | int | str, ...]:
    """Return the values that choose the row: of `column = value` in WHERE, or of an upsert's key."""
    if kind == "InsertStmt":
        return _upsert_key(body)
    values = [_value(node) for node in _equated(body.get("whereClause"))]
    return tuple([value for value in values if value is not None])


def _equated(node: Node | None) -> Iterator[Node]:
    """Yield the right sides of the equalities that all have to hold."""
    if node is None:
        return
    kind, body = split(node)
    if kind == "BoolExpr" and body["boolop"] == "AND_EXPR":
        for part in body["args"]:
            yield from _equated(part)
    elif kind == "A_Expr" and body["kind"] == "AEXPR_OP" and names_of(body["name"]) == ["="] and "lexpr" in body:
        yield body["rexpr"]


def _value(node: Node) -> StatementParameter | int | str | None:
    kind, body = split(node)
    if kind == "ParamRef":
        return StatementParameter(body["number"] - 1)
    if kind != "A_Const":
        return None
    if "sval" in body:
        return str(body["sval"].get("sval", ""))
    return int(body["ival"].get("ival", 0)) if "ival" in body else None


def _upsert_key(body: Body) -> tuple[StatementParameter, ...]:
    infer = body.get("onConflictClause", {}).get("infer", {})
    if "cols" not in body or not _has_plain_rows(body) or "selectStmt" not in body:
        return ()
    columns = [node["ResTarget"]["name"] for node in body["cols"]]
    values = body["selectStmt"]["SelectStmt"]["valuesLists"][0]["List"]["items"]
    keys = [node["IndexElem"].get("name") for node in infer.get("indexElems", ())]
    found = [_value(values[columns.index(key)]) for key in keys if key in columns and len(values) == len(columns)]
    return tuple([value for value in found if isinstance(value, StatementParameter)])


# --- Plain tables, on which a statement has no effects beyond its own text (D1) --------------------------------------
# A view, a rule, a trigger or a condition that calls a user's function may read other rows without being visible in
# the statement, so every statement on such a table is SERIALIZABLE. The catalog is queried once per table and again
# after a while, because another session may add a trigger.

KNOWN_S: Final = 5.0
TABLES_MAX: Final = 1_000

PLAIN: Final = """
SELECT c.relkind = 'r' AND NOT c.relhasrules AND NOT c.relrowsecurity AND NOT c.relhassubclass
   AND NOT EXISTS (SELECT 1 FROM pg_trigger t
                   WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgname NOT LIKE 'interlock\\_touch%')
   AND NOT EXISTS (
     SELECT 1 FROM pg_constraint f
     WHERE f.confrelid = c.oid AND (f.confdeltype NOT IN ('a', 'r') OR f.confupdtype NOT IN ('a', 'r')))
   AND NOT EXISTS (
     SELECT 1 FROM pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid
     WHERE p.pronamespace <> 'pg_catalog'::regnamespace
       AND (d.classid = 'pg_constraint'::regclass AND d.objid IN (SELECT oid FROM pg_constraint WHERE conrelid = c.oid)
         OR d.classid = 'pg_attrdef'::regclass AND d.objid IN (SELECT oid FROM pg_attrdef WHERE adrelid = c.oid)
         OR d.classid = 'pg_class'::regclass AND d.objid IN (SELECT indexrelid FROM pg_index WHERE indrelid = c.oid)))
   AND NOT EXISTS (
     SELECT 1 FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
     WHERE p.oid >= 16384 AND l.lanname NOT IN ('internal', 'c')
       AND (EXISTS (SELECT 1 FROM pg_operator o WHERE o.oprcode = p.oid)
         OR EXISTS (SELECT 1 FROM pg_cast k WHERE k.castfunc = p.oid)
         OR EXISTS (SELECT 1 FROM pg_aggregate g JOIN pg_proc n ON n.oid = g.aggfnoid
                    WHERE p.oid IN (g.aggtransfn, g.aggfinalfn) AND n.proname = ANY ($2::text[]))
         OR EXISTS (SELECT 1 FROM pg_depend d JOIN pg_constraint k ON k.oid = d.objid
                    WHERE d.classid = 'pg_constraint'::regclass AND k.contypid <> 0
                      AND d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid)
         OR (SELECT n.nspname FROM pg_namespace n WHERE n.oid = p.pronamespace) = ANY (current_schemas(true))
            AND (p.proname = ANY ($2::text[])
              OR EXISTS (SELECT 1 FROM pg_type a WHERE a.oid = p.proargtypes[0] AND a.typtype IN ('c', 'p')))))
FROM pg_class c WHERE c.oid = to_regclass($1)"""
"""A cascade and a child table have triggers of their own. The last part finds calls that do not look like one:
operators, casts, domains, functions that are written like a column, and those with the name of a built-in one. What is
written in C looks at no table."""


class PlainTables:
    """Cached facts about the tables of one schema."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[bool, float]] = {}
        self._changes = 0

    def forget(self) -> None:
        """Forget all tables, because the schema was changed."""
        self._known.clear()
        self._changes += 1

    def known(self, table: str) -> bool | None:
        """Return whether the table is plain, from the cache; None if unknown."""
        found = self._known.get(table)
        return None if found is None or found[1] < self._clock.monotonic_s() else found[0]

    async def look_up(self, table: str, run: Callable[[str, Sequence[object]], Awaitable[Answer]]) -> bool:
        """Return whether the table is plain, from the catalog. A missing table is not plain."""
        before = self._changes
        rows = (await run(PLAIN, (table, SIMPLE_NAMES))).rows
        plain = bool(rows) and rows[0][0] is True
        if len(self._known) >= TABLES_MAX:
            self._known.clear()
        if rows and before == self._changes:  # Otherwise the answer may be older than the change.
            self._known[table] = (plain, self._clock.monotonic_s() + KNOWN_S)
        return plain
