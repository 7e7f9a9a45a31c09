"""Regular expressions: PostgreSQL's operators ~ and !~ and its regexp functions, with a matcher of their own.

PostgreSQL takes the longest match where Python's `re` takes the first alternative, and `re` may take exponential time.
So a pattern is parsed here and run as an automaton whose states are made when they are first needed: one step per
character, and a budget of steps per call. What a part in parentheses matched is found afterwards, as PostgreSQL does
it: from left to right, each part as long (or, with non-greedy quantifiers alone, as short) as possible.

Refused are: back references, lookaround, options but `i`, greedy and non-greedy quantifiers in one pattern where the
extent of a match matters.

Sections: syntax, parser, automaton, matches, functions, entries.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Final, Literal, NamedTuple

from interlock.errors import TransactionError
from interlock.sql.functions import texts
from interlock.sql.registry import Entry, built, function, internal
from interlock.sql.scope import Term, call, combined
from interlock.sql.stored_values import StoredValue, array_text, rows_text
from interlock.sql.types import InvalidValue, Type, invalid, refuse

PATTERNS_MAX: Final = 256
PATTERN_LENGTH_MAX: Final = 1_000
NODES_MAX: Final = 3_000
STATES_MAX: Final = 20_000
STEPS_MAX: Final = 5_000_000
_REPEAT_MAX: Final = 255
_DEPTH_MAX: Final = 50

# --- Syntax ----------------------------------------------------------------------------------------------------------

_CLASS_ESCAPES: Final = {"d": "digit", "s": "space", "w": "word"}
_LETTER_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}

Constraint = Literal["start", "end", "word_start", "word_end", "word_edge", "word_inside"]
_CONSTRAINTS: Final[dict[str, Constraint]] = {
    "A": "start", "Z": "end", "m": "word_start", "M": "word_end", "y": "word_edge", "Y": "word_inside",
}  # fmt: skip


class _Letter(NamedTuple):
    """One character out of a set, or any character but these."""

    letters: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[tuple[str, bool], ...] = ()
    """Names of classes, and whether each is negated."""
    negated: bool = False

    def has(self, letter: str) -> bool:
        """Return whether the character is one of them."""
        return (
            letter in self.letters
            or any(low <= letter <= high for low, high in self.ranges)
            or any(texts.in_class(name, letter) != negated for name, negated in self.classes)
        ) != self.negated


class _Edge(NamedTuple):
    """A constraint on a place between two characters."""

    kind: Constraint


class _Row(NamedTuple):
    """Parts one after the other."""

    parts: "tuple[_Node, ...]"


class _Choice(NamedTuple):
    """One of several branches."""

    branches: "tuple[_Node, ...]"


class _Repeat(NamedTuple):
    """A part repeated; without `high` any number of times."""

    part: "_Node"
    low: int
    high: int | None
    greedy: bool


class _Group(NamedTuple):
    """A part in parentheses, by its number."""

    part: "_Node"
    number: int


_Node = _Letter | _Edge | _Row | _Choice | _Repeat | _Group
_ANY: Final = _Letter(negated=True)


def _unsupported(what: str) -> Exception:
    return refuse(
        f"{what} in a regular expression.",
        why="A lane does not have it.",
        fix="Use a simpler pattern, or match in Python.",
    )


def _invalid(what: str) -> Exception:
    return invalid(f"invalid regular expression: {what}.", fix="Correct the pattern.")


# --- Parser ----------------------------------------------------------------------------------------------------------


class _Parser:
    """Reads an advanced regular expression of PostgreSQL."""

    def __init__(self, text: str, *, fold: bool) -> None:
        self.text = text
        self.fold = fold
        self.place = 0
        self.groups = 0
        self.depth = 0

    def parse(self) -> _Node:
        found = self._choice()
        if self.place < len(self.text):
            raise _invalid("parentheses () not balanced")
        return found

    def _peek(self, count: int = 1) -> str:
        return self.text[self.place : self.place + count]

    def _choice(self) -> _Node:
        branches = [self._row()]
        while self._peek() == "|":
            self.place += 1
            branches.append(self._row())
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def _row(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in {"", "|", ")"}:
            part = self._atom()
            parts.append(part if isinstance(part, _Edge) else self._repeated(part))
        return parts[0] if len(parts) == 1 else _Row(tuple(parts))

    def _atom(self) -> _Node:  # noqa: PLR0911 -- a case for each kind of atom.
        letter = self._peek()
        self.place += 1
        match letter:
            case "(":
                return self._group()
            case "[":
                return self._set()
            case ".":
                return _ANY
            case "^":
                return _Edge("start")
            case "$":
                return _Edge("end")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise _invalid("quantifier operand invalid")
            case "{" if self._peek().isdigit():
                raise _invalid("quantifier operand invalid")
            case _:
                return _Letter(self._cases(letter))

    def _cases(self, letter: str) -> frozenset[str]:
        return texts.cases(letter) if self.fold else frozenset(letter)

    def _group(self) -> _Node:
        number = 0
        if self._peek() == "?":
            if self._peek(2) != "?:":
                raise _unsupported(f"(?{self._peek(2)[1:]}")
            self.place += 2
        else:
            self.groups += 1
            number = self.groups
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise _unsupported(f"more than {_DEPTH_MAX} parentheses inside each other")
        part = self._choice()
        self.depth -= 1
        if self._peek() != ")":
            raise _invalid("parentheses () not balanced")
        self.place += 1
        # A row keeps a constraint in parentheses apart from a bare one, which takes no quantifier.
        return _Group(part, number) if number else _Row((part,))

    def _escape(self) -> _Node:
        letter = self._peek()
        self.place += 1
        if letter.lower() in _CLASS_ESCAPES:
            return _Letter(classes=((_CLASS_ESCAPES[letter.lower()], letter.isupper()),))
        if letter in _CONSTRAINTS:
            return _Edge(_CONSTRAINTS[letter])
        return _Letter(self._cases(self._escaped(letter)))

    def _escaped(self, letter: str) -> str:
        if not letter:
            raise _invalid("invalid escape \\ sequence")
        if letter in _LETTER_ESCAPES:
            return _LETTER_ESCAPES[letter]
        if letter.isascii() and not letter.isalnum():
            return letter
        raise _unsupported(f"\\{letter}")

    def _set(self) -> _Letter:
        negated = self._peek() == "^"
        self.place += negated
        found: set[str] = set()
        ranges: list[tuple[str, str]] = []
        classes: list[tuple[str, bool]] = []
        first = True
        while first or self._peek() != "]":
            item = self._set_item(first=first)
            first = False
            if not isinstance(item, str):
                classes.append(item)
            elif self._peek() == "-" and self._peek(2) != "-]":
                self.place += 1
                low, high = self._range(item)
                ranges.append((low, high))
                found |= self._cases(low) if low == high else set()
            else:
                found |= self._cases(item)
        self.place += 1
        if self.fold:
            found.update(*(texts.cases_of_range(low, high) for low, high in ranges))
            # Without regard to case the classes of small and of capital letters are that of letters.
            classes = [("alpha" if name in {"lower", "upper"} else name, out) for name, out in classes]
        return _Letter(frozenset(found), tuple(ranges), tuple(classes), negated)

    def _range(self, low: str) -> tuple[str, str]:
        high = self._set_item(first=False)
        if not isinstance(high, str) or "-" in {low, high}:
            raise _unsupported("such a range in brackets")
        if low > high:
            raise _invalid("invalid character range")
        if self._peek() == "-" and self._peek(2) != "-]":
            raise _unsupported("such a range in brackets")
        return low, high

    def _set_item(self, *, first: bool) -> str | tuple[str, bool]:
        letter = self._peek()
        self.place += 1
        if not letter:
            raise _invalid("brackets [] not balanced")
        if letter == "[" and self._peek() in {":", ".", "="} and self._peek():
            return self._named_class()
        if letter == "\\":
            escaped = self._peek()
            self.place += 1
            if escaped.lower() in _CLASS_ESCAPES:
                return _CLASS_ESCAPES[escaped.lower()], escaped.isupper()
            return self._escaped(escaped)
        if letter == "-" and not first and self._peek() != "]":
            raise _unsupported("a hyphen in the middle of brackets")
        return letter

    def _named_class(self) -> tuple[str, bool]:
        end = self.text.find(":]", self.place)
        name = self.text[self.place + 1 : end] if end > 0 else ""
        if self._peek() != ":" or name not in texts.CLASSES:
            raise _unsupported("such a class in brackets")
        self.place = end + 2
        return name, False

    def _repeated(self, part: _Node) -> _Node:
        begin = self.place
        low, high = self._quantifier()
        if low < 0:
            return part
        if low == high and "," in self.text[begin : self.place]:
            raise _unsupported("{m,m}")  # For PostgreSQL it has a preference, and {m} has none.
        greedy = self._peek() != "?"
        self.place += not greedy
        if self._quantifier()[0] >= 0:
            raise _invalid("quantifier operand invalid")
        if high == 0:
            raise _unsupported("{0}")
        return _Repeat(part, low, high, greedy)

    def _quantifier(self) -> tuple[int, int | None]:
        """Read a quantifier; -1 without one."""
        letter = self._peek()
        found: tuple[int, int | None] | None = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(letter)
        if found is not None:
            self.place += 1
            return found
        if letter != "{" or not (self._peek(2)[1:].isascii() and self._peek(2)[1:].isdigit()):
            return -1, None
        end = self.text.find("}", self.place)
        low, comma, high = self.text[self.place + 1 : end].partition(",")
        if end < 0 or not all(part.isascii() and part.isdigit() for part in (low, high or "0")):
            raise _invalid("invalid repetition count(s)")
        self.place = end + 1
        bounds = int(low[:9]), (int(high[:9]) if high else None) if comma else int(low[:9])
        if max(bounds[0], bounds[1] or 0) > _REPEAT_MAX or (bounds[1] is not None and bounds[0] > bounds[1]):
            raise _invalid("invalid repetition count(s)")
        return bounds


# --- Automaton -------------------------------------------------------------------------------------------------------
# A state is the set of nodes that the characters so far lead to, and the kind of the last character. Its steps are
# computed when a character is first met and kept.

Before = Literal["nothing", "word", "other"]


def _kind(letter: str | None) -> Before:
    if letter is None:
        return "nothing"
    return "word" if texts.in_class("word", letter) else "other"


def _allows(kind: Constraint, before: Before, after: Before) -> bool:
    if kind == "start":
        return before == "nothing"
    if kind == "end":
        return after == "nothing"
    begins, ends = before != "word" and after == "word", before == "word" and after != "word"
    return {"word_start": begins, "word_end": ends, "word_edge": begins or ends}.get(kind, not (begins or ends))


class _State:
    """A set of nodes, and where each character leads: whether a match ends before it, and the next state."""

    __slots__ = ("before", "nodes", "steps")

    def __init__(self, nodes: frozenset[int], before: Before) -> None:
        self.nodes = nodes
        self.before: Before = before
        self.steps: dict[str | None, tuple[bool, _State | None]] = {}


class _Budget:
    """The number of steps that one call may still take."""

    __slots__ = ("left",)

    def __init__(self, length: int) -> None:
        self.left = STEPS_MAX + 4 * length

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise refuse(
                "a regular expression that takes too long on this text.",
                why=f"A call may take {STEPS_MAX:,} steps.",
                fix="Use a simpler pattern, or match in Python.",
            )


class _Automaton:
    """One part of a pattern, to run on texts."""

    def __init__(self, node: _Node) -> None:
        self._tests: list[tuple[_Letter, int] | None] = []
        self._free: list[list[tuple[Constraint | None, int]]] = []
        self._has_edges = False
        self._states: dict[tuple[frozenset[int], Before], _State] = {}
        self._computed = 0
        self._last = self._node()
        self._first = frozenset({self._before(node, self._last)})

    def _node(self, *free: tuple[Constraint | None, int], test: tuple[_Letter, int] | None = None) -> int:
        if len(self._tests) >= NODES_MAX:
            raise _unsupported("that number of repetitions")
        self._tests.append(test)
        self._free.append([*free])
        return len(self._tests) - 1

    def _before(self, node: _Node, end: int) -> int:
        """Return the place where the node begins, if it ends at that one."""
        match node:
            case _Letter():
                return self._node(test=(node, end))
            case _Edge(kind):
                self._has_edges = True
                return self._node((kind, end))
            case _Row(parts):
                for part in reversed(parts):
                    end = self._before(part, end)
                return end
            case _Choice(branches):
                return self._node(*[(None, self._before(branch, end)) for branch in branches])
            case _Repeat(part, low, high, _):
                return self._before_repeat(part, low, high, end)
            case _Group(part, _):
                return self._before(part, end)

    def _before_repeat(self, part: _Node, low: int, high: int | None, end: int) -> int:
        last = end
        if high is None:
            end = self._node((None, last))
            self._free[end].append((None, self._before(part, end)))
        else:
            for _ in range(high - low):
                end = self._node((None, self._before(part, end)), (None, last))
        for _ in range(low):
            end = self._before(part, end)
        return end

    def start(self, text: str, place: int) -> _State:
        """Return the state before the character at that place."""
        return self._state(self._first, text[place - 1] if place else None)

    def _state(self, nodes: frozenset[int], letter: str | None) -> _State:
        before: Before = _kind(letter) if self._has_edges else "other"
        key = nodes, before
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = _State(*key)
        return found

    def step(self, state: _State, letter: str | None, budget: _Budget) -> tuple[bool, _State | None]:
        """Compute where a character leads from a state."""
        after, before = _kind(letter), state.before
        reached = set(state.nodes)
        waiting = list(reached)
        while waiting:
            for constraint, target in self._free[waiting.pop()]:
                if target not in reached and (constraint is None or _allows(constraint, before, after)):
                    reached.add(target)
                    waiting.append(target)
        budget.spend(len(reached) * 4)
        following: set[int] = set()
        if letter is not None:
            tests = (self._tests[node] for node in reached)
            following = {test[1] for test in tests if test is not None and test[0].has(letter)}
        self._computed += 1
        if self._computed > STATES_MAX:
            self._states, self._computed = {}, 0
        result = self._last in reached, self._state(frozenset(following), letter) if following else None
        state.steps[letter] = result
        return result

    def ends(self, text: str, start: int, limit: int, budget: _Budget) -> Iterator[int]:
        """Yield the places where a match that begins at `start` may end, in order, up to a limit."""
        state: _State | None = self.start(text, start)
        length = len(text)
        for place in range(start, limit + 1):
            assert state is not None
            letter = text[place] if place < length else None
            found = state.steps.get(letter) or self.step(state, letter, budget)
            budget.left -= 1
            if found[0]:
                yield place
            state = found[1]
            if state is None:
                break
        budget.spend(0)


# --- Matches ---------------------------------------------------------------------------------------------------------

Span = tuple[int, int]


class Match(NamedTuple):
    """A match: its extent, and the extents of the parts in parentheses, by number."""

    span: Span
    groups: dict[int, Span]

    def group(self, text: str, number: int) -> str | None:
        """Return the text of a part, or None if it took no part in the match."""
        span = self.groups.get(number) if number else self.span
        return None if span is None else text[span[0] : span[1]]


def _parts(node: _Node) -> Iterator[_Node]:
    yield node
    inner = node.parts if isinstance(node, _Row) else node.branches if isinstance(node, _Choice) else ()
    for part in (node.part,) if isinstance(node, _Repeat | _Group) else inner:
        yield from _parts(part)


def _captures(node: _Node) -> bool:
    return any(isinstance(part, _Group) for part in _parts(node))


class Pattern:
    """A regular expression."""

    def __init__(self, text: str, *, fold: bool) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise _unsupported(f"more than {PATTERN_LENGTH_MAX} characters")
        if text.startswith("***"):
            raise _unsupported("***")
        if text.startswith("(?i)"):
            text, fold = text[4:], True
        parser = _Parser(text, fold=fold)
        self._tree = parser.parse()
        self.groups = parser.groups
        self._search = _Automaton(_Row((_Repeat(_ANY, 0, None, greedy=True), self._tree)))
        self._automata: dict[_Node, _Automaton] = {}

    def is_in(self, text: str) -> bool:
        """Return whether the text has a match."""
        return next(self._search.ends(text, 0, len(text), _Budget(len(text))), None) is not None

    @cached_property
    def _shortest(self) -> bool:
        """Whether it prefers short matches. Raises if its parts disagree."""
        greedy = {
            part.greedy if isinstance(part, _Repeat) else True
            for part in _parts(self._tree)
            if isinstance(part, _Choice) or (isinstance(part, _Repeat) and part.low != part.high)
        }
        if len(greedy) == 2:  # noqa: PLR2004 -- both of them
            raise _unsupported("greedy and non-greedy quantifiers, or a non-greedy one and |, together")
        return greedy == {False}

    def matches(self, text: str, start: int = 0, *, groups: bool = True) -> Iterator[Match]:
        """Yield the matches from left to right, from a place on; after an empty one the next begins a place later."""
        budget = _Budget(len(text))
        while start <= len(text):
            span = self._find(text, start, budget)
            if span is None:
                return
            found = self._dissect(self._tree, text, span, budget) if groups and self.groups else {}
            if found is None:
                raise _unsupported("such parentheses")
            yield Match(span, found)
            start = span[1] + (span[0] == span[1])

    def _find(self, text: str, start: int, budget: _Budget) -> Span | None:
        last = next(self._search.ends(text, start, len(text), budget), None)
        for begin in range(start, -1 if last is None else last + 1):
            ends = self._automaton(self._tree).ends(text, begin, len(text), budget)
            end = next(ends, None)
            if end is not None:
                return begin, end if self._shortest else max(ends, default=end)
        return None

    def _automaton(self, node: _Node) -> _Automaton:
        found = self._automata.get(node)
        if found is None:
            found = self._automata[node] = _Automaton(node)
        return found

    def _fits(self, node: _Node, text: str, span: Span, budget: _Budget) -> bool:
        return any(end == span[1] for end in self._automaton(node).ends(text, *span, budget))

    def _dissect(self, node: _Node, text: str, span: Span, budget: _Budget) -> dict[int, Span] | None:
        """Return the extents of the parts in parentheses, for a node that matches exactly the span."""
        budget.spend(1)
        if not _captures(node):
            return {}
        match node:
            case _Group(part, number):
                inner = self._dissect(part, text, span, budget)
                return None if inner is None else {number: span, **inner}
            case _Choice(branches):
                fitting = (branch for branch in branches if self._fits(branch, text, span, budget))
                found = (self._dissect(branch, text, span, budget) for branch in fitting)
                return next((each for each in found if each is not None), None)
            case _Repeat(part, low, high, greedy):
                return self._dissect_repeat(part, low, high, text, span, budget, greedy=greedy)
            case _Row(parts):
                return self._dissect_row(parts, text, span, budget)
            case _:
                return {}

    def _dissect_repeat(
        self, part: _Node, low: int, high: int | None, text: str, span: Span, budget: _Budget, *, greedy: bool
    ) -> dict[int, Span] | None:
        if low == 0:
            if high != 1:
                raise _unsupported("parentheses under * or {0,n}")
            if not self._fits(part, text, span, budget):
                return {}
            if span[0] == span[1] and not greedy:
                raise _unsupported("parentheses under ?? that may be empty")
            return self._dissect(part, text, span, budget)
        rest = None if high is None else high - 1
        if rest == 0:
            return self._dissect(part, text, span, budget)
        # The last repetition counts.
        before = _Repeat(_without_groups(part), low - 1, rest, greedy)
        return self._dissect_row((before, part), text, span, budget)

    def _dissect_row(self, parts: Sequence[_Node], text: str, span: Span, budget: _Budget) -> dict[int, Span] | None:
        # PostgreSQL takes everything before the first parentheses as one part, then these, then the rest.
        first = next((place for place, part in enumerate(parts) if _captures(part)), len(parts))
        if first == len(parts):
            return {}
        head: _Node = _Row(tuple(parts[:first])) if first else parts[0]
        tail = tuple(parts[first:] if first else parts[1:])
        rest = _Row(tail)
        begin, end = span
        middles = list(self._automaton(head).ends(text, begin, end, budget))
        for middle in middles if self._shortest else reversed(middles):
            if not self._fits(rest, text, (middle, end), budget):
                continue
            left = self._dissect(head, text, (begin, middle), budget)
            right = None if left is None else self._dissect_row(tail, text, (middle, end), budget)
            if left is not None and right is not None:
                return {**left, **right}
        return None


def _without_groups(node: _Node) -> _Node:
    match node:
        case _Group(part, _):
            return _without_groups(part)
        case _Row(parts):
            return _Row(tuple(map(_without_groups, parts)))
        case _Choice(branches):
            return _Choice(tuple(map(_without_groups, branches)))
        case _Repeat(part, low, high, greedy):
            return _Repeat(_without_groups(part), low, high, greedy)
        case _:
            return node


@lru_cache(maxsize=PATTERNS_MAX)
def _pattern(text: str, *, fold: bool = False) -> Pattern:
    return Pattern(text, fold=fold)


# --- Functions -------------------------------------------------------------------------------------------------------


def _prepared(text: str, flags: str = "", *, many: str = "") -> tuple[Pattern, bool]:
    """Return a pattern with its flags, and whether `g` is one; `many` names a function that has no `g`."""
    for flag in flags:
        if flag in "bemnpqwx":
            raise _unsupported(f"the option {flag!r}")
        if flag not in "icgst":
            raise invalid(f"invalid regular expression option: {flag!r}.", fix="Use i, c or g.")
    if "g" in flags and many:
        raise invalid(f"{many}() does not support the option g.", fix="Leave it out.")
    return _pattern(text, fold=flags.rfind("i") > flags.rfind("c")), "g" in flags


def _like(text: str, pattern: str, flags: str = "") -> int:
    return _prepared(pattern, flags, many="regexp_like")[0].is_in(text)


def _at_least(low: int, **values: int) -> None:
    for name, value in values.items():
        if value < low:
            raise invalid(f"invalid value for parameter {name!r}: {value}.", fix=f"Pass {low} or more.")


def _parts_of(regex: Pattern, text: str, found: Match) -> str:
    """Return an array of the parts in parentheses, or of all of a match."""
    return array_text([found.group(text, number) for number in range(1, regex.groups + 1)] or [found.group(text, 0)])


def _match(text: str, pattern: str, flags: str = "") -> str | None:
    """regexp_match: the first match."""
    regex, _ = _prepared(pattern, flags, many="regexp_match")
    return next((_parts_of(regex, text, found) for found in regex.matches(text)), None)


def _all_matches(text: str, pattern: str, flags: str = "") -> str:
    """regexp_matches: a row for the first match, or with `g` for each."""
    regex, everywhere = _prepared(pattern, flags)
    return rows_text([_parts_of(regex, text, each) for each in islice(regex.matches(text), None if everywhere else 1)])


def _part(text: str, pattern: str) -> str | None:
    """substring(text from pattern): the first part in parentheses of the first match, or all of it."""
    return _substr(text, pattern, group=1)


def _count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    """regexp_count."""
    _at_least(1, start=start)
    regex, _ = _prepared(pattern, flags, many="regexp_count")
    return sum(1 for _ in regex.matches(text, start - 1, groups=False))


def _substr(text: str, pattern: str, start: int = 1, number: int = 1, flags: str = "", group: int = 0) -> str | None:
    """regexp_substr: the nth match, or a part in parentheses of it."""
    _at_least(1, start=start, n=number)
    _at_least(0, subexpr=group)
    regex, _ = _prepared(pattern, flags, many="regexp_substr")
    if group > max(regex.groups, 1):
        return None
    group = group if regex.groups else 0  # Without parentheses the first part is the whole match.
    found = regex.matches(text, start - 1, groups=group > 0)
    return next((each.group(text, group) for each in islice(found, number - 1, None)), None)


def _instr(text: str, pattern: str, start: int = 1, number: int = 1, after: int = 0, flags: str = "") -> int:
    """regexp_instr: where the nth match begins, or the place after its end; zero without one."""
    _at_least(1, start=start, n=number)
    if after not in {0, 1}:
        raise invalid(f"invalid value for parameter 'endoption': {after}.", fix="Pass 0 or 1.")
    regex, _ = _prepared(pattern, flags, many="regexp_instr")
    found = regex.matches(text, start - 1, groups=False)
    return next((each.span[after] + 1 for each in islice(found, number - 1, None)), 0)


def _split(text: str, pattern: str, flags: str = "") -> str:
    """regexp_split_to_array: empty matches at the ends, and right after another match, do not count."""
    regex, _ = _prepared(pattern, flags, many="a function that splits")
    pieces: list[StoredValue] = []
    begin = previous = 0
    for found in regex.matches(text, groups=False):
        first, last = found.span
        if first < len(text) and last > previous:
            pieces.append(text[begin:first])
            begin = last
        previous = last
    return array_text([*pieces, text[begin:]])


def _replace(text: str, pattern: str, new: str, flags: str = "") -> str:
    """regexp_replace: the first match replaced, or with `g` all of them."""
    if flags[:1].isdigit():
        raise invalid(f"invalid regular expression option: {flags[:1]!r}.", fix="Cast the argument to integer.")
    regex, everywhere = _prepared(pattern, flags)
    return _replaced(regex, text, new, 0, 0 if everywhere else 1)


def _replace_nth(text: str, pattern: str, new: str, start: int, number: int = 1, flags: str = "") -> str:
    """regexp_replace from a place on: the nth match, or with 0 all of them."""
    _at_least(1, start=start)
    _at_least(0, n=number)
    regex, _ = _prepared(pattern, flags)
    return _replaced(regex, text, new, start - 1, number)


def _replaced(regex: Pattern, text: str, new: str, start: int, number: int) -> str:
    pieces: list[str] = []
    copied = length = 0
    template = _template(new)
    found = regex.matches(text, start, groups=any(isinstance(item, int) and item for item in template))
    for each in islice(found, number - 1, number) if number else found:
        written = "".join([item if isinstance(item, str) else each.group(text, item) or "" for item in template])
        pieces += [text[copied : each.span[0]], written]
        length += len(written)
        if length > texts.TEXT_LENGTH_MAX:
            raise InvalidValue(f"a text of over {texts.TEXT_LENGTH_MAX:,} characters.", fix="Use less.")
        copied = each.span[1]
    return "".join(pieces) + text[copied:]


@lru_cache(maxsize=PATTERNS_MAX)
def _template(new: str) -> tuple[str | int, ...]:
    """Return the parts of a replacement: texts, and the numbers of groups."""
    return tuple(
        int(escaped.replace("&", "0"))
        if escaped and escaped in "123456789&"
        else plain or "\\" + escaped.replace("\\", "")
        for plain, escaped in re.findall(r"([^\\]+)|\\(.?)", new, re.DOTALL)
    )


# --- Entries ---------------------------------------------------------------------------------------------------------


def _check(pattern: str, *, fold: bool) -> None:
    """Refuse an invalid pattern as a constant: PostgreSQL raises in most places even if no row is read, not in all."""
    try:
        _pattern(pattern, fold=fold)
    except TransactionError as error:
        raise refuse(error.what, fix=error.fix) from error


def _matching(sqlite: str, *, fold: bool, negated: bool) -> Callable[[Sequence[Term], Type], Term]:
    def build(terms: Sequence[Term], result: Type) -> Term:
        if terms[1].literal is not None:
            _check(terms[1].literal, fold=fold)
        matched = call(sqlite, result, *terms)
        return combined(f"NOT {matched.text}", result, terms) if negated else matched

    return build


_TEXTS: Final = ("text, text", "text, text, text")

ENTRIES: Final[tuple[Entry, ...]] = (
    internal("regexp", _TEXTS[0], "bool", lambda text, pattern: _pattern(pattern, fold=False).is_in(text)),
    internal("regexp_folded", _TEXTS[0], "bool", lambda text, pattern: _pattern(pattern, fold=True).is_in(text)),
    *(
        built(
            "operator",
            f"{'!' if negated else ''}~{'*' if fold else ''}",
            _TEXTS[0],
            "bool",
            _matching(f"interlock_regexp{'_folded' if fold else ''}", fold=fold, negated=negated),
        )
        for fold in (False, True)
        for negated in (False, True)
    ),
    *(
        function(name, takes, gives, body, sqlite=sqlite)
        for takes in _TEXTS
        for name, gives, body, sqlite in (
            ("regexp_like", "bool", _like, ""),
            ("regexp_match", "text[]", _match, ""),
            ("regexp_split_to_array", "text[]", _split, ""),
            ("interlock regexp_split_to_table", "text", _split, "regexp_split_to_array"),
            ("interlock regexp_matches", "text", _all_matches, "rows_regexp_matches"),
        )
    ),
    *(
        function("regexp_instr", f"text, text{rest}", "int4", _instr)
        for rest in ("", ", int4", ", int4, int4", ", int4, int4, int4", ", int4, int4, int4, text")
    ),
    function("substring", _TEXTS[0], "text", _part, sqlite="regexp_part"),
    *(function("regexp_count", f"text, text{rest}", "int4", _count) for rest in ("", ", int4", ", int4, text")),
    *(
        function("regexp_substr", f"text, text{rest}", "text", _substr)
        for rest in ("", ", int4", ", int4, int4", ", int4, int4, text", ", int4, int4, text, int4")
    ),
    *(
        function("regexp_replace", f"text, text, text{rest}", "text", body, sqlite=f"regexp_replace{suffix}")
        for rest, suffix, body in (
            ("", "", _replace),
            (", text", "_flags", _replace),
            (", int4", "_from", _replace_nth),
            (", int4, int4", "_nth", _replace_nth),
            (", int4, int4, text", "_nth", _replace_nth),
        )
    ),
)
