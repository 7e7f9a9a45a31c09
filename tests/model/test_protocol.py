"""The protocol holds in every state of a small world, and no rule of it is there for nothing.

INTERLOCK_MODEL=large looks further (`make proof`); `python -m tests.model` prints what was searched, and every story.
"""

from itertools import product
from typing import get_args

import pytest

from tests.model.protocol import Protocol
from tests.model.search import search
from tests.model.sizes import SABOTAGES, SIZES, TOO_SMALL
from tests.model.world import ABSENT, GONE, Phase, Sabotage, Size, State


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_guarantee_holds_in_every_state(size: Size) -> None:
    outcome = search(Protocol(size))
    assert not outcome.broken, f"\n{outcome}"


@pytest.mark.campaign
@pytest.mark.parametrize("sabotage", Sabotage, ids=lambda sabotage: sabotage.name.lower())
def test_every_rule_is_needed(sabotage: Sabotage) -> None:
    expected = SABOTAGES[sabotage]
    outcome = search(Protocol(expected.size, sabotage))
    assert outcome.broken.startswith(expected.broken), f"\n{outcome}"
    assert len(outcome.story) == expected.steps, f"\n{outcome}"
    assert not search(Protocol(expected.size)).broken


@pytest.mark.parametrize("size", TOO_SMALL, ids=str)
def test_the_second_look_at_the_manifest_matters_only_to_three_writers_and_two_collected_groups(size: Size) -> None:
    assert not search(Protocol(size, Sabotage.NO_CONFIRMATION)).broken


@pytest.mark.slow
def test_a_story_can_be_read() -> None:
    outcome = search(Protocol(Size(2, 3), Sabotage.FENCE_COLLECTED))
    assert str(outcome).splitlines() == [
        "  1. A opens; change the manifest to epoch 1, floor 0: done",
        "  2. A reads log/0: absent; create log/0 = fence of A (epoch 1): done",
        "  3. A reads the manifest again (epoch 1, floor 0); it is the owner now, with []",
        "  4. B opens; change the manifest to epoch 2, floor 0: done",
        "  5. B reads log/0: fence of A",
        "  6. B reads log/1: absent; create log/1 = fence of B (epoch 2): done",
        "  7. B reads the manifest again (epoch 2, floor 0); it is the owner now, with []",
        "  8. B: store a snapshot of what is below 2: []: done",
        "  9. B: change the manifest to epoch 2, floor 2: done",
        " 10. B: delete log/1: done",
        " 11. A begins a group; create log/1 = A1 (epoch 1): done; A1 is acknowledged",
        "  => G2: A acknowledges A1, recovery yields []",
    ]


@pytest.mark.slow
def test_the_reduction_hides_nothing() -> None:
    """Every state of the unreduced world is stood for by one that the reduced search sees.

    A writer that is gone is stood for by any that never moves again.
    """

    class Unreduced(Protocol):
        def settle(self, state: State) -> State:
            return state

    protocol = Protocol(Size(2, 3))
    reduced, unreduced = reachable(protocol), reachable(Unreduced(protocol.size))
    stood_for = {
        protocol.settle(state._replace(writers=writers))
        for state in reduced
        for writers in product(*[{writer, writer if writer is ABSENT else GONE} for writer in state.writers])
    }
    assert len(stood_for) < len(unreduced) / 3
    assert {protocol.settle(state) for state in unreduced} <= stood_for


def reachable(protocol: Protocol) -> set[State]:
    states, new = set[State](), [protocol.first()]
    while new:
        state = new.pop()
        if state not in states:
            states.add(state)
            new.extend(protocol.settle(after) for _, after in protocol.steps(state))
    return states


def test_the_search_sees_every_kind_of_end() -> None:
    """No branch of the program is out of reach: writers own, are fenced, are refused, and give up their claims."""
    states = reachable(Protocol(Size(2, 3)))
    writers = {writer for state in states for writer in state.writers}
    assert {writer.phase for writer in writers} == set(get_args(Phase))
    assert any(writer.refused for writer in writers)
    assert any(writer.doubted for writer in writers)
    assert any(state.bucket.manifest.floor == 3 for state in states)
