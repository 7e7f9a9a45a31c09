"""Range checks for the fields of policies, which raise DefinitionError when the policy is created."""

from interlock.errors import DefinitionError


def demand(holds: bool, name: str, value: object, allowed: str) -> None:  # noqa: FBT001 -- it is an assertion.
    """Raise DefinitionError unless the condition holds."""
    if not holds:
        raise DefinitionError(
            f"{name} is {value!r}; it must be {allowed}.",
            why="A policy outside its range would retry for ever, or never.",
            fix=f"Give {name} a value that is {allowed}.",
            rule="policy-out-of-range",
        )


def number(value: object) -> bool:
    """Return whether the value is an int or a float; a bool is neither."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(value: object) -> bool:
    """Return whether the value is a whole number from 1 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
