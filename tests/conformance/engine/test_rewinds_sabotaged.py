"""The checks of rewinds notice undos that are skipped or out of order, and a target that is forgotten or wrong."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from interlock.core import decide
from interlock.core.values import Undo
from interlock.engine import bound_machine
from interlock.engine.bound_machine import Owed
from interlock.engine.operators import rewind
from interlock.engine.path import staged_group
from interlock.errors import BadUsage
from tests.conformance.engine import test_rewinds as checks
from tests.conformance.engine.places import Place

replace = msgspec.structs.replace


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A store in memory: the sabotage is above it."""
    return Place(tmp_path, "memory:")


def of_runs(change: Callable[[Sequence[Undo]], Sequence[Undo]]) -> Callable[..., tuple[Undo, ...]]:
    """The undos of a rewind, changed."""
    really = decide.runs_to_undo

    def sabotaged(*given: object) -> tuple[Undo, ...]:
        return tuple(change(really(*given)))  # type: ignore[arg-type]

    return sabotaged


@pytest.mark.parametrize("how", ["skipped", "reversed", "one too few"])
def test_undos_that_are_skipped_or_out_of_order_are_noticed(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    changes: dict[str, Callable[[Sequence[Undo]], Sequence[Undo]]] = {
        "skipped": lambda _: (),
        "reversed": lambda undos: undos[::-1],
        "one too few": lambda undos: undos[:-1],
    }
    monkeypatch.setattr(decide, "runs_to_undo", of_runs(changes[how]))
    with pytest.raises(AssertionError):
        checks.test_what_was_done_since_is_undone_newest_first_and_the_workflow_is_as_it_was(place)


def test_a_target_that_is_not_durable_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the workflow would unwind to the end that the machine declares."""

    def forgetful(owed: Owed) -> bytes:
        return bound_machine.encode_owed(replace(owed, rewind=None))

    monkeypatch.setattr(staged_group, "encode_owed", forgetful)
    with pytest.raises(BadUsage, match="it is unwinding"):
        checks.test_a_crash_at_any_undo_loses_nothing(Place(tmp_path, f"lanes://{tmp_path}/home"))


def test_a_run_of_before_that_is_not_kept_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_given: object) -> int:
        return 0

    monkeypatch.setattr(rewind, "_runs_to_keep", nothing)
    with pytest.raises(AssertionError):
        checks.test_runs_of_before_stay_and_the_step_of_the_state_begins_again(place)
