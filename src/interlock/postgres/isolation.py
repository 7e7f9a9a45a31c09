"""The isolation level of a user's statement on PostgreSQL, so that no update is lost (D1), and turns after a conflict.

READ COMMITTED reads a row again after it has waited for it, and nothing else: a subquery, a CTE or another table keeps
its earlier snapshot. So it is used only for a statement on one table without any of these, and everything else is
SERIALIZABLE. An unknown function may contain a query, and makes a statement SERIALIZABLE too.

The text is read as tokens and never changed. A statement that is not recognised gets the stricter level: too strict
costs a retry, too loose costs an update. Statements that would leave state in a connection, which other callers get
next, or that would end the surrounding transaction, are refused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from interlock.clock import Clock
from interlock.sql.grammar import PLAIN_CALLS
from interlock.sql.parse import TEXT_LENGTH_MAX
from interlock.sql.types import refuse

PLANS_MAX: Final = 1024

Kind = Literal["read", "write", "schema"]


class Parameter(NamedTuple):
    """One of the values that are passed beside the text."""

    place: int
    """From 0."""


class Plan(NamedTuple):
    """The plan for running one statement."""

    kind: Kind
    serializable: bool
    table: str | None = None
    """The one table that a statement under READ COMMITTED is about, or another one changes, as it was written."""
    key: tuple["Parameter | int | str", ...] = ()
    """What the row is chosen by: parameters, and values that stand in the text. With them a hot row has a name."""
    seeks: bool = False
    """It changes rows that it finds: to find none may mean that the row was replaced while it waited."""


_READS: Final = frozenset({"SELECT", "VALUES", "TABLE", "WITH", "(", "SHOW"})
_CHANGES: Final = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_BEYOND: Final = frozenset(
    {
        "SELECT", "FROM", "USING", "WITH", "JOIN", "TABLE", "UNION", "INTERSECT", "EXCEPT", "LATERAL", "ONLY", "INTO",
        "TABLESAMPLE", "MERGE", "CURRENT",
    }
)  # fmt: skip
"""Words that may bring a second table, or a second look at the first one."""

_AFTER_TABLES: Final = frozenset({"WHERE", "GROUP BY", "ORDER BY", "LIMIT"})

_REFUSED: Final = {
    **dict.fromkeys(
        ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"),
        ("it controls the transaction", "Use transact for several statements; each call is one whole transaction."),
    ),
    **dict.fromkeys(
        ("SET", "RESET", "DISCARD", "LISTEN", "UNLISTEN", "PREPARE", "EXECUTE", "DEALLOCATE", "DECLARE", "FETCH",
         "MOVE", "CLOSE", "LOAD"),
        ("it changes a connection that others get after this call", "Write the value into the statement."),
    ),
    **dict.fromkeys(
        ("COPY", "VACUUM", "CLUSTER", "REINDEX", "CHECKPOINT", "CALL", "DO", "NOTIFY"),
        ("it cannot be one statement of a transaction here", "Run it with psql or another client."),
    ),
}  # fmt: skip
_SESSION: Final = frozenset(
    {"set_config", "currval", "lastval", "pg_advisory_lock", "pg_try_advisory_lock", "pg_advisory_lock_shared",
     "pg_try_advisory_lock_shared", "pg_advisory_unlock", "pg_advisory_unlock_all", "pg_advisory_unlock_shared"}
)  # fmt: skip
_VOLATILE: Final = frozenset({"CLOCK_TIMESTAMP", "GEN_RANDOM_UUID", "NEXTVAL", "RANDOM", "SETVAL"})
_TEMPORARY: Final = frozenset({"TEMP", "TEMPORARY"})
_SIMPLE: Final = frozenset(name.upper() for name in PLAIN_CALLS) | frozenset(
    {
        "ABS", "BTRIM", "CEIL", "CEILING", "CLOCK_TIMESTAMP", "CONCAT", "CONCAT_WS", "DATE_TRUNC", "DECODE", "ENCODE",
        "FLOOR", "GEN_RANDOM_UUID", "JSONB_BUILD_ARRAY", "JSONB_BUILD_OBJECT", "JSONB_SET", "LENGTH", "LOWER", "LTRIM",
        "MAKE_INTERVAL", "MD5", "MOD", "NOW", "POWER", "RANDOM", "ROUND", "RTRIM", "SIGN", "SQRT", "STARTS_WITH",
        "STATEMENT_TIMESTAMP", "STRPOS", "SUBSTR", "TO_TIMESTAMP", "TRANSACTION_TIMESTAMP", "TRUNC", "UPPER",
        "COUNT", "SUM", "MIN", "MAX", "AVG", "BOOL_AND", "BOOL_OR", "STRING_AGG", "ARRAY_AGG", "JSONB_AGG",
        "CARDINALITY", "JSONB_ARRAY_LENGTH", "JSONB_TYPEOF", "TO_JSONB", "NEXTVAL", "PG_SLEEP", "INT2", "INT4", "INT8",
        "OVERLAY", "SUBSTRING", "FLOAT8", "BOOL", "TIMESTAMPTZ", "BPCHAR", "BYTEA", "UUID", "JSONB", "SETVAL",
    }
)  # fmt: skip
"""Functions of PostgreSQL's own that look at no table, and types that are written like one."""

SIMPLE_NAMES: Final = tuple(sorted(name.lower() for name in _SIMPLE))
"""The same as PostgreSQL spells them. A function of the user with such a name may be meant instead."""

_OPENING: Final = frozenset(
    {
        "ALL", "AND", "ANY", "ARRAY", "AS", "BETWEEN", "CASE", "CAST", "COALESCE", "CURRENT_TIME", "CURRENT_TIMESTAMP",
        "DISTINCT", "ELSE", "EXCEPT", "EXISTS", "FROM", "GREATEST", "GROUP BY", "GROUPING", "HAVING", "IN",
        "INTERSECT", "LEAST", "LIMIT", "LOCALTIME", "LOCALTIMESTAMP", "NOT", "NULLIF", "OFFSET", "ON", "OR",
        "ORDER BY", "PARTITION BY", "POSITION", "RETURNING", "ROW", "SELECT", "SOME", "THEN", "TRIM", "UNION", "USING",
        "VALUES", "WHEN", "WHERE",
        "BIT", "CHAR", "CHARACTER", "CHARACTER VARYING", "DEC", "DECIMAL", "FLOAT", "INTERVAL", "NUMERIC", "TIME",
        "TIMESTAMP", "VARCHAR",
    }
)  # fmt: skip
"""Words in front of a parenthesis that PostgreSQL never takes for the name of a function. Most key words can be one."""

_OPENING_AFTER: Final = {"CONFLICT": "ON", "FILTER": ")", "OVER": ")"}
"""The same for words that can be a name, but not after this word."""

_QUERIES: Final = (["SELECT"], ["VALUES"], ["WITH"], ["TABLE"])
"""After an opening parenthesis these begin a query: as arguments of a call they would need a second parenthesis."""

_SIGNS: Final = frozenset("+-*/<>=~!@#%^&|?,()[]:.")
_SPACE: Final = " \t\n\r\f"


@lru_cache(maxsize=PLANS_MAX)
def plan_of(sql: str) -> Plan:
    """Return the plan of a statement. Raises DialectError for one that cannot run inside a transaction."""
    if len(sql) > TEXT_LENGTH_MAX:
        raise refuse(
            f"a statement of {len(sql):,} characters; the limit is {TEXT_LENGTH_MAX:,}.", fix="Use parameters."
        )
    if "\x00" in sql or any("\ud800" <= letter <= "\udfff" for letter in sql):
        raise refuse("a statement with a NUL or a lone surrogate in it.", fix="Pass values as parameters.")
    try:
        tokens = Postgres().tokenize(sql)
    except SqlglotError:
        return Plan("write", serializable=True)  # PostgreSQL will say what is wrong with it.
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    words = [_word(token) for token in tokens]
    if not words:
        raise refuse("the statement is empty.", fix="Pass one statement.")
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise refuse(
            "several statements in one string.",
            why="Each statement has its own parameters and result.",
            fix="Pass them one by one, inside transact() if they belong together.",
        )
    _refuse(tokens, words)
    kind = _kind(words)
    if any(letter.isspace() and letter not in _SPACE for letter in sql):
        return Plan(kind, serializable=kind != "schema")  # It is a letter of a name to PostgreSQL, and here it is not.
    if (
        words[0] in {"SELECT", "VALUES"}
        and not (_BEYOND - {"SELECT"}) & set(words)
        and words.count("SELECT") + words.count("VALUES") == 1
        and _only_known_calls(words, 0)
    ):
        return Plan(kind, serializable=False)  # It looks at no table at all.
    table, end = _target(tokens, words) if kind != "schema" else (None, 0)
    if table is None or not _is_simple(words, end):
        named = _changed_table(tokens, words) if kind == "write" else None
        key = () if named is None else tuple(dict.fromkeys(_key(tokens, words)))
        return Plan(kind, serializable=kind != "schema", table=named, key=key)
    seeks = words[0] in {"UPDATE", "DELETE"}
    if seeks and "WHERE" in words and _VOLATILE & set(words[words.index("WHERE") :]):
        return Plan(kind, serializable=True)  # It would find another row each time it is run.
    return Plan(kind, serializable=False, table=table, key=_key(tokens, words), seeks=seeks)


def _word(token: Token) -> str:
    # What stands in quotes is a name or a text, and never a word of the language.
    if token.token_type in {TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING}:
        return "''" if token.token_type is not TokenType.IDENTIFIER else '""'
    return token.text.upper() if token.text.isascii() else token.text  # PostgreSQL knows no other capitals.


def _refuse(tokens: Sequence[Token], words: Sequence[str]) -> None:
    reason = _REFUSED.get(words[0])
    if reason is None and _makes_temporary(tokens, words):
        reason = ("it makes something in a connection that others get after this call", "Make an ordinary table.")
    if reason is not None:
        raise refuse(f"{words[0]} cannot be run here: {reason[0]}.", fix=reason[1])
    for token, following in zip(tokens, words[1:], strict=False):
        name = token.text if token.token_type is TokenType.IDENTIFIER else token.text.lower()
        if following == "(" and name in _SESSION:
            raise refuse(
                f"{name} cannot be run here: it belongs to a connection, which others get after this call.",
                fix="Use RETURNING for numbers that the database gave, and `engine.lease` for locks.",
            )


def _makes_temporary(tokens: Sequence[Token], words: Sequence[str]) -> bool:
    if words[0] == "CREATE":
        named = [token.text.lower() for token, following in zip(tokens, words[1:], strict=False) if following == "."]
        return bool(_TEMPORARY & set(words[:4])) or "pg_temp" in named
    place = words.index("INTO") if "INTO" in words and words[0] != "INSERT" else len(words)
    return bool(_TEMPORARY & set(words[place + 1 : place + 3]))


def _kind(words: Sequence[str]) -> Kind:
    first = words[0]
    if first in _CHANGES or first == "EXPLAIN":  # With ANALYZE it runs what it explains.
        return "write"
    if first not in _READS:
        return "schema"
    # FOR SHARE locks rows and NEXTVAL takes a number, so neither can be in a transaction that only reads.
    writes = (_CHANGES | {"INTO", "SHARE", "NEXTVAL", "SETVAL"}) & set(words) or not _only_known_calls(words, 0)
    return "write" if writes else "read"


def _target(tokens: Sequence[Token], words: Sequence[str]) -> tuple[str | None, int]:
    """The one table that the statement names, and where the rest begins; None when it is not that simple."""
    match words[:2]:
        case ["INSERT", "INTO"]:
            return _name(tokens, words, 2)
        case ["UPDATE", _]:
            return _name(tokens, words, 1)
        case ["DELETE", "FROM"]:
            return _name(tokens, words, 2)
        case ["SELECT", *_] if words.count("FROM") == 1:
            place = words.index("FROM") + 1
            table, end = _name(tokens, words, place)
            # A comma after the table would begin a second table; after GROUP BY and ORDER BY it does not.
            rest = list(words[end:])
            until = next((i for i, word in enumerate(rest) if word in _AFTER_TABLES), len(rest))
            if "," in rest[:until] or (_BEYOND - {"FROM", "SELECT"}) & set(words) or words.count("SELECT") > 1:
                return None, 0
            return (table, -1) if _only_known_calls(words, 0) else (None, 0)
        case _:
            return None, 0


def _changed_table(tokens: Sequence[Token], words: Sequence[str]) -> str | None:
    """The table that a statement changes, whatever else it looks at: its hot row has a name too."""
    for place, word in enumerate(words):
        if word in _CHANGES and (place == 0 or words[place - 1] != "FOR"):
            following = place + (2 if words[place + 1 : place + 2] in (["INTO"], ["FROM"]) else 1)
            return _name(tokens, words, following)[0]
    return None


def _name(tokens: Sequence[Token], words: Sequence[str], place: int) -> tuple[str | None, int]:
    parts: list[str] = []
    while place < len(tokens):
        token = tokens[place]
        if token.token_type is TokenType.IDENTIFIER:
            parts.append('"' + token.text.replace('"', '""') + '"')
        elif words[place].isidentifier() and words[place] not in _BEYOND:
            parts.append(token.text)
        else:
            return None, 0
        place += 1
        if place >= len(tokens) or tokens[place].token_type is not TokenType.DOT:
            break
        place += 1
    if place < len(tokens) and tokens[place].token_type is TokenType.AMP:
        return None, 0  # The name is U&"...", and this was only the beginning of it.
    return ".".join(parts) or None, place


def _is_simple(words: Sequence[str], end: int) -> bool:
    """Return whether nothing after the table's name reads another table, or this one again."""
    if end < 0:
        return True  # A query that was looked at already.
    rest = words[end:]
    if _BEYOND & set(rest):
        return False
    # VALUES is the rows of an INSERT once; in parentheses it is a table.
    if rest.count("VALUES") > (words[0] == "INSERT"):
        return False
    return _only_known_calls(words, end)


def _only_known_calls(words: Sequence[str], begin: int) -> bool:
    """Return whether every word before a parenthesis is a key word, or a function that reads no table."""
    for place in range(max(begin, 1), len(words)):
        if words[place] != "(" or place == begin or words[place + 1 : place + 2] in _QUERIES:
            continue
        before, further = words[place - 1], words[place - 2] if place > 1 else ""
        if before in _SIMPLE:
            if further == "." and (place < 3 or words[place - 3] != "PG_CATALOG"):  # noqa: PLR2004 -- schema, dot, name.
                return False
        elif before == "SET":
            if words.index("SET") != place - 1 and further != "UPDATE":
                return False
        elif before in _OPENING_AFTER:
            if further != _OPENING_AFTER[before]:
                return False
        elif before not in _OPENING and not all(letter in _SIGNS for letter in before):
            return False
    return True


def _key(tokens: Sequence[Token], words: Sequence[str]) -> tuple[Parameter | int | str, ...]:
    """Return the values that choose the row: of `column = value` after WHERE, or of an upsert's key."""
    if words[0] == "INSERT":
        return _upsert_key(words)
    if "WHERE" not in words or "OR" in words:
        return ()
    equal = [place + 1 for place in range(words.index("WHERE"), len(words) - 1) if words[place] == "="]
    found = [_value(tokens, words, place) for place in equal]
    return tuple([value for value in found if value is not None])


def _value(tokens: Sequence[Token], words: Sequence[str], place: int) -> Parameter | int | str | None:
    if words[place] == "$" and place + 1 < len(words) and words[place + 1].isdigit():
        return Parameter(int(words[place + 1]) - 1)
    if tokens[place].token_type is TokenType.STRING:
        return tokens[place].text
    return int(words[place]) if words[place].isdigit() else None


def _upsert_key(words: Sequence[str]) -> tuple[Parameter, ...]:
    if "CONFLICT" not in words or "VALUES" not in words:
        return ()
    columns = _list_items(words, words.index("("))
    values = _list_items(words, words.index("VALUES") + 1)
    keys = _list_items(words, words.index("CONFLICT") + 1)
    found = [values[columns.index(name)] for name in keys if name in columns and len(values) == len(columns)]
    return tuple([Parameter(int(value[1:]) - 1) for value in found if value.startswith("$") and value[1:].isdigit()])


def _list_items(words: Sequence[str], place: int) -> list[str]:
    """Return the items between commas in the parentheses that open here."""
    found: list[str] = []
    depth = 0
    for word in words[place:]:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0:
            break
        if depth == 1 and word in {"(", ","}:
            found.append("")
        else:
            found[-1] += word
    return found


# --- Turns after a conflict ------------------------------------------------------------------------------------------
# SERIALIZABLE runs transactions concurrently and rolls conflicting ones back. That is fast while conflicts are rare.
# When all of them change the same row, most work is thrown away, and some transactions never succeed. So after the
# first conflict a transaction waits for its turn: in this process for a lock, and between processes for a lock on a
# small table, which the server grants in order of request. The lock is acquired before the transaction reads
# anything, so that it sees the changes of its predecessor. A recently conflicting transaction waits for its turn
# from the start.
#
# SERIALIZABLE still guarantees correctness: turns only make conflicts rare.

HOT_S: Final = 1.0
"""Seconds after a conflict in which the same call takes its turn without trying first."""

CALLS_MAX: Final = 1024
"""Calls that are remembered as hot; the one that conflicted longest ago is forgotten."""

ATTEMPTS_MAX: Final = 30
PAUSE_S_MAX: Final = 0.1

GATE: Final = "interlock_gate"
"""The table that stands for the turn between processes. It has no rows."""


class ConflictTurns:
    """The turns of one database in one process, shared by all its users in the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hot: OrderedDict[Hashable, float] = OrderedDict()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.conflicts = 0

    def is_hot(self, call: Hashable) -> bool:
        """Return whether this call conflicted a moment ago."""
        until_s = self._hot.get(call)
        if until_s is None:
            return False
        if until_s > self._clock.monotonic_s():
            return True
        self._hot.pop(call, None)
        return False

    def conflicted(self, call: Hashable) -> None:
        """Record that this call has just lost against another transaction."""
        self.conflicts += 1
        self._hot[call] = self._clock.monotonic_s() + HOT_S
        self._hot.move_to_end(call)
        if len(self._hot) > CALLS_MAX:
            self._hot.popitem(last=False)

    def lock(self) -> asyncio.Lock:
        """Return the lock of this event loop: one turn at a time."""
        loop = asyncio.get_running_loop()
        found = self._locks.get(loop)
        if found is None:
            found = self._locks[loop] = asyncio.Lock()
        return found


def pause_s(attempt: int, luck: float) -> float:
    """Return the seconds before the next attempt: full jitter, longer each time, up to a small bound."""
    return luck * min(PAUSE_S_MAX, 0.001 * 2.0**attempt)


_shared: OrderedDict[tuple[str, str], ConflictTurns] = OrderedDict()
_SHARED_MAX: Final = 256


def turns_of(url: str, schema: str, clock: Clock) -> ConflictTurns:
    """Return the turns of the schema at this address, shared by all its users in this process."""
    found = _shared.get((url, schema))
    if found is None:
        found = _shared[url, schema] = ConflictTurns(clock)
        if len(_shared) > _SHARED_MAX:
            _shared.popitem(last=False)
    else:
        _shared.move_to_end((url, schema))
    return found
