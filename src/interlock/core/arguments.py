"""Arguments of a machine in the shape that is needed, or a clear refusal: sets of states and mappings of them."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TypeVar, cast

from interlock.core.locations import declared_at
from interlock.core.refusals import shown
from interlock.errors import DefinitionError

KeyT = TypeVar("KeyT")


def as_states(name: str, given: object) -> frozenset[Enum]:
    """The set of states that was given; a single state, or something else, is refused."""
    told = shown(given)
    several = isinstance(given, AbstractSet | list | tuple)
    members = tuple(cast("Iterable[object]", given)) if several else ()
    if not several or not all(isinstance(member, Enum) for member in members):
        raise DefinitionError(
            f"{name}={told} is not a set of states.",
            why="A machine may have several such states.",
            fix=f"Write braces around it: {name}={{State.X}}.",
            rule="bad-states",
            location=declared_at(),
        )
    return frozenset(cast("Iterable[Enum]", members))


def as_mapping(name: str, given: object) -> dict[KeyT, Enum]:
    """The mapping that was given, None being an empty one; anything else is refused."""
    if given is None or isinstance(given, Mapping):
        return dict(cast("Mapping[KeyT, Enum]", given or {}))
    raise DefinitionError(
        f"{name}={shown(given)} is not a mapping.",
        why="It says for each state where it leads.",
        fix=f"Write {name}={{from: to}}.",
        rule="bad-states",
        location=declared_at(),
    )
