"""What sqlglot reads and PostgreSQL's grammar does not: clauses in another order, and words of other dialects.

sqlglot collects the clauses of a query in whatever order they come, takes LIMIT 1, 2 for MySQL's, and does without
many a word or parenthesis. A statement that PostgreSQL cannot read must not run, so the tokens are checked first.
"""

from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from interlock.sql.names import folded, is_word
from interlock.sql.refusal import refuse, wrong

# The order of the clauses of a SELECT; those of the last kind may come in any order.
_ORDER: Final[dict[str, int]] = {
    "from": 1, "join": 1, "where": 2, "group by": 3, "having": 4, "window": 5, "order by": 6, "limit": 7, "offset": 7,
    "fetch": 7, "for": 7,
}  # fmt: skip
_SET_OPERATIONS: Final = frozenset({"union", "intersect", "except"})
_FRAMES: Final = frozenset({"rows", "range", "groups"})


def check_grammar(tokens: Sequence[Token]) -> None:
    """Raise for what PostgreSQL would not read."""
    words = [folded(token.text) if is_word(token) or not token.text[:1].isalpha() else "" for token in tokens]
    words = ["" if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER} else word
             for token, word in zip(tokens, words, strict=True)]  # fmt: skip
    _check_clauses(words)
    for place, word in enumerate(words):
        check = _CHECKS.get(word)
        if check is not None:
            check(words, place)


def _at(words: Sequence[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def _check_clauses(words: Sequence[str]) -> None:
    """The clauses of each query in their order. Each parenthesis has a query of its own, or none (-1)."""
    levels: list[tuple[int, str]] = [(-1, "")]
    for place, word in enumerate(words):
        rank, last = levels[-1]
        if word == "(":
            levels.append((-1, ""))
        elif word == ")" and len(levels) > 1:
            levels.pop()
        elif word == "select":
            levels[-1] = (0, "")
        elif word in {"returning", "conflict"}:
            levels[-1] = (-1, "")
        elif rank >= 0 and word in _SET_OPERATIONS:
            levels[-1] = (0, "")
        elif rank >= 0 and word == "," and last == "limit":
            raise wrong("LIMIT with two numbers.", fix="Write LIMIT … OFFSET ….")
        elif rank >= 0 and word in _ORDER and not _is_no_clause(words, place):
            following = _ORDER[word]
            if following < rank or (following == rank and following in range(2, 7)):
                raise wrong(f"{word.upper()} after {last.upper()}.", fix="Write the clauses in their order.")
            levels[-1] = (following, word)


def _is_no_clause(words: Sequence[str], place: int) -> bool:
    """Whether the word is a part of IS DISTINCT FROM, or stands where a name does."""
    before = _at(words, place - 1)
    return before in {"as", "."} or (words[place] == "from" and before == "distinct")


def _closing(words: Sequence[str], place: int) -> int:
    """Where the parenthesis closes that stands at this place, or that this place is in."""
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
    if _at(words, place + 1) != "(" and not {"delete", "create"} & set(words):
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
    if _at(words, place + 1) == "(" and (_at(words, place - 1) == ")" or _at(words, place - 2) == "into"):
        raise wrong("VALUE.", fix="Write VALUES.")


def _check_distinct(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "on" and _at(words, _closing(words, place + 2) + 1) == ",":
        raise wrong("a comma after DISTINCT ON (…).", fix="Leave it out.")


def _check_do(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "update" and _at(words, place + 2) != "set":
        raise wrong("DO UPDATE without SET.", fix="Write DO UPDATE SET ….")


def _check_frame(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "between" and "and" not in words[place : _closing(words, place)]:
        raise wrong("a frame from a bound to nowhere.", fix="Write BETWEEN … AND ….")


def _check_over(words: Sequence[str], place: int) -> None:
    if _at(words, place + 1) == "(" and _closing(words, place + 1) == place + 3:
        raise refuse("OVER with the name of a window in parentheses.", fix="Write OVER name.")


def _check_table(words: Sequence[str], place: int) -> None:
    if _at(words, 0) not in {"create", "alter", "drop", "truncate"} and _at(words, place - 1) not in {".", "as"}:
        raise refuse("TABLE in place of a query.", fix="Write SELECT * FROM ….")


def _check_rename(words: Sequence[str], place: int) -> None:
    if _at(words, 0) == "alter" and _at(words, place + 1) not in {"to", "column"}:
        raise refuse("RENAME without COLUMN or TO.", fix="Write RENAME COLUMN a TO b, or RENAME TO b.")


_CHECKS: Final = {
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
