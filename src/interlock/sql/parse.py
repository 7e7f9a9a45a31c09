"""Parse a text into a checked syntax tree.

sqlglot reads the union of many dialects: it takes `1_000` for `1 AS _000`, `ifnull` for `coalesce` and `@1` for `$1`.
So the tokens are checked against PostgreSQL's before the tree is built, and of the tree only listed nodes with listed
arguments are read (`only`). The accessors give the tree types, which sqlglot's dictionaries do not have.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from typing import ClassVar, Final, TypeVar, cast

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from interlock.sql.grammar import (
    CALLABLE_NAMES,
    FUNCTIONS,
    JSON_SYMBOLS,
    PLAIN_CALLS,
    RESERVED,
    WINDOW_FUNCTIONS,
    check_grammar,
    folded,
    is_operand,
    is_word,
    settle_names,
)
from interlock.sql.types import refuse, wrong

Node = exp.Expr
_Item = TypeVar("_Item")

TEXT_LENGTH_MAX: Final = 100_000
IDENTIFIER_BYTES_MAX: Final = 63
COMMA: Final = "COMMA"  # The kind of a join that was written as a comma.
_TOKEN: Final = re.compile(r"<Token token_type: [\w.]+, text: (.*?), line: \d+, [^>]*>", re.DOTALL)

_SYMBOLS: Final = frozenset(
    {"(", ")", ",", ".", ";", "*", "+", "-", "/", "%", "=", "<>", "!=", "<", "<=", ">", ">=", "||", "::", "$", "[", "]"}
    | JSON_SYMBOLS
)
# PostgreSQL's lexer reads a sign that follows one of these directly as a part of it.
_GREEDY: Final = frozenset({"%", "||", "!="}) | (JSON_SYMBOLS - {"->", "->>"})
_BEGINNINGS: Final = frozenset(
    {"SELECT", "WITH", "(", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "CREATE", "ALTER", "DROP", ";"}
)
_STATEMENTS: Final = (
    "SELECT, VALUES, INSERT, UPDATE, DELETE, TRUNCATE, and CREATE, ALTER and DROP of tables and indexes"
)
_FOREIGN: Final[dict[TokenType, str]] = {
    TokenType.BYTE_STRING: "an escape string E'…'",
    TokenType.UNICODE_STRING: "a Unicode string U&'…'",
    TokenType.NATIONAL_STRING: "a national string N'…'",
    TokenType.HEX_STRING: "a hexadecimal literal",
    TokenType.BIT_STRING: "a bit string",
    TokenType.RAW_STRING: "a raw string",
    TokenType.HEREDOC_STRING: "a dollar-quoted string",
}
# Every name that sqlglot reads as some function: one that is not ours may have been read as one that is.
_TABLES: Final = cast(
    "list[dict[str, object]]",
    [Postgres.Parser.FUNCTIONS, Postgres.Parser.FUNCTION_PARSERS, Postgres.Parser.NO_PAREN_FUNCTION_PARSERS],
)
_BARE: Final = cast("dict[TokenType, object]", Postgres.Parser.NO_PAREN_FUNCTIONS)
_KNOWN_CALLS: Final = frozenset(name.lower() for table in _TABLES for name in table) | {
    token.name.lower() for token in _BARE
}

# Words that nothing between parentheses may follow.
_EMPTY: Final = FUNCTIONS | WINDOW_FUNCTIONS | {"over"}


class LaneTokenizer(Postgres.Tokenizer):
    """PostgreSQL's tokens without dollar quotes: sqlglot would take `$1,$` for the beginning of one."""

    HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {**Postgres.Tokenizer.SINGLE_TOKENS, "$": TokenType.PARAMETER}


def _left_alone(parser: type, table: str) -> dict[str, Callable[..., Node]]:
    """A table of sqlglot's functions without those that are to stay as they are written."""
    known = cast("dict[str, Callable[..., Node]]", getattr(parser, table))
    return {name: build for name, build in known.items() if name.lower() not in PLAIN_CALLS}


def _arrow(kind: type[Node]) -> Callable[[object, Node, Node], Node]:
    """-> or ->> as it is written: sqlglot would read the key as a path of JSON."""
    return lambda _, this, key: kind(this=this, expression=key)


class LaneParser(PostgresParser):
    """PostgreSQL's grammar with key words alone for types: sqlglot would look a name up in all its dialects."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Node]]] = _left_alone(Postgres.Parser, "FUNCTIONS")
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Node]]] = _left_alone(Postgres.Parser, "FUNCTION_PARSERS")
    OPTIONAL_ALIAS_TOKEN_CTE: ClassVar[bool] = False  # WITH a (SELECT …) needs its AS.
    LAMBDAS: ClassVar[dict[TokenType, Callable[..., Node]]] = {}  # f(a -> 'b') is a call with an operator.
    JSON_OPERATORS: ClassVar[dict[TokenType, Callable[..., Node]]] = {
        **cast("dict[TokenType, Callable[..., Node]]", getattr(Postgres.Parser, "JSON_OPERATORS")),  # noqa: B009 - untyped
        TokenType.ARROW: _arrow(exp.JSONExtract),
        TokenType.DARROW: _arrow(exp.JSONExtractScalar),
    }

    def _parse_types(
        self,
        check_func: bool = False,  # noqa: FBT001, FBT002 - sqlglot's own signature
        schema: bool = False,  # noqa: FBT001, FBT002
        allow_identifiers: bool = True,  # noqa: ARG002, FBT001, FBT002
        with_collation: bool = False,  # noqa: FBT001, FBT002
    ) -> Node | None:
        return super()._parse_types(check_func, schema, allow_identifiers=False, with_collation=with_collation)

    def _parse_interval(
        self,
        require_interval: bool = True,  # noqa: ARG002, FBT001, FBT002 - sqlglot's own signature
        parse_function_unit: bool = True,  # noqa: ARG002, FBT001, FBT002
    ) -> exp.Add | exp.Interval | None:
        """INTERVAL '…' as it is written: sqlglot would take the text apart, and lose some of it."""
        if self._curr.token_type is not TokenType.INTERVAL or self._next.token_type is not TokenType.STRING:
            return None
        self._advance()
        constant = exp.Cast(this=self._parse_primary(), to=exp.DataType(this=exp.DType.INTERVAL))
        return cast("exp.Interval", constant)  # sqlglot's callers take any expression.

    def _parse_csv(self, parse_method: Callable[[], _Item | None], sep: TokenType = TokenType.COMMA) -> list[_Item]:
        """A list without empty places: sqlglot would leave them out, and shift the columns after them."""
        items: list[_Item] = []
        while True:
            item = parse_method()
            if item is not None:
                items.append(item)
            if not self._match(sep):
                break
            if item is None:
                self.raise_error("a list with an empty place")
        if items and item is None:
            self.raise_error("a list with an empty place at its end")
        return items

    def _parse_between(self, this: Node | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("BETWEEN without AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_string_as_identifier(self) -> exp.Identifier | None:
        """No string is a name; sqlglot would take one for a table or an alias."""
        return None

    def _warn_unsupported(self) -> None:
        """Refuse what sqlglot would log as a warning and keep as an unread command."""
        self.raise_error("unsupported syntax")

    def _parse_join(
        self,
        skip_join_token: bool = False,  # noqa: FBT001, FBT002 - sqlglot's own signature
        parse_bracket: bool = False,  # noqa: FBT001, FBT002
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        """A join; a comma is marked, because sqlglot makes the same of it as of a JOIN without condition."""
        is_comma = self._curr is not None and self._curr.token_type is TokenType.COMMA
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if is_comma and join is not None:
            join.set("kind", COMMA)
        return join


_TYPED: Final = frozenset(LaneParser.TYPE_TOKENS) - {TokenType.INTERVAL}


class LanePostgres(Postgres):
    """sqlglot's PostgreSQL, with the tokens and types above."""

    # Subscripts stay as they are written: sqlglot would count those from zero whose array it recognises, and no others.
    INDEX_OFFSET = 0
    Tokenizer = LaneTokenizer
    Parser = LaneParser


def parse(sql: str) -> Node:
    """The tree of the one statement in the text."""
    if len(sql) > TEXT_LENGTH_MAX:
        raise refuse(
            f"a statement of {len(sql):,} characters; the limit is {TEXT_LENGTH_MAX:,}.", fix="Use parameters."
        )
    if "\0" in sql:
        raise wrong("the statement contains NUL.")
    trees = _trees(sql)
    trees = [tree for tree in trees if not isinstance(tree, exp.Semicolon)]
    if not trees:
        raise refuse("the statement is empty.", fix="Pass one statement.")
    if len(trees) > 1:
        raise refuse(
            f"{len(trees)} statements in one string.",
            why="Each statement has its own parameters and result.",
            fix="Pass them one by one, inside transact() if they belong together.",
        )
    return trees[0]


def _trees(sql: str) -> list[Node]:
    dialect = LanePostgres()
    try:
        tokens = dialect.tokenize(sql)
    except SqlglotError as error:
        raise _unreadable(error) from error
    _check_tokens(tokens)
    check_grammar(tokens)
    settle_names(tokens)
    _check_calls(tokens)
    try:
        return [tree for tree in dialect.parser().parse(tokens, sql) if tree is not None]
    except RecursionError as error:
        raise refuse("the statement is nested too deeply.", fix="Split it into several statements.") from error
    except Exception as error:
        # sqlglot trips over some texts with errors of Python's own; a foreign exception never reaches a user.
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> Exception:
    text = _TOKEN.sub(r"'\1'", str(error))  # The parser quotes tokens as Python objects.
    lines = text.splitlines()[:1] or [type(error).__name__]
    return refuse(f"cannot read the statement: {lines[0]}", why="It is not SQL, or SQL outside the documented subset.")


def _check_tokens(tokens: Sequence[Token]) -> None:
    if tokens and tokens[0].text.upper() not in _BEGINNINGS:
        raise refuse(f"a statement that begins with {tokens[0].text.upper()}.", fix=f"A lane runs {_STATEMENTS}.")
    for token in tokens:
        _check_token(token)
    for token, following in pairwise(tokens):
        adjacent = following.start == token.end + 1
        if token.token_type is TokenType.NUMBER and adjacent and is_word(following):
            raise refuse(f"the number {token.text}{following.text}.", fix="Write plain decimal digits.")
        if token.text == "$" and not (adjacent and following.text.isdecimal()):
            raise refuse("a $ that is not a parameter.", fix="Write parameters as $1, $2, …")
        if token.token_type is TokenType.STRING and following.token_type is TokenType.STRING:
            raise refuse("two string literals side by side.", fix="Join them with ||.")
        if adjacent and token.text in _GREEDY and following.text in {"+", "-"}:
            raise refuse(
                f"the symbol {token.text}{following.text}.",
                why="PostgreSQL reads it as one operator.",
                fix="Put a space between the two.",
            )
        if token.token_type in _TYPED or token.text == ".":
            _check_after_type(tokens, token, following)
        if following.text == "?" and not is_operand(token):
            raise refuse("the placeholder ?.", fix="Write parameters as $1, $2, …")
        if following.text == "+" and not is_operand(token):
            raise refuse("a plus sign before a value.", fix="Leave it out.")
        if token.text.lower() == "is" and following.text.lower() == "unknown":
            raise refuse("IS UNKNOWN.", fix="Write IS NULL.")


def _check_after_type(tokens: Sequence[Token], token: Token, following: Token) -> None:
    """Refuse integer 5, a point apart from its digits, and bigint '5'::text, where sqlglot would cast the literal."""
    if following.token_type is TokenType.NUMBER and token.token_type is not TokenType.RANGE:
        if token.text != "." or following.start != token.end + 1:
            raise refuse(f"{token.text.upper()} before the number {following.text}.", fix="Cast it: 5::bigint.")
    elif following.token_type is TokenType.STRING and token.text != ".":
        after = next((other for other in tokens if other.start > following.end), None)
        if after is not None and after.text in {"::", "["}:
            raise refuse("a cast of a constant with its type before it.", fix="Put the constant into parentheses.")


def _check_token(token: Token) -> None:
    if token.token_type in _FOREIGN:
        raise refuse(f"{_FOREIGN[token.token_type]}.", fix="Write 'plain text' or pass a parameter $1.")
    if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER}:
        return
    if not is_word(token) and token.text not in _SYMBOLS:
        raise refuse(f"the symbol {token.text}.", why="Only the documented operators have a meaning in a lane.")


def _check_calls(tokens: Sequence[Token]) -> None:
    for token, following in pairwise(tokens):
        name = token.text.lower()
        if following.text == "(" and is_word(token) and name in _KNOWN_CALLS - CALLABLE_NAMES - WINDOW_FUNCTIONS:
            raise refuse(
                f"the function {name}().", fix=f"Use one of {', '.join(sorted(FUNCTIONS))}; compute the rest in Python."
            )
    for token, opening, following in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opening.text == "(" and following.text == ")" and is_word(token) and token.text.lower() not in _EMPTY:
            raise refuse(f"{token.text.upper()} with nothing between its parentheses.")


# --- Typed access to the tree ----------------------------------------------------------------------------------------


def argument(node: Node, name: str) -> object:
    """One raw argument of a node."""
    return cast("dict[str, object]", node.args).get(name)


def only(node: Node, *names: str) -> None:
    """Refuse the node if it has any argument but these: what is not read here would change the meaning."""
    for name, value in cast("dict[str, object]", node.args).items():
        if name not in names and value is not None and value is not False and value != []:
            if isinstance(node, exp.Table) and name in {"db", "catalog"}:
                raise refuse_elsewhere(node)
            raise refuse(f"{described(node)} with {name.strip('_').replace('_', ' ').upper()}: {_excerpt(node)}.")


def refuse_elsewhere(node: Node) -> Exception:
    """The refusal of a table, or of a column of one, with a prefix."""
    return refuse(
        f"the table {_excerpt(node)} of another schema.",
        why="A database is one schema, and a transaction cannot span databases: after a crash one of them could have "
        "happened without the other.",
        fix="Name the table alone if it is in this database. Use another database through its own Database, one after "
        "the other, each with a key.",
    )


def child(node: Node, name: str = "this") -> Node:
    """The argument of that name, which must be a node."""
    value = argument(node, name)
    if not isinstance(value, exp.Expr):
        raise refuse(f"{described(node)} without its {name}: {_excerpt(node)}.")
    return value


def maybe(node: Node, name: str) -> Node | None:
    """The argument of that name, or None."""
    value = argument(node, name)
    return value if isinstance(value, exp.Expr) else None


def children(node: Node, name: str = "expressions") -> list[Node]:
    """Return the list of nodes of that name; empty without one."""
    value = argument(node, name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    nodes = [item for item in items if isinstance(item, exp.Expr)]
    if len(nodes) != len(items):
        raise refuse(f"{described(node)}: {_excerpt(node)}.")
    return nodes


def flag(node: Node, name: str) -> bool:
    """Return whether the argument is set."""
    return bool(argument(node, name))


def string_literal(node: Node, name: str = "this") -> str:
    """The argument of that name, which must be text."""
    value = argument(node, name)
    if not isinstance(value, str):
        raise refuse(f"{described(node)}: {_excerpt(node)}.")
    return value


def identifier(node: Node | None, what: str = "name") -> str:
    """The name as PostgreSQL understands it: folded to lower case unless quoted."""
    if not isinstance(node, exp.Identifier):
        raise refuse(f"a {what} that is not a plain name.", fix="Write a name without prefix.")
    name = string_literal(node)
    if not flag(node, "quoted"):
        name = folded(name)
        if name in RESERVED:
            raise refuse(f"the reserved word {name.upper()} as a name.", fix=f'Quote it: "{name}".')
    if not name or "\0" in name:
        raise wrong(f"an empty {what}.")
    if len(name.encode()) > IDENTIFIER_BYTES_MAX:
        raise refuse(
            f"the name {name!r} is longer than {IDENTIFIER_BYTES_MAX} bytes.",
            why="PostgreSQL would cut it off silently.",
            fix="Use a shorter name.",
        )
    return name


def column_name(node: Node) -> str:
    """The name in a list of columns, where sqlglot puts a bare name now as identifier, now as column."""
    if isinstance(node, exp.Column):
        only(node, "this")
        return identifier(child(node), "column")
    return identifier(node, "column")


def quoted_name(name: str) -> str:
    """The name as SQLite reads it, whatever it contains."""
    return '"' + name.replace('"', '""') + '"'


def quoted_list(names: Iterable[str]) -> str:
    """Several names, separated by commas."""
    return ", ".join(quoted_name(name) for name in names)


def described(node: Node) -> str:
    """The kind of a node in words, for refusals."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(node).__name__).strip()
    return f"an expression of kind {words!r}" if words else "an expression"


def unsupported(node: Node) -> Exception:
    """The refusal of a node that is not in the list."""
    return refuse(f"{described(node)} is outside the subset: {_excerpt(node)}.")


def _excerpt(node: Node) -> str:
    try:
        text = " ".join(node.sql(dialect=LanePostgres, unsupported_level=ErrorLevel.IGNORE).split())
    except Exception:  # noqa: BLE001 - sqlglot cannot write everything that it reads, and this is for an error's text
        return described(node)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - a line's worth
