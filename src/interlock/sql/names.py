"""Find the names in a statement by PostgreSQL's key words, before sqlglot sees the tokens.

sqlglot's words are those of thirty dialects: it takes `log (a, b)` for a call, `list < 3` for a type, `xor` for an
operator and `blob` for bytea. In PostgreSQL a word that is not a key word is always a name, and so is any word where
only a table can stand. Such words become quoted identifiers here, folded as PostgreSQL folds them, so that no other
dialect can give them a meaning. A name before a parenthesis is left unchanged: it may be a call.
"""

from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from interlock.sql.refusal import refuse
from interlock.sql.words import AFTER_AS, KEYWORDS, RESERVED, TYPES

_VALUES: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER})
# Key words of PostgreSQL's that other dialects take for types.
_NO_TYPES: Final = frozenset({"double", "object", "range", "string"})
_IF: Final = (["if", "not"], ["table", "if"])  # CREATE TABLE IF NOT EXISTS, DROP TABLE IF EXISTS
# Of the key words that may be names, those of the subset's grammar that a name can follow.
_BEFORE_NAME: Final = frozenset({"add", "between", "by", "exists", "index", "set", "update", "values"})
_CONSTANTS: Final = frozenset({"current_timestamp", "end", "false", "null", "true"})
_BOUNDS: Final = frozenset({"between", "current", "current row", "unbounded", "$"})
_BEFORE_TABLE: Final = frozenset({"into", "table", "references"})


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
    for opening, end in _closing(words).items():
        name = opening - 1
        if name < 1 or not is_word(tokens[name]):
            continue
        is_table = words[name - 1] in _BEFORE_TABLE or name - 1 == indexed
        is_created = words[name - 1] == "exists" and words[max(name - 3, 0) : name - 1][-2:] in _IF
        is_common = words[name - 1] in {"with", "recursive", ","} and _is_query(words[end + 1 : end + 5])
        if is_table or is_created or is_common:
            found.add(name)
    return found


def _is_query(words: Sequence[str]) -> bool:
    """Return whether these words begin the query of a WITH."""
    return words[:1] == ["as"] and "".join(words[1:]).startswith(("(", "materialized(", "notmaterialized("))


def _closing(words: Sequence[str]) -> dict[int, int]:
    """For each opening parenthesis its closing one."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for place, word in enumerate(words):
        if word == "(":
            opened.append(place)
        elif word == ")" and opened:
            closing[opened.pop()] = place
    return closing
