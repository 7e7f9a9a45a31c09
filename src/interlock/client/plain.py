"""States of workflows whose machine is not here: a text and an Enum member at once.

Whoever asks without the machine has no Enum, and wants to compare with a text; whoever wrote code for an engine asks
for `view.state.value`. Both work. The odd choice: members are made as they are met, and are the same when their texts
are.
"""

from enum import StrEnum


class PlainState(StrEnum):
    """A state by its stored name: `view.state == "done"`, `view.state.value == "done"`."""

    def __reduce_ex__(self, proto: object) -> tuple[object, ...]:
        # By name an Enum would look for a declared member, and there is none.
        del proto
        return plain_state, (str(self),)


def plain_state(name: str) -> PlainState:
    """The state of that name."""
    state = str.__new__(PlainState, name)
    state._name_ = name  # As Enum itself does it for a member.
    state._value_ = name
    return state
