"""jsonpath: the paths of jsonb_path_query() and its kin, parsed and evaluated as PostgreSQL does.

A path is evaluated to a sequence of items. In lax mode, the default, an accessor of members unwraps an array, an
accessor of elements takes anything else for an array of one, and what is missing is nothing; in strict mode these are
errors. Predicates know true, false and unknown. Numbers are numeric, with the arithmetic of `decimals`.

Refused are `.**`, `like_regex`, `datetime()`, `keyvalue()` and methods that convert.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple, cast

from interlock.errors import TransactionError
from interlock.sql.functions import decimals, documents
from interlock.sql.registry import Entry, function, operator
from interlock.sql.scope import Term
from interlock.sql.stored_values import JsonNumber, json_text, numeric_text, rows_text
from interlock.sql.types import InvalidValue, Type, refuse, wrong

PATHS_MAX: Final = 256
_DEPTH_MAX: Final = 50

# --- Parser ----------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.$])
    |(?P<text>"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*")
    |(?P<variable>\$(?:[A-Za-z_][A-Za-z0-9_]*))
    |(?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)
    |(?P<sign>\*\*|&&|\|\||==|!=|<>|<=|>=|[$@().*\[\],?!<>+\-/%]))""",
    re.VERBOSE,
)
_COMPARISONS: Final = {"==", "!=", "<>", "<", "<=", ">", ">="}
_METHODS: Final = frozenset({"type", "size", "abs", "floor", "ceiling"})
_PREDICATES: Final = frozenset({"or", "and", "not", "unknown", "compare", "starts", "exists"})


class _Node(NamedTuple):
    """One step of a path: its kind, the parts inside of it, and a name, a literal or an operator."""

    kind: str
    parts: "tuple[_Node, ...]" = ()
    value: object = None


class _Parser:
    """Reads a path into nodes. A node of a chain is evaluated on the items of its first part."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.depth = self.filters = self.arrays = 0
        self.kind = self.word = ""
        self._next()

    def parse(self) -> tuple[bool, _Node]:
        strict = self.word == "strict"
        if self.kind == "word" and self.word in {"strict", "lax"}:
            self._next()
        found = self._or()
        if self.kind != "end":
            raise self._wrong()
        return strict, found

    def _wrong(self) -> Exception:
        return wrong(f"invalid jsonpath near {self.word or 'its end'!r}.", fix="Correct the path.")

    def _unread(self) -> Exception:
        return refuse(f"the jsonpath {self.text[:60]!r}.", why="A lane does not read it.", fix="Write it simpler.")

    def _next(self) -> None:
        matched = _TOKEN.match(self.text, self.place)
        if matched is None:
            if self.text[self.place :].strip():
                raise self._unread()
            self.kind, self.word = "end", ""
            return
        self.place = matched.end()
        self.kind = cast("str", matched.lastgroup)
        self.word = matched[self.kind]

    def _take(self, *tokens: str) -> str:
        """Return the token if it is one of these, and go on; else nothing."""
        if self.kind in {"sign", "word"} and self.word in tokens:
            found = self.word
            self._next()
            return found
        return ""

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong()

    def _predicate(self, node: _Node, *, wanted: bool = True) -> _Node:
        if (node.kind in _PREDICATES) is not wanted:
            raise self._wrong()
        return node

    def _value(self, node: _Node) -> _Node:
        return self._predicate(node, wanted=False)

    def _or(self) -> _Node:
        found = self._and()
        while self._take("||"):
            found = _Node("or", (self._predicate(found), self._predicate(self._and())))
        return found

    def _and(self) -> _Node:
        found = self._compared()
        while self._take("&&"):
            found = _Node("and", (self._predicate(found), self._predicate(self._compared())))
        return found

    def _compared(self) -> _Node:
        if self._take("!"):
            if self.word not in {"(", "exists"}:
                raise self._wrong()
            return _Node("not", (self._predicate(self._primary()),))
        left = self._sum()
        sign = self._take(*_COMPARISONS)
        if sign:
            return _Node("compare", (self._value(left), self._value(self._sum())), "!=" if sign == "<>" else sign)
        if self._take("starts"):
            self._need("with")
            if self.kind not in {"text", "variable"}:
                raise self._wrong()
            return _Node("starts", (self._value(left), self._primary()))
        if self.kind == "word" and self.word == "like_regex":
            raise refuse("like_regex in a jsonpath.", fix="Use ~ on the text of the element.")
        return left

    def _sum(self) -> _Node:
        found = self._product()
        while sign := self._take("+", "-"):
            found = _Node("arithmetic", (self._value(found), self._value(self._product())), sign)
        return found

    def _product(self) -> _Node:
        found = self._signed()
        while sign := self._take("*", "/", "%"):
            found = _Node("arithmetic", (self._value(found), self._value(self._signed())), sign)
        return found

    def _signed(self) -> _Node:
        sign = self._take("+", "-")
        if sign:
            return _Node("signed", (self._value(self._signed()),), sign)
        return self._chain(self._primary())

    def _primary(self) -> _Node:
        kind, token = self.kind, self.word
        self.depth += 1
        if self.depth > _DEPTH_MAX:
            raise refuse("a jsonpath with many parentheses.", fix="Write it simpler.")
        self._next()
        found = self._inside() if (kind, token) == ("sign", "(") else self._atom(kind, token)
        self.depth -= 1
        return found

    def _inside(self) -> _Node:
        found = self._or()
        self._need(")")
        if self.kind == "word" and self.word == "is":
            self._next()
            self._need("unknown")
            return _Node("unknown", (self._predicate(found),))
        return found

    def _atom(self, kind: str, token: str) -> _Node:
        match kind, token:
            case "sign", "$":
                return _Node(token)
            case "sign", "@" if self.filters:
                return _Node(token)
            case ("number" | "text", _) | ("word", "true" | "false" | "null"):
                return _Node("literal", (), documents.loaded(token))
            case "variable", _:
                return _Node("variable", (), token[1:])
            case "word", "last" if self.arrays:
                return _Node("last")
            case "word", "exists":
                self._need("(")
                found = self._value(self._or())
                self._need(")")
                return _Node("exists", (found,))
            case _:
                raise self._wrong()

    def _chain(self, node: _Node) -> _Node:
        while self.kind == "sign" and self.word in {".", "[", "?"}:
            if self._take("."):
                node = self._member(node)
            elif self._take("["):
                node = self._subscripts(node)
            else:
                self._need("?")
                self._need("(")
                self.filters += 1
                node = _Node("filter", (node, self._predicate(self._or())))
                self.filters -= 1
                self._need(")")
        return node

    def _member(self, node: _Node) -> _Node:
        if self._take("*"):
            return _Node("members", (node,))
        kind, token = self.kind, self.word
        if kind not in {"text", "word"}:
            raise self._unread()
        self._next()
        if kind == "word" and self._take("("):
            if token not in _METHODS:
                raise refuse(f".{token}() in a jsonpath.", fix=f"Use one of {', '.join(sorted(_METHODS))}.")
            self._need(")")
            return _Node("method", (node,), token)
        return _Node("member", (node,), documents.loaded(token) if kind == "text" else token)

    def _subscripts(self, node: _Node) -> _Node:
        if self._take("*"):
            self._need("]")
            return _Node("items", (node,))
        bounds: list[_Node] = []
        self.arrays += 1
        while not bounds or self._take(","):
            first = self._value(self._sum())
            bounds += [first, self._value(self._sum()) if self._take("to") else first]
        self.arrays -= 1
        self._need("]")
        return _Node("subscripts", (node, *bounds))


@lru_cache(maxsize=PATHS_MAX)
def _path(text: str) -> tuple[bool, _Node]:
    return _Parser(text).parse()


# --- Evaluation ------------------------------------------------------------------------------------------------------


class _PathError(TransactionError):
    """An error that the operators @? and @@, predicates and `silent` suppress."""


def _failure(what: str) -> _PathError:
    return _PathError(f"jsonpath: {what}.", why="PostgreSQL has the same rule.", fix="Use lax mode, or test first.")


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One evaluation: the whole document, the variables, and the mode. `size` is that of the array around `last`."""

    root: object
    variables: dict[str, object]
    strict: bool

    def items(self, node: _Node, current: object, size: int | None = None) -> Iterator[object]:
        """Yield the items that a node gives for the current item."""
        match node.kind:
            case "$":
                yield self.root
            case "@":
                yield current
            case "literal":
                yield node.value
            case "variable":
                name = str(node.value)
                if name not in self.variables:
                    raise InvalidValue(f"there is no jsonpath variable {name!r}.", fix="Pass it in vars.")
                yield self.variables[name]
            case "last":
                yield cast("int", size) - 1
            case "arithmetic" | "signed":
                yield from self._computed(node, current, size)
            case kind if kind in _PREDICATES:
                yield self.test(node, current, size)
            case _:
                for item in self.items(node.parts[0], current, size):
                    yield from self._step(node, item, size, unwrap=not self.strict)

    def _step(self, node: _Node, item: object, size: int | None, *, unwrap: bool) -> Iterator[object]:
        """Yield what an accessor finds in one item."""
        if node.kind in {"items", "subscripts"}:
            yield from self._elements(node, item)
            return
        of_arrays = node.kind == "method" and node.value in {"type", "size"}
        if unwrap and not of_arrays and documents.is_array(item):
            for element in item:
                yield from self._step(node, element, size, unwrap=False)
            return
        match node.kind:
            case "member" | "members":
                yield from self._members(node, item)
            case "filter":
                if self.test(node.parts[1], item, size) is True:
                    yield item
            case _:
                yield self._method(cast("str", node.value), item)

    def _members(self, node: _Node, item: object) -> Iterator[object]:
        if not documents.is_object(item):
            if self.strict:
                raise _failure("member accessor can only be applied to an object")
        elif node.kind == "members":
            yield from item.values()
        elif str(node.value) in item:
            yield item[str(node.value)]
        elif self.strict:
            raise _failure(f"JSON object does not contain key {node.value!r}")

    def _elements(self, node: _Node, item: object) -> Iterator[object]:
        if self.strict and not documents.is_array(item):
            raise _failure("array accessor can only be applied to an array")
        elements = documents.listed(item)
        if node.kind == "items":
            yield from elements
            return
        for low, high in zip(node.parts[1::2], node.parts[2::2], strict=True):
            first = self._place(low, item, len(elements))
            last = first if high is low else self._place(high, item, len(elements))
            if self.strict and (first < 0 or first > last or last >= len(elements)):
                raise _failure("array subscript is out of bounds")
            yield from elements[max(first, 0) : max(last + 1, 0)]

    def _place(self, node: _Node, current: object, size: int) -> int:
        [found, *more] = [*self.items(node, current, size)] or [None]
        if more or not documents.is_number(found):
            raise _failure("array subscript is not a single numeric value")
        place = int(found)
        if abs(place) >= 2**31:
            raise _failure("array subscript is out of integer range")
        return place

    def _method(self, name: str, item: object) -> object:
        if name == "type":
            return documents.type_of(item)
        if name == "size":
            if self.strict and not documents.is_array(item):
                raise _failure(".size() can only be applied to an array")
            return len(documents.listed(item))
        if not documents.is_number(item):
            raise _failure(f".{name}() can only be applied to a numeric value")
        return documents.loaded(_FUNCTIONS[name](_digits(item)))

    def _unwrapped(self, node: _Node, current: object, size: int | None) -> list[object]:
        """Return the items of an operand; in lax mode arrays are unwrapped."""
        found = list(self.items(node, current, size))
        if self.strict:
            return found
        return [item for each in found for item in documents.listed(each)]

    def _computed(self, node: _Node, current: object, size: int | None) -> Iterator[object]:
        if node.kind == "signed":
            for item in self._unwrapped(node.parts[0], current, size):
                if not documents.is_number(item):
                    raise _failure(f"operand of unary jsonpath operator {node.value} is not a numeric value")
                yield documents.loaded(decimals.negate(_digits(item))) if node.value == "-" else item
            return
        operands: list[str] = []
        for side, part in zip(("left", "right"), node.parts, strict=True):
            [found, *more] = self._unwrapped(part, current, size) or [None]
            if more or not documents.is_number(found):
                raise _failure(f"{side} operand of jsonpath operator {node.value} is not a single numeric value")
            operands.append(_digits(found))
        try:
            yield documents.loaded(_OPERATORS[cast("str", node.value)](*operands))
        except TransactionError as error:
            raise _failure(error.what) from error

    # --- Predicates: True, False or None for unknown ---

    def test(self, node: _Node, current: object, size: int | None) -> bool | None:
        """Return the truth of a predicate for the current item."""
        match node.kind:
            case "and" | "or":
                decisive = node.kind == "or"
                left = self.test(node.parts[0], current, size)
                if left is decisive:
                    return decisive
                right = self.test(node.parts[1], current, size)
                return right if right is decisive or left is not None else None
            case "not":
                found = self.test(node.parts[0], current, size)
                return None if found is None else not found
            case "unknown":
                return self.test(node.parts[0], current, size) is None
            case _:
                try:
                    return self._tested(node, current, size)
                except _PathError:
                    return None

    def finds(self, node: _Node, current: object, size: int | None = None) -> bool:
        """Return whether a node gives any item. In lax mode the first one decides, and a sign skips what has none."""
        if self.strict:
            return bool(list(self.items(node, current, size)))
        if node.kind == "signed":
            return any(documents.is_number(item) for item in self._unwrapped(node.parts[0], current, size))
        return any(True for _ in self.items(node, current, size))

    def _tested(self, node: _Node, current: object, size: int | None) -> bool | None:
        if node.kind == "exists":
            return self.finds(node.parts[0], current, size)
        left = self._unwrapped(node.parts[0], current, size)
        if node.kind == "starts":
            right = list(self.items(node.parts[1], current, size))
            compare: Callable[[object, object], bool | None] = _starts
        else:
            right = self._unwrapped(node.parts[1], current, size)
            compare = _COMPARE[cast("str", node.value)]
        results = [compare(one, other) for one in left for other in right]
        if True in results and not (self.strict and None in results):
            return True
        return None if None in results else False


def _digits(value: int | JsonNumber) -> str:
    return numeric_text(Decimal(value))


_FUNCTIONS: Final = {"abs": decimals.absolute, "floor": decimals.floor, "ceiling": decimals.ceiling}
_OPERATORS: Final = {
    "+": decimals.add, "-": decimals.subtract, "*": decimals.multiply, "/": decimals.divide, "%": decimals.modulo,
}  # fmt: skip


def _starts(whole: object, initial: object) -> bool | None:
    return whole.startswith(initial) if isinstance(whole, str) and isinstance(initial, str) else None


_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip


def _comparing(sign: str) -> Callable[[object, object], bool | None]:
    test = _TESTS[sign]

    def compare(left: object, right: object) -> bool | None:
        if left is None or right is None:
            if left is right:
                return sign in {"==", "<=", ">="}
            return sign == "!="
        if documents.is_number(left) and documents.is_number(right):
            return test(left, right)
        if type(left) is not type(right) or isinstance(left, list | dict):
            return None
        return test(left, right)

    return compare


_COMPARE: Final = {sign: _comparing(sign) for sign in _TESTS}


# --- Functions -------------------------------------------------------------------------------------------------------


def _evaluation(document: str, path: str, variables: str) -> tuple[_Evaluation, _Node]:
    values = documents.loaded(variables)
    if not documents.is_object(values):
        raise InvalidValue("the vars of a jsonpath are not an object.", fix="Pass an object: '{\"x\": 1}'.")
    strict, node = _path(path)
    return _Evaluation(documents.loaded(document), values, strict), node


def query(document: str, path: str, variables: str = "{}", silent: int = 0) -> str:
    """jsonb_path_query: one row per item. With `silent` an error gives no rows."""
    return rows_text([json_text(item) for item in _collected(document, path, variables, silent)])


def query_array(document: str, path: str, variables: str = "{}", silent: int = 0) -> str:
    """jsonb_path_query_array."""
    return json_text(_collected(document, path, variables, silent))


def query_first(document: str, path: str, variables: str = "{}", silent: int = 0) -> str | None:
    """jsonb_path_query_first."""
    return next(map(json_text, _collected(document, path, variables, silent)), None)


def _collected(document: str, path: str, variables: str, silent: int = 0) -> Sequence[object]:
    evaluation, node = _evaluation(document, path, variables)
    found: list[object] = []
    try:
        found.extend(evaluation.items(node, evaluation.root))
    except _PathError:
        if not silent:
            raise
    return found


def exists(document: str, path: str, variables: str = "{}", silent: int = 0) -> int | None:
    """jsonb_path_exists; NULL for an error that is suppressed."""
    evaluation, node = _evaluation(document, path, variables)
    try:
        return evaluation.finds(node, evaluation.root)
    except _PathError:
        if silent:
            return None
        raise


def match(document: str, path: str, variables: str = "{}", silent: int = 0) -> int | None:
    """jsonb_path_match: the truth of a predicate; NULL if it is unknown."""
    try:
        found = _collected(document, path, variables)
        if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)):
            return found[0]
        raise _failure("single boolean result is expected")
    except _PathError:
        if silent:
            return None
        raise


def _silently(body: Callable[..., int | None]) -> Callable[[str, str], int | None]:
    return lambda document, path: body(document, path, "{}", 1)


def _checked(entry: Entry) -> Entry:
    """Return an entry that reads a path that is a constant while the statement is translated, as PostgreSQL does."""

    def build(terms: Sequence[Term], result: Type) -> Term:
        if terms[1].literal is not None:
            _path(terms[1].literal)
        return entry.build(terms, result)

    return entry._replace(build=build)


_ARGUMENTS: Final = ("jsonb, jsonpath", "jsonb, jsonpath, jsonb", "jsonb, jsonpath, jsonb, bool")
ENTRIES: Final = (
    *(
        _checked(function(name, takes, gives, body, sqlite=name.removeprefix("interlock ")))
        for takes in _ARGUMENTS
        for name, gives, body in (
            ("interlock jsonb_path_query", "text", query),
            ("jsonb_path_query_array", "jsonb", query_array),
            ("jsonb_path_query_first", "jsonb", query_first),
            ("jsonb_path_exists", "bool", exists),
            ("jsonb_path_match", "bool", match),
        )
    ),
    _checked(operator("@?", "jsonb, jsonpath", "bool", _silently(exists), sqlite="jsonb_path_has")),
    _checked(operator("@@", "jsonb, jsonpath", "bool", _silently(match), sqlite="jsonb_path_holds")),
)
