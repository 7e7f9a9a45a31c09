"""Values of policies are checked where they are made: out of range is a mistake of the program, told at its line."""

from interlock.errors import DefinitionError


def demand(holds: bool, name: str, value: object, allowed: str) -> None:  # noqa: FBT001 -- it is an assertion.
    """Raise DefinitionError unless it holds."""
    if not holds:
        raise DefinitionError(
            f"{name} is {value!r}; it must be {allowed}.",
            why="A policy outside its range would retry for ever, or never.",
            fix=f"Give {name} a value that is {allowed}.",
            rule="policy-out-of-range",
        )


def number(value: object) -> bool:
    """Whether it can be compared with numbers: a text or a flag is a mistake, told as one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(value: object) -> bool:
    """Whether it is a whole number from 1 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
