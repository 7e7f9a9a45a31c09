"""The checks of families notice an end that counts twice, a lost message, and a child that is twice or foreign."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from interlock.core.declarations import ChildrenDeclaration
from interlock.core.values import StepContext
from interlock.engine.families import Families
from interlock.engine.path import caller_commands
from interlock.engine.path.caller_commands import Start
from interlock.store.memory import MemoryStore
from interlock.store.records import COUNTED, Change
from tests.conformance.engine import test_families as checks
from tests.conformance.engine.places import Place
from tests.simulation.test_families import World

replace = msgspec.structs.replace


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store in memory: the sabotage is in it."""
    return Place(tmp_path, "memory:")


def play_seeds(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    """Play the simulation of families with each seed, and check it."""
    for seed in seeds:
        with monkeypatch.context() as patched:
            world = World(seed, patched)
            with world.harness:
                world.play()
                world.check()


def test_an_end_that_is_counted_twice_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's mark is lost once, and its guard is off: the same end is read and counted again."""
    commit, lost = MemoryStore.commit, [2]

    async def forgetful(self: MemoryStore, changes: Sequence[Change]) -> list[str]:
        kept: list[Change] = []
        for change in changes:
            marks = [each for each in change.children if each.stage == COUNTED]
            if marks and lost[0]:
                lost[0] -= 1
                change = replace(change, children=())  # noqa: PLW2901
            kept.append(change)
        return await commit(self, kept)

    monkeypatch.setattr(MemoryStore, "commit", forgetful)
    with pytest.raises(AssertionError):
        checks.test_the_parent_moves_when_all_children_have_ended(place)


def test_a_message_that_is_lost_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(*_given: object) -> list[str]:
        return []

    monkeypatch.setattr(Families, "_deliver", deaf)
    with pytest.raises(AssertionError):
        checks.test_a_message_is_delivered_with_the_move_that_owes_it(place)


def test_a_child_that_takes_over_another_workflow_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of its birth, a second visit would adopt the children of the first, or a stranger."""

    def trust(*_given: object) -> None:
        return None

    monkeypatch.setattr(caller_commands, "_check_birth", trust)
    with pytest.raises((AssertionError, ValueError)):
        checks.test_the_id_of_a_child_that_is_taken_is_a_dead_letter(place)


def test_a_child_that_is_started_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill between the start and its report, the repeated start makes another child."""
    start, again = Families._start, list[str]()

    async def duplicating(self: Families, piece: list[Start], children: ChildrenDeclaration, ctx: StepContext) -> None:
        for each in piece:
            if await self._load(each.workflow) is not None:
                each.workflow += ".again"
                again.append(each.workflow)
        await start(self, piece, children, ctx)

    monkeypatch.setattr(Families, "_start", duplicating)
    with pytest.raises(AssertionError):
        play_seeds(monkeypatch, range(20))
    assert again
