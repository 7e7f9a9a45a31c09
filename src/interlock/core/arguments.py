"""Convert the arguments of `Machine`: sets of states and mappings of states. Anything else raises DefinitionError."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TypeVar, cast

from interlock.core.locations import declared_at
from interlock.core.refusals import shown
from interlock.errors import DefinitionError

KeyT = TypeVar("KeyT")


def as_states(name: str, argument: object) -> frozenset[Enum]:
    """Return the argument as a set of states. Raises DefinitionError for a single state or anything else."""
    text = shown(argument)
    several = isinstance(argument, AbstractSet | list | tuple)
    members = tuple(cast("Iterable[object]", argument)) if several else ()
    if not several or not all(isinstance(member, Enum) for member in members):
        raise DefinitionError(
            f"{name}={text} is not a set of states.",
            why="A machine may have several such states.",
            fix=f"Write braces around it: {name}={{State.X}}.",
            rule="bad-states",
            location=declared_at(),
        )
    return frozenset(cast("Iterable[Enum]", members))


def as_mapping(name: str, argument: object) -> dict[KeyT, Enum]:
    """Return the argument as a dict, empty for None. Raises DefinitionError for anything else."""
    if argument is None or isinstance(argument, Mapping):
        return dict(cast("Mapping[KeyT, Enum]", argument or {}))
    raise DefinitionError(
        f"{name}={shown(argument)} is not a mapping.",
        why="It says for each state where it leads.",
        fix=f"Write {name}={{from: to}}.",
        rule="bad-states",
        location=declared_at(),
    )
