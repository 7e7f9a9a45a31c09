"""PostgreSQL's catalog of types, casts, operators and functions, and its rules for choosing among them.

The rows are those of PostgreSQL 18 (`catalog.json`, written and compared by the conformance tests). They include types
and overloads that a lane does not have: leaving one out could make another one win. The rules are those of chapter 10
of its manual, in the order in which its parser applies them: an exact match, then the candidates that implicit casts
can reach, of these the ones with most exact matches, then preferred types, then categories for what is unknown.

Types are names here (`int4`, `text[]`), because most of them have no `Type`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Final, Literal, NamedTuple

import msgspec

Occasion = Literal["implicit", "assignment", "explicit"]
_OCCASIONS: Final[dict[str, tuple[str, ...]]] = {
    "implicit": ("i",),
    "assignment": ("i", "a"),
    "explicit": ("i", "a", "e"),
}
UNKNOWN: Final = "unknown"
_SAME: Final = frozenset({"anyelement", "anyarray", "anynonarray", "anyenum"})
_COMPATIBLE: Final = frozenset({"anycompatible", "anycompatiblearray", "anycompatiblenonarray"})
_POLYMORPHIC: Final = _SAME | _COMPATIBLE
_ARRAYS: Final = frozenset({"anyarray", "anycompatiblearray"})
_STRINGS: Final = "S"


class Signature(NamedTuple):
    """An operator, function or aggregate: the types it takes and the one that it gives."""

    name: str
    takes: tuple[str, ...]
    gives: str
    kind: str = "f"
    """f: function or operator, a: aggregate, w: window function."""
    variadic: bool = False
    defaults: int = 0
    returns_set: bool = False


class Ambiguous(Exception):
    """Several candidates fit, and none of them best."""


class _Rows(msgspec.Struct):
    types: list[tuple[str, str, bool]]
    casts: list[tuple[str, str, str, str]]
    operators: list[tuple[str, str | None, str, str]]
    functions: list[tuple[str, list[str], str, str, bool, int, bool]]


class _Tables(NamedTuple):
    categories: dict[str, str]
    preferred: frozenset[str]
    casts: dict[tuple[str, str], str]
    operators: dict[str, list[Signature]]
    functions: dict[str, list[Signature]]


@cache
def _tables() -> _Tables:
    rows = msgspec.json.decode(files("interlock.sql").joinpath("catalog.json").read_bytes(), type=_Rows)
    operators: dict[str, list[Signature]] = {}
    for name, left, right, gives in rows.operators:
        takes = (right,) if left is None else (left, right)
        operators.setdefault(name, []).append(Signature(name, takes, gives))
    functions: dict[str, list[Signature]] = {}
    for name, arguments, gives, kind, variadic, defaults, returns_set in rows.functions:
        found = Signature(name, tuple(arguments), gives, kind, variadic, defaults, returns_set)
        functions.setdefault(name, []).append(found)
    return _Tables(
        categories={name: category for name, category, _ in rows.types},
        preferred=frozenset(name for name, _, preferred in rows.types if preferred),
        casts={(source, target): context for source, target, context, _ in rows.casts},
        operators=operators,
        functions=functions,
    )


def category(name: str) -> str:
    """Return the category of a type: N for numbers, S for strings, D for dates, A for arrays."""
    return _tables().categories.get(name, "A" if name.endswith("[]") else "E")


def functions_named(name: str) -> list[Signature]:
    """Return the overloads of a function."""
    return _tables().functions.get(name, [])


# --- Casts -----------------------------------------------------------------------------------------------------------


def can_cast(source: str, target: str, occasion: Occasion) -> bool:
    """Return whether PostgreSQL converts a value of one type to the other on that occasion."""
    if target in (source, "any") or source == UNKNOWN:
        return True
    if target in _POLYMORPHIC:
        return _fits(source, target)
    context = _tables().casts.get((source, target))
    if context is not None:
        return context in _OCCASIONS[occasion]
    if source.endswith("[]") and target.endswith("[]"):
        return can_cast(source[:-2], target[:-2], occasion)
    # What has an output function can be written as text, and read back from it.
    if occasion != "implicit" and category(target) == _STRINGS:
        return True
    return occasion == "explicit" and category(source) == _STRINGS


def _fits(source: str, polymorphic: str) -> bool:
    if polymorphic in _ARRAYS:
        return source.endswith("[]")
    if polymorphic in {"anynonarray", "anycompatiblenonarray"}:
        return not source.endswith("[]")
    return polymorphic != "anyenum" or category(source) == "E"


def common_type(names: Sequence[str]) -> str | None:
    """Return the type of UNION, CASE, VALUES and the like; None without one. All unknown is text."""
    # Without repetition: a list of 5,000 numbers has one type.
    known = [name for name, _ in groupby(names) if name != UNKNOWN]
    if not known:
        return "text"
    chosen = known[0]
    for name in known[1:]:
        if name == chosen:
            continue
        if category(name) != category(chosen):
            return None
        if (
            chosen not in _tables().preferred
            and can_cast(chosen, name, "implicit")
            and not can_cast(name, chosen, "implicit")
        ):
            chosen = name
    return chosen if all(can_cast(name, chosen, "implicit") for name in known) else None


# --- Choice of an operator or function -------------------------------------------------------------------------------


@cache
def find_operator(name: str, *types: str) -> Signature | None:
    """Return the operator for these types; None without one. Raises Ambiguous.

    Of two sides one may be unknown: it is tried as the type of the other first.
    """
    candidates = [found for found in _tables().operators.get(name, ()) if len(found.takes) == len(types)]
    tried: list[tuple[str, ...]] = [types]
    if len(types) > 1 and UNKNOWN in types and set(types) != {UNKNOWN}:
        [known] = set(types) - {UNKNOWN}
        tried.insert(0, (known,) * len(types))
    for each in tried:
        exact = next((found for found in candidates if found.takes == each), None)
        if exact is not None:
            return exact
    return _select(candidates, types)


@cache
def find_function(name: str, *types: str) -> Signature | None:
    """Return the function for these types; None without one. Raises Ambiguous."""
    candidates = list(_expanded(functions_named(name), len(types)))
    exact = next((found for found in candidates if found.takes == types), None)
    return exact or _select(candidates, types)


def _expanded(signatures: Iterable[Signature], count: int) -> Iterable[Signature]:
    """Yield the overloads for this number of arguments: repeated for VARIADIC, cut off where there are defaults."""
    for found in signatures:
        total = len(found.takes)
        if found.variadic and count >= total:
            last = found.takes[-1]
            element = last if last == "any" else last.removesuffix("[]").replace("array", "")
            yield found._replace(takes=found.takes[:-1] + (element,) * (count - total + 1))
        elif not found.variadic and total - found.defaults <= count <= total:
            yield found._replace(takes=found.takes[:count])


def _select(candidates: Sequence[Signature], types: tuple[str, ...]) -> Signature | None:
    reachable = [found for found in candidates if _reaches(found, types)]
    if len(reachable) <= 1:
        return reachable[0] if reachable else None
    chosen = _best(reachable, lambda found: _count(types, found.takes, lambda has, wants: has == wants))
    if len(chosen) > 1:
        chosen = _best(chosen, lambda found: _count(types, found.takes, _is_preferred))
    if len(chosen) > 1 and UNKNOWN in types:
        chosen = _by_category(chosen, types)
    if len(chosen) > 1:
        chosen = _by_known(chosen, types)
    if len(chosen) != 1:
        raise Ambiguous
    return chosen[0]


def _reaches(found: Signature, types: tuple[str, ...]) -> bool:
    if not all(can_cast(has, wants, "implicit") for has, wants in zip(types, found.takes, strict=True)):
        return False
    return bool(resolved(found, types)) or not _POLYMORPHIC & set(found.takes)


def _best(candidates: Sequence[Signature], score: Callable[[Signature], int]) -> list[Signature]:
    scores = [score(found) for found in candidates]
    return [found for found, reached in zip(candidates, scores, strict=True) if reached == max(scores)]


def _count(types: tuple[str, ...], takes: tuple[str, ...], fits: Callable[[str, str], bool]) -> int:
    return sum(has != UNKNOWN and fits(has, wants) for has, wants in zip(types, takes, strict=True))


def _is_preferred(has: str, wants: str) -> bool:
    return has == wants or (wants in _tables().preferred and category(wants) == category(has))


def _by_category(candidates: list[Signature], types: tuple[str, ...]) -> list[Signature]:
    """Choose a category for each unknown argument: strings if any candidate takes one, else the one all agree on."""
    for place, has in enumerate(types):
        if has != UNKNOWN:
            continue
        categories = {category(found.takes[place]) for found in candidates}
        if _STRINGS not in categories and len(categories) > 1:
            return candidates
    kept = candidates
    for place, has in enumerate(types):
        if has != UNKNOWN:
            continue
        categories = {category(found.takes[place]) for found in candidates}
        slot = _STRINGS if _STRINGS in categories else next(iter(categories))
        inside = [found for found in candidates if category(found.takes[place]) == slot]
        has_preferred = any(found.takes[place] in _tables().preferred for found in inside)
        kept = [
            found
            for found in kept
            if category(found.takes[place]) == slot and (not has_preferred or found.takes[place] in _tables().preferred)
        ]
    return kept or candidates


def _by_known(candidates: list[Signature], types: tuple[str, ...]) -> list[Signature]:
    """Assume that what is unknown has the one type that all known arguments have."""
    known = set(types) - {UNKNOWN}
    if len(known) != 1 or UNKNOWN not in types:
        return candidates
    [assumed] = known
    return [found for found in candidates if _reaches(found, (assumed,) * len(types))]


# --- Polymorphic types -----------------------------------------------------------------------------------------------


def resolved(found: Signature, types: Sequence[str]) -> tuple[tuple[str, ...], str] | None:
    """Return the actual types that a call takes and gives; None if its polymorphic arguments do not agree."""
    if not _POLYMORPHIC & {*found.takes, found.gives}:
        return found.takes, found.gives
    elements: dict[bool, str] = {}
    for family, is_compatible in ((_SAME, False), (_COMPATIBLE, True)):
        pairs = [(has, wants) for has, wants in zip(types, found.takes, strict=True) if wants in family]
        if not pairs:
            continue
        known = [has[:-2] if wants in _ARRAYS else has for has, wants in pairs if has != UNKNOWN]
        if any(wants in _ARRAYS and has != UNKNOWN and not has.endswith("[]") for has, wants in pairs):
            return None
        if not known:
            if not is_compatible:
                return None
            known = ["text"]
        chosen = common_type(known) if is_compatible else known[0]
        if chosen is None or (not is_compatible and len(set(known)) > 1):
            return None
        if chosen.endswith("[]") and any(wants in _ARRAYS or "nonarray" in wants for _, wants in pairs):
            return None
        elements[is_compatible] = chosen
    takes = tuple(_actual(wants, elements, has) for has, wants in zip(types, found.takes, strict=True))
    return takes, _actual(found.gives, elements, found.gives)


def _actual(wants: str, elements: dict[bool, str], has: str) -> str:
    if wants not in _POLYMORPHIC:
        return has if wants == "any" else wants
    element = elements.get(wants in _COMPATIBLE)
    if element is None:
        return wants
    return f"{element}[]" if wants in _ARRAYS else element
