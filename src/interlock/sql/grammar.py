"""PostgreSQL's grammar on tokens: refuse what sqlglot accepts and PostgreSQL does not.

sqlglot collects the clauses of a query in whatever order they come, takes LIMIT 1, 2 for MySQL's, and does without
many a word or parenthesis. A statement that PostgreSQL cannot read must not run, so the tokens are checked first.

Sections: words, names, checks.
"""

# ruff: noqa: SIM905 - words are easier to read, and to compare with the appendix, without quotes around each.

from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from interlock.sql.types import refuse, wrong

# --- Words: reserved ones, and names that may be called --------------------------------------------------------------
# A reserved word that is not quoted is never a name: `SELECT user` asks PostgreSQL for the session's user, whatever
# columns there are. The lists are those of PostgreSQL 18, appendix C; RESERVED is what is reserved there, also
# except as function or type.

RESERVED: Final = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
    column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
    current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
    from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
    localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
    returning right select session_user similar some symmetric system_user table tablesample then to trailing true union
    unique user using variadic verbose when where window with
    """.split()
)

# The rest of PostgreSQL's key words, which may be names. A word on neither list is a name and nothing else.
KEYWORDS: Final = RESERVED | frozenset(
    """
    abort absent absolute access action add admin after aggregate also alter always asensitive assertion
    assignment at atomic attach attribute backward before begin between bigint bit boolean breadth by cache call
    called cascade cascaded catalog chain char character characteristics checkpoint class close cluster coalesce
    columns comment comments commit committed compression conditional configuration conflict connection
    constraints content continue conversion copy cost csv cube current cursor cycle data database day deallocate
    dec decimal declare defaults deferred definer delete delimiter delimiters depends depth detach dictionary
    disable discard document domain double drop each empty enable encoding encrypted enforced enum error escape
    event exclude excluding exclusive execute exists explain expression extension external extract family filter
    finalize first float following force format forward function functions generated global granted greatest
    grouping groups handler header hold hour identity if immediate immutable implicit import include including
    increment indent index indexes inherit inherits inline inout input insensitive insert instead int integer
    interval invoker isolation json json_array json_arrayagg json_exists json_object json_objectagg json_query
    json_scalar json_serialize json_table json_value keep key keys label language large last leakproof least
    level listen load local location lock locked logged mapping match matched materialized maxvalue merge
    merge_action method minute minvalue mode month move name names national nchar nested new next nfc nfd nfkc
    nfkd no none normalize normalized nothing notify nowait nullif nulls numeric object objects of off oids old
    omit operator option options ordinality others out over overlay overriding owned owner parallel parameter
    parser partial partition passing password path period plan plans policy position preceding precision prepare
    prepared preserve prior privileges procedural procedure procedures program publication quote quotes range
    read real reassign recursive ref referencing refresh reindex relative release rename repeatable replace
    replica reset restart restrict return returns revoke role rollback rollup routine routines row rows rule
    savepoint scalar schema schemas scroll search second security sequence sequences serializable server session
    set setof sets share show simple skip smallint snapshot source sql stable standalone start statement
    statistics stdin stdout storage stored strict string strip subscription substring support sysid system
    tables tablespace target temp template temporary text ties time timestamp transaction transform treat
    trigger trim truncate trusted type types uescape unbounded uncommitted unconditional unencrypted unknown
    unlisten unlogged until update vacuum valid validate validator value values varchar varying version view
    views virtual volatile whitespace within without work wrapper write xml xmlattributes xmlconcat xmlelement
    xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable year yes zone
    """.split()
)
# Key words that PostgreSQL takes for an alias only after AS: SELECT n AS year.
AFTER_AS: Final = frozenset(
    "char character day filter hour minute month over precision second varying within without year".split()
)
# Types of PostgreSQL whose names are not key words, as far as they are accepted or refused with advice.
TYPES: Final = frozenset(
    """
    bigserial bool bpchar bytea date float4 float8 int2 int4 int8 jsonb serial smallserial timestamptz timetz uuid
    """.split()
)

# Scalar functions and aggregates of the subset.
# Functions that sqlglot must leave as they are written: it would read many of them as something of its own.
PLAIN_CALLS: Final = frozenset(
    """
    abs array_agg array_append array_length array_position array_remove bool_and bool_or btrim cardinality ceil ceiling
    char_length character_length concat concat_ws date_trunc every floor gen_random_uuid greatest jsonb_agg
    jsonb_array_length jsonb_build_array jsonb_build_object jsonb_object_agg jsonb_set jsonb_strip_nulls jsonb_typeof
    least left length lower lpad ltrim md5 mod now octet_length power random repeat replace reverse right round rpad
    rtrim sign split_part sqrt starts_with strpos substr to_jsonb to_timestamp trunc upper
    """.split()
)
FUNCTIONS: Final = PLAIN_CALLS | frozenset(
    """
    avg coalesce count extract max min nullif position string_agg substring sum trim
    """.split()
)
# PostgreSQL's operators on jsonb, beside those that numbers and texts have, too.
JSON_SYMBOLS: Final = frozenset({"->", "->>", "#>", "#>>", "#-", "@>", "<@", "?", "?|", "?&"})
# Functions that are called with OVER alone.
WINDOW_FUNCTIONS: Final = frozenset(
    """
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    """.split()
)
# Words that may stand before a parenthesis: functions, types with a length, and the grammar's own.
CALLABLE_NAMES: Final = FUNCTIONS | frozenset(
    """
    all and any as between by case cast check decimal distinct do else except exists filter from generate_series having
    in intersect into is join key left like limit not numeric offset on or order over references returning select set
    table then union unique unnest using values varchar varying when where with
    """.split()
)
# Words and signs that something must follow, and those that nothing begins with: one after the other is an empty place.
NEEDING_MORE: Final = frozenset(
    """
    , - and case collate distinct else except for from having ilike in intersect into is join like limit not offset on
    or references returning select then to union using when where window with
    """.split()
)
BEGINNING_NOTHING: Final = frozenset(
    """
    , ; ) ] and as asc collate desc else end except fetch for from having ilike in intersect into is join like limit
    offset on or returning then union using when where window
    """.split()
)
# Columns that every table of PostgreSQL has already, and SQLite's own names for a row's number.
SYSTEM_COLUMNS: Final = frozenset("ctid cmax cmin oid rowid _rowid_ tableoid xmax xmin".split())
# What RETURNING calls a row before and after the change.
SPECIAL_RELATIONS: Final = frozenset({"old", "new"})
INTERNAL_PREFIXES: Final = ("interlock_", "sqlite_", "pg_")


# --- Names, found before sqlglot sees the tokens ---------------------------------------------------------------------
# sqlglot's words are those of thirty dialects: it takes `log (a, b)` for a call, `list < 3` for a type, `xor` for an
# operator and `blob` for bytea. In PostgreSQL a word that is not a key word is always a name, and so is any word
# where only a table can stand. Such words become quoted identifiers here, folded as PostgreSQL folds them, so that
# no other dialect can give them a meaning. A name before a parenthesis is left unchanged: it may be a call.

_VALUES: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER})
# Key words of PostgreSQL's that other dialects take for types.
_NO_TYPES: Final = frozenset({"double", "object", "range", "string"})
_IF: Final = (["if", "not"], ["table", "if"])  # CREATE TABLE IF NOT EXISTS, DROP TABLE IF EXISTS
# Of the key words that may be names, those of the subset's grammar that a name can follow.
_BEFORE_NAME: Final = frozenset({"add", "between", "by", "exists", "index", "set", "update", "values"})
_CONSTANTS: Final = frozenset({"current_timestamp", "end", "false", "null", "true"})
_BOUNDS: Final = frozenset({"between", "current", "current row", "unbounded", "$"})
_WORDS_BEFORE_TABLE: Final = frozenset({"into", "table", "references"})


def folded(name: str) -> str:
    """The name as PostgreSQL folds it: the 26 letters only."""
    if name.isascii():
        return name.lower()
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def is_word(token: Token) -> bool:
    """Return whether the token is a key word or a name without quotes."""
    if token.token_type in _VALUES:
        return False
    first = token.text[:1]
    return first.isalpha() or first == "_" or ord(first or " ") > 127  # noqa: PLR2004 - the last ASCII character


def settle_names(tokens: Sequence[Token]) -> None:
    """Turn what can only be a name into an identifier, in place."""
    tables = _tables(tokens)
    for place, token in enumerate(tokens):
        if not is_word(token):
            continue
        word = folded(token.text)
        called = place + 1 < len(tokens) and tokens[place + 1].text == "("
        # sqlglot makes one token of `order by` or `double precision`.
        known = word in KEYWORDS or word in TYPES or len(word.split()) > 1
        plain = (word in _NO_TYPES and not _begins_frame(tokens, place)) or not known
        if (plain and not called) or (place in tables and word not in RESERVED):
            token.text = word
            token.token_type = TokenType.IDENTIFIER
        elif word in AFTER_AS and place and is_operand(tokens[place - 1]) and not _begins_clause(tokens, place):
            raise refuse(f"the alias {word.upper()} without AS.", fix=f"Write AS {word}.")


def _begins_clause(tokens: Sequence[Token], place: int) -> bool:
    """Return whether OVER or FILTER stands where it belongs: after a call, before a window or a condition."""
    word, following = folded(tokens[place].text), tokens[place + 1] if place + 1 < len(tokens) else None
    if tokens[place - 1].text != ")" or following is None:
        return False
    word_follows = is_word(following) and folded(following.text).split()[0] not in RESERVED
    named = word_follows or following.token_type is TokenType.IDENTIFIER
    return (following.text == "(" and word in {"over", "filter"}) or (word == "over" and named)


def _begins_frame(tokens: Sequence[Token], place: int) -> bool:
    """Return whether RANGE is the kind of a window's frame: after what the window sorts by, and before a bound."""
    if place < 2 or place + 1 >= len(tokens) or folded(tokens[place].text) != "range":  # noqa: PLR2004 - OVER and (
        return False
    following, before = tokens[place + 1], folded(tokens[place - 1].text)
    bounded = following.token_type is TokenType.NUMBER or folded(following.text) in _BOUNDS
    opened = before == "(" and folded(tokens[place - 2].text) in {"over", "as"}
    return bounded and (opened or before in {"asc", "desc"} or is_operand(tokens[place - 1]))


def is_operand(token: Token) -> bool:
    """Return whether a value may end with the token."""
    if not is_word(token):
        return token.token_type in _VALUES or token.text in {")", "]"}
    last = folded(token.text).split()[-1]
    return last in _CONSTANTS or (last not in RESERVED and last not in _BEFORE_NAME)


def _tables(tokens: Sequence[Token]) -> set[int]:
    """The places of words before a parenthesis that are tables by what stands around them, not calls."""
    words = [folded(token.text) if is_word(token) else token.text for token in tokens]
    indexed = words.index("on") if words[:1] == ["create"] and "index" in words[1:3] and "on" in words else None
    found: set[int] = set()
    for opening, end in _closing_bracket(words).items():
        name = opening - 1
        if name < 1 or not is_word(tokens[name]):
            continue
        is_table = words[name - 1] in _WORDS_BEFORE_TABLE or name - 1 == indexed
        is_created = words[name - 1] == "exists" and words[max(name - 3, 0) : name - 1][-2:] in _IF
        is_common = words[name - 1] in {"with", "recursive", ","} and _is_query(words[end + 1 : end + 5])
        if is_table or is_created or is_common:
            found.add(name)
    return found


def _is_query(words: Sequence[str]) -> bool:
    """Return whether these words begin the query of a WITH."""
    return words[:1] == ["as"] and "".join(words[1:]).startswith(("(", "materialized(", "notmaterialized("))


def _closing_bracket(words: Sequence[str]) -> dict[int, int]:
    """For each opening parenthesis its closing one."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for place, word in enumerate(words):
        if word == "(":
            opened.append(place)
        elif word == ")" and opened:
            closing[opened.pop()] = place
    return closing


# --- Checks ----------------------------------------------------------------------------------------------------------

# The order of the clauses of a SELECT; those of the last kind may come in any order.
_ORDER: Final[dict[str, int]] = {
    "from": 1, "join": 1, "where": 2, "group by": 3, "having": 4, "window": 5, "order by": 6, "limit": 7, "offset": 7,
    "fetch": 7, "for": 7,
}  # fmt: skip
_SET_OPERATIONS: Final = frozenset({"union", "intersect", "except"})
_BEFORE_TABLE: Final = RESERVED | {"update", "set", "delete", "insert"}
_FRAMES: Final = frozenset({"rows", "range", "groups"})


# How a string, a quoted name, a number and the end of the text stand among the words.
_STRING, _NAME, _NUMBER, _END = "'", '"', "0", ""
_MARKS: Final = {TokenType.STRING: _STRING, TokenType.IDENTIFIER: _NAME, TokenType.NUMBER: _NUMBER}
_OPERATORS: Final = frozenset({"=", "<>", "!=", "<", "<=", ">", ">=", "/", "%", "+", "||", "::"}) | JSON_SYMBOLS
_BY: Final = frozenset({"group by", "order by", "partition by"})
_OPEN: Final = _OPERATORS | _BY | NEEDING_MORE
_CLOSING: Final = _OPERATORS | _BY | BEGINNING_NOTHING | {_END}
_PAIRS: Final = frozenset(
    {("distinct", "from"), ("distinct", "on"), ("not", "in"), ("not", "like"), ("not", "ilike"), ("case", "when")}
)
_HALVES: Final = {")": "(", "]": "["}
_BEFORE_SET: Final = _OPERATORS | {",", ".", "(", "as", "set", "and", "or", "where", "returning", "-", "*", "not"}
_BEFORE_BRACKET: Final = frozenset({")", _NAME, "array", "double precision", "character varying"})
_QUERIES: Final = frozenset({"select", "values", "with"})
# What a WITH query or a window begins with. The options of an identity are refused elsewhere.
_AFTER_AS: Final = _QUERIES | _FRAMES | _BY | {"(", ")", "insert", "update", "delete", _NAME}


def check_grammar(tokens: Sequence[Token]) -> None:
    """Raise for what PostgreSQL would not read."""
    words = [_MARKS.get(token.token_type) or folded(token.text) for token in tokens]
    _check_pairs(words)
    _check_brackets(words)
    _check_clauses(words)
    _check_cases(words)
    for place, word in enumerate(words):
        check = _CHECKS.get(word)
        if check is not None:
            check(words, place)


def _check_pairs(words: Sequence[str]) -> None:
    """No empty places: what a comma, an operator or a key word asks for must be there."""
    left = "("
    for word in (*words, _END):
        if left == ".":
            left = _NAME  # Each word is a name there, also a reserved one.
            if word not in {_NAME, _NUMBER, "*"} and not word.isidentifier():
                raise refuse(f"a point before {_shown(word)}.", fix="Write relation.column.")
            continue
        if left == "as" and word.isidentifier():
            left = _NAME
            continue
        if word in _CLOSING and left in _OPEN and (left, word) not in _PAIRS:
            raise _empty(left, word)
        if left in {"(", "["} and (word in _OPERATORS or word in {",", "as", "like", "ilike"}):
            raise _empty(left, word)
        if left == "," and word == "all":
            raise refuse("ALL here.")
        left = word


def _empty(left: str, word: str) -> Exception:
    # PostgreSQL reads a few of these: SELECT FROM t, like() as a function, a reserved word as a name without AS.
    return refuse(f"nothing between {_shown(left)} and {_shown(word)}.", fix="Write what belongs there.")


def _shown(word: str) -> str:
    return {_STRING: "a string", _NAME: "a name", _NUMBER: "a number", _END: "the end"}.get(word, word.upper())


def _check_brackets(words: Sequence[str]) -> None:
    """Each bracket has its other half, and what stands directly after one may stand there."""
    opened: list[int] = []
    closed = 0  # Where the bracket began that was closed last.
    for place, word in enumerate(words):
        before = _at(words, place - 1)
        if word in {"(", "["}:
            opened.append(place)
            if before == ")" and word == "(":
                _check_side_by_side(words, place, closed)
            elif word == "[" and (before == "]" or (before == ")" and _is_call(words, closed))):
                raise refuse("a subscript after a call or another subscript.", fix="Put what is before it into (…).")
            elif word == "[" and before not in _BEFORE_BRACKET and (not before.isidentifier() or before in RESERVED):
                raise refuse("a list in brackets alone, or an array of arrays.", fix="Write ARRAY[…] of values.")
            elif word == "[" and _at(words, place + 1) != "]" and _at(words, place - 2) in {"::", "as"}:
                raise refuse("an array type with a size.", fix="Write [] without a number.")
        elif word in _HALVES:
            if not opened or words[opened[-1]] != _HALVES[word]:
                raise wrong(f"a {word} that closes nothing.", fix="Write brackets in pairs.")
            closed = opened.pop()
            if closed == place - 1 and _at(words, closed - 2) == "references":
                raise refuse("REFERENCES with nothing between its parentheses.", fix="Leave the parentheses out.")
    if opened:
        raise wrong(f"a {words[opened[-1]]} that is not closed.", fix="Write brackets in pairs.")


def _is_call(words: Sequence[str], place: int) -> bool:
    before = _at(words, place - 1)
    return before == _NAME or (before.isidentifier() and before not in RESERVED)


def _check_side_by_side(words: Sequence[str], place: int, closed: int) -> None:
    """Two parentheses without a comma: a query after a list of names or after WITH, and a list after DISTINCT ON."""
    inner = place
    while _at(words, inner) == "(":
        inner += 1
    if _at(words, inner) == "with" and _at(words, closed - 1) in {"as", "materialized"}:
        raise wrong("WITH twice before one query.", fix="List the queries after one WITH.")
    if _at(words, inner) not in _QUERIES and list(words[max(closed - 2, 0) : closed]) != ["distinct", "on"]:
        raise wrong("two parentheses side by side.", fix="Put a comma between them.")


def _check_cases(words: Sequence[str]) -> None:
    """Each WHEN of a CASE has its THEN."""
    cases: list[str] = []
    for word in words:
        if word == "case":
            cases.append("")
        elif cases and word in {"when", "then", "else", "end"}:
            if (cases[-1] == "when") is not (word == "then"):
                raise wrong(f"{word.upper()} in the wrong place of a CASE.", fix="Write CASE WHEN … THEN … ELSE … END.")
            cases[-1] = word
            if word == "end":
                cases.pop()


def _at(words: Sequence[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def _check_clauses(words: Sequence[str]) -> None:
    """The clauses of each query in their order. Each parenthesis has a query of its own, or none (-1)."""
    levels: list[tuple[int, str]] = [(-1, "")]
    for place, word in enumerate(words):
        rank, last = levels[-1]
        begun = None if _at(words, place - 1) in {".", "as"} else _begun(words, place)  # A name, whatever the word.
        if word == "(":
            levels.append((-1, ""))
        elif word == ")" and len(levels) > 1:
            levels.pop()
        elif begun is not None:
            levels[-1] = begun
        elif word == "as" and last == "values":
            raise refuse("VALUES with a name outside of FROM.", fix="Write SELECT … FROM (VALUES …) AS name.")
        elif word == "from" and rank < 0 and len(levels) == 1 and not _is_no_clause(words, place):
            raise refuse("FROM without SELECT.", fix="Write SELECT … FROM ….")
        elif rank >= 0:
            levels[-1] = _following(words, place, rank, last)


def _begun(words: Sequence[str], place: int) -> tuple[int, str] | None:
    """Return what begins with a word: another query, or a part of a statement without clauses; None if nothing does."""
    match word := words[place]:
        case "select":
            return 0, ""
        case "values":
            return -1, word
        case "conflict" if _at(words, place - 1) == "on" and _at(words, place + 1) in {"(", "do", "on"}:
            return -1, ""
        case "returning":
            return 8, word
        case "update" | "delete" if _begins_change(words, place):
            return 0, ""
        case _:
            return None


def _following(words: Sequence[str], place: int, rank: int, last: str) -> tuple[int, str]:
    """The clause that a word begins, or the one it stands in."""
    word = words[place]
    if word in _SET_OPERATIONS:
        return 0, ""
    if word in {",", "by"} and last == "limit":
        raise wrong("LIMIT with more than a number.", fix="Write LIMIT … OFFSET ….")
    if word not in _ORDER or _is_no_clause(words, place):
        return rank, last
    following = _ORDER[word]
    if following < rank or (following == rank and following in range(2, 7)):
        raise wrong(f"{word.upper()} after {last.upper()}.", fix="Write the clauses in their order.")
    return following, word


def _begins_change(words: Sequence[str], place: int) -> bool:
    """Return whether INSERT, UPDATE or DELETE is the verb of the statement or of a WITH query, and not a column."""
    before = _at(words, place - 1)
    return before in {"", ")", ";"} or (before == "(" and _at(words, place - 2) in {"as", "materialized"})


def _is_no_clause(words: Sequence[str], place: int) -> bool:
    """Return whether the word is a part of IS DISTINCT FROM, or stands where a name does."""
    before = _at(words, place - 1)
    return before in {"as", "."} or (words[place] == "from" and before == "distinct")


def _closing(words: Sequence[str], place: int) -> int:
    """Return the place of the closing parenthesis that matches this place or surrounds it."""
    depth = 0
    for index in range(place, len(words)):
        depth += (words[index] == "(") - (words[index] == ")")
        if words[index] == ")" and depth <= 0:
            return index
    return len(words)


def _check_fetch(words: Sequence[str], place: int) -> None:
    end = _closing(words, place)
    ends = [index for index in range(place, end) if words[index] == "only"]
    if _at(words, place + 1) not in {"first", "next"} or not ends or words[ends[0] - 1] not in {"row", "rows"}:
        raise refuse("FETCH in another form.", fix="Write FETCH FIRST n ROWS ONLY.")


def _check_lock(words: Sequence[str], place: int) -> None:
    if list(words[place + 1 : place + 3]) == ["in", "share"]:
        raise wrong("LOCK IN SHARE MODE.", fix="Write FOR SHARE.")


def _check_using(words: Sequence[str], place: int) -> None:
    if _at(words, 0) == "create":
        if _at(words, place + 1) == "(":
            raise wrong("USING without the kind of the index.", fix="Leave USING out.")
    elif _at(words, place + 1) != "(" and "delete" not in words:
        raise wrong("USING without parentheses.", fix="Write USING (column).")


def _check_values(words: Sequence[str], place: int) -> None:
    before, following = _at(words, place - 1), _at(words, place + 1)
    if following == "(" and before in {"from", "join", ","}:
        raise wrong("VALUES without parentheses around it.", fix="Write (VALUES (…)) AS name.")
    if following != "(" and (
        place == 0 or before in {"(", ")", "all"} | _SET_OPERATIONS or _at(words, place - 2) == "into"
    ):
        raise wrong("VALUES without parentheses around its rows.", fix="Write VALUES (…), (…).")


def _check_value(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) in {"(", "-"} and (_at(words, place - 1) == ")" or _at(words, place - 2) == "into"):
        raise wrong("VALUE.", fix="Write VALUES.")


def _check_distinct(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "on" and _at(words, _closing(words, place + 2) + 1) == ",":
        raise wrong("a comma after DISTINCT ON (…).", fix="Leave it out.")


def _check_do(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "update" and _at(words, place + 2) != "set":
        raise wrong("DO UPDATE without SET.", fix="Write DO UPDATE SET ….")


def _check_frame(words: Sequence[str], place: int) -> None:
    if not _is_in_window(words, place):
        return
    frame = words[place + 1 : _closing(words, place)]
    if frame[:1] == ["between"] and (frame.count("and") != 1 or frame.count("between") != 1):
        raise wrong("a frame without its two bounds.", fix="Write BETWEEN … AND ….")
    if "and" in frame and frame[0] in {_NUMBER, "unbounded", "current"}:
        raise wrong("a frame of two bounds without BETWEEN.", fix="Write BETWEEN … AND ….")


def _is_in_window(words: Sequence[str], place: int) -> bool:
    """Return whether the innermost parenthesis around this place is a window's: elsewhere the word is a column."""
    depth = 0
    for index in range(place - 1, -1, -1):
        depth += (words[index] == ")") - (words[index] == "(")
        if depth < 0:
            return _at(words, index - 1) in {"over", "as"} and _at(words, index + 1) not in _QUERIES
    return False


def _check_over(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "(" and _closing(words, place + 1) == place + 3:
        raise refuse("OVER with the name of a window in parentheses.", fix="Write OVER name.")


def _check_table(words: Sequence[str], place: int) -> None:
    if _at(words, 0) == "create" and "(" in words and "," in words[: words.index("(")]:
        raise wrong("a comma after the name of a table.", fix="Write CREATE TABLE name (…).")
    if _at(words, 0) == "create" and "(" in words and words[words.index("(") - 1] in RESERVED:
        raise wrong("a word before the columns of a table.", fix="Write CREATE TABLE name (…).")
    if _at(words, 0) not in {"create", "alter", "drop", "truncate"} and _at(words, place - 1) not in {".", "as"}:
        raise refuse("TABLE in place of a query.", fix="Write SELECT * FROM ….")


def _check_insert(words: Sequence[str], place: int) -> None:
    if not _begins_change(words, place):
        return
    if _at(words, place + 1) != "into":
        raise refuse("INSERT without INTO.", fix="Write INSERT INTO ….")
    if _at(words, place + 3) == "set":
        raise refuse("INSERT … SET.", fix="Write INSERT INTO … (columns) VALUES (…).")
    if _at(words, place + 3) == "*":
        raise wrong("INSERT INTO … *.", fix="Write INSERT INTO … (columns), or leave the list out.")
    if list(words[place + 3 : place + 5]) == ["as", "("]:
        raise refuse("AS without a name.", fix="Write INSERT INTO table AS name.")


def _check_delete(words: Sequence[str], place: int) -> None:
    if _begins_change(words, place) and _at(words, place + 1) != "from":
        raise refuse("DELETE without FROM.", fix="Write DELETE FROM ….")
    if _begins_change(words, place) and _at(words, place + 3) == "set":
        raise wrong("DELETE … SET.", fix="Leave SET out; a name for the table follows AS.")


def _check_update(words: Sequence[str], place: int) -> None:
    if not _begins_change(words, place):
        return
    following = next((word for word in words[place + 1 :] if word in {"set", "from", "where", "returning"}), "")
    if following != "set":
        raise refuse(f"UPDATE with {_shown(following)} before SET.", fix="Write UPDATE … SET … WHERE ….")
    first = words.index("set", place)
    if any(word == "set" and _at(words, at - 1) not in _BEFORE_SET for at, word in enumerate(words) if at > first):
        raise refuse("SET twice.", fix="Put a comma between the assignments.")
    if list(words[first : first + 3]) == ["set", "set", "set"]:
        raise refuse("SET three times.", fix='Write it once. Quote it if it is a name: "set".')


def _check_as(words: Sequence[str], place: int) -> None:
    following = _at(words, place + 1)
    if following in _QUERIES:
        raise refuse(f"AS {following.upper()}.", fix="Quote a name; CREATE TABLE lists its columns.")
    if following == "(" and _at(words, place + 2) not in _AFTER_AS:
        raise refuse("AS before a parenthesis that holds no query.", fix="Write a name after AS.")
    if following not in {_NAME, "("} and not following.replace(" ", "").isidentifier():
        raise refuse(f"AS before {_shown(following)}.", fix="Write a name after AS.")


def _check_not(words: Sequence[str], place: int) -> None:
    before, following = _at(words, place - 1), _at(words, place + 1)
    is_operand = before in {_STRING, _NAME, _NUMBER, ")", "]", "null", "true", "false", "end"} or (
        before.isidentifier() and before not in RESERVED
    )
    if is_operand and following == "null" and _at(words, 0) not in {"create", "alter"}:
        raise refuse("NOT NULL as a condition.", fix="Write IS NOT NULL.")


def _check_filter(words: Sequence[str], place: int) -> None:
    if _at(words, place - 1) == ")" and _at(words, place + 1) == "(" and _at(words, place + 2) != "where":
        raise refuse("FILTER without WHERE.", fix="Write FILTER (WHERE …).")


def _check_window(words: Sequence[str], place: int) -> None:
    if _at(words, place - 1) not in {".", "as"} and _at(words, place + 2) != "as":
        raise refuse("WINDOW without AS.", fix="Write WINDOW name AS (…).")


def _check_from(words: Sequence[str], place: int) -> None:
    if _at(words, place - 1) == "(" and _at(words, place - 2) != "trim":
        raise refuse("FROM without SELECT.", fix="Write SELECT * FROM ….")
    end = _closing(words, place + 2)
    if _at(words, place + 2) == "(" and _at(words, end + 1) == "*" and _is_call(words, place + 2):
        opening = _opening(words, place)
        if _at(words, place - 1) != "distinct" and not (opening >= 0 and _is_call(words, opening)):
            raise wrong("* after a function in FROM.", fix="Leave it out.")


def _opening(words: Sequence[str], place: int) -> int:
    """Return the place of the opening parenthesis around this place; -1 without one."""
    depth = 0
    for index in range(place - 1, -1, -1):
        depth += (words[index] == ")") - (words[index] == "(")
        if depth < 0:
            return index
    return -1


def _check_point(words: Sequence[str], place: int) -> None:
    before = _at(words, place - 1)
    no_name = not before.isidentifier() or before in _BEFORE_TABLE or (before == "truncate" and place == 1)
    if _at(words, place + 1) != _NUMBER and before != _NAME and no_name:
        raise refuse("a point without a name before it.", fix="Write relation.column.")


def _check_array(words: Sequence[str], place: int) -> None:
    before, following = _at(words, place - 1), _at(words, place + 1)
    after_type = before.isidentifier() and before not in RESERVED
    if after_type is (following in {"[", "("}) or (after_type and _at(words, place - 2) == "::"):
        raise refuse("ARRAY here.", fix="Write ARRAY[1, 2] for a value, and bigint[] for a type.")


def _check_like(words: Sequence[str], place: int) -> None:
    before = _at(words, place - 2 if _at(words, place - 1) == "not" else place - 1)
    if before in _OPEN or before in {"(", ""}:
        raise refuse("like() as a function.", fix="Write text LIKE pattern.")


def _check_long_type(words: Sequence[str], place: int) -> None:
    is_definition = _at(words, 0) in {"create", "alter"}
    if not is_definition and _at(words, place - 1) not in {"::", "as"} and _at(words, place + 1) != _STRING:
        raise refuse(f"{words[place].upper()} here.", fix="Write it after :: or in CAST.")


def _check_table_constraint(words: Sequence[str], place: int) -> None:
    if (
        _at(words, place + 1) == "("
        and _at(words, place - 1) not in {",", "("}
        and _at(words, place - 2) != "constraint"
    ):
        raise refuse(f"{words[place].upper()} (…) after a column without a comma.", fix="Put a comma before it.")


def _check_index(words: Sequence[str], place: int) -> None:
    if _at(words, 0) != "create" or place > 2:  # noqa: PLR2004 - CREATE UNIQUE INDEX
        return
    if "on" not in words[place + 1 : place + 6] or _at(words, place + 1) in {_NUMBER, _STRING}:
        raise refuse("CREATE INDEX without ON.", fix="Write CREATE INDEX name ON table (column).")


def _check_column(words: Sequence[str], place: int) -> None:
    if _at(words, place - 1) not in {"add", "drop", "alter", "rename", ".", "as"}:
        raise refuse("COLUMN here.", fix='Quote it if it is a name: "column".')
    if _at(words, place - 2) == "add":
        raise refuse("ADD twice.", fix="Write it once.")
    if _at(words, place + 1) == "::":
        raise wrong("COLUMN without a name.", fix="Write ADD COLUMN name type.")


def _check_add(words: Sequence[str], place: int) -> None:
    if _at(words, 0) == "alter" and _at(words, place - 1) == "add":
        raise refuse("ADD twice.", fix='Write it once. Quote it if it is a name: "add".')


def _check_all(words: Sequence[str], place: int) -> None:
    if _at(words, place - 1) == "(" and _at(words, place + 1) in {"select", "*"}:
        raise wrong(f"ALL before {words[place + 1].upper()}.", fix="Leave ALL out.")


def _check_default(words: Sequence[str], place: int) -> None:
    if _at(words, 0) in {"create", "alter"} and _at(words, place + 1) == "not":
        raise wrong("DEFAULT without a value.", fix="Write DEFAULT value NOT NULL.")


def _check_rename(words: Sequence[str], place: int) -> None:
    if _at(words, 0) == "alter" and _at(words, place + 1) not in {"to", "column"}:
        raise refuse("RENAME without COLUMN or TO.", fix="Write RENAME COLUMN a TO b, or RENAME TO b.")


_CHECKS: Final = {
    "insert": _check_insert,
    "delete": _check_delete,
    "update": _check_update,
    "as": _check_as,
    ".": _check_point,
    "array": _check_array,
    "like": _check_like,
    "column": _check_column,
    "add": _check_add,
    "all": _check_all,
    "default": _check_default,
    "not": _check_not,
    "filter": _check_filter,
    "window": _check_window,
    "from": _check_from,
    "index": _check_index,
    **dict.fromkeys(["double precision", "character varying"], _check_long_type),
    **dict.fromkeys(["unique", "primary key", "foreign key"], _check_table_constraint),
    "rename": _check_rename,
    "fetch": _check_fetch,
    "lock": _check_lock,
    "using": _check_using,
    "values": _check_values,
    "value": _check_value,
    "distinct": _check_distinct,
    "do": _check_do,
    "over": _check_over,
    "table": _check_table,
    **dict.fromkeys(_FRAMES, _check_frame),
}
