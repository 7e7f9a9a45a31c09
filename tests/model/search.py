"""The search: every reachable state once, breadth first, so that the first broken guarantee has the shortest story.

A state is remembered as a handful of small numbers, one for each of its parts (a bucket, the late requests, a writer):
the parts recur by the thousand, and are kept once. How a state was reached is one more number; the words of the story
are found again at the end by taking the same steps.
"""

from typing import NamedTuple

from tests.model.protocol import Protocol
from tests.model.world import Broken, State

Key = tuple[int, ...]


class Outcome(NamedTuple):
    """What was seen. `broken` is empty when every guarantee held everywhere."""

    states: int
    depth: int
    broken: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{number:3}. {step}" for number, step in enumerate(self.story, 1)]
        return "\n".join([*lines, f"  => {self.broken}" if self.broken else "Every guarantee held."])


class _Parts:
    """Numbers for the parts of states."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def key(self, state: State) -> Key:
        numbers = self._numbers
        parts = (state.bucket, state.late, *state.writers)
        return tuple([numbers.setdefault(part, len(numbers)) for part in parts])


def search(protocol: Protocol) -> Outcome:
    """All states from the first on, until there are no new ones or a guarantee breaks."""
    parts = _Parts()
    first = protocol.first()
    parents: dict[Key, Key | None] = {parts.key(first): None}
    changes: set[tuple[int, int]] = set()  # From one bucket to the next, already checked.
    frontier = [(parts.key(first), first)]
    depth = 0
    while frontier:
        reached: list[tuple[Key, State]] = []
        for key, state in frontier:
            try:
                for step, reachable in protocol.steps(state):
                    after = protocol.settle(reachable)
                    known = parts.key(after)
                    if (key[0], known[0]) not in changes:
                        protocol.check_step(step, state.bucket, after.bucket)
                        changes.add((key[0], known[0]))
                    if known not in parents:
                        protocol.check_state(step, after)
                        parents[known] = key
                        reached.append((known, after))
            except Broken as broken:
                story = (*_story(protocol, parts, parents, key), broken.step)
                return Outcome(len(parents), depth + 1, broken.what, story)
        frontier = reached
        depth += bool(reached)
    return Outcome(len(parents), depth, "", ())


def _story(protocol: Protocol, parts: _Parts, parents: dict[Key, Key | None], last: Key) -> list[str]:
    path = [last]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    path.reverse()
    state, story = protocol.first(), list[str]()
    for key in path[1:]:
        options = ((step, protocol.settle(after)) for step, after in protocol.steps(state))
        step, state = next(option for option in options if parts.key(option[1]) == key)
        story.append(step)
    return story
