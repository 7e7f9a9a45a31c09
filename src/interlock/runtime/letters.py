"""Commands of operators on dead letters: retry or resolve.

A retry keeps the idempotency key and resets the count of attempts. Resolving an undo continues with the older undos.
Resolving a step leaves the workflow in its state, until an event moves it: the run of the step stays in the undo log.
"""

import asyncio
from abc import abstractmethod

from interlock.errors import InvalidPayload, WorkflowNotFound
from interlock.runtime.pipeline import Group
from interlock.runtime.reports import Report, undone
from interlock.runtime.staging import Staged, replace
from interlock.store.protocol import Store
from interlock.store.values import Letter, OwedEffect

PAGE = 1_000
KINDS = ("step", "effect", "undo")


class _LetterCommand(Report):
    """A command of an operator on one letter."""

    __slots__ = ("letter",)

    def __init__(self, letter: Letter) -> None:
        super().__init__(letter.workflow)
        self.letter = letter
        self.future: asyncio.Future[object] | None = None

    def decide(self, group: Group) -> object:
        """Remove the letter and apply the command. Raises WorkflowNotFound for a letter that is not there."""
        staged = group.stage(self.workflow)
        owed = None if staged is None else staged.live.owed
        if staged is None or owed is None or (self.letter.kind != "effect" and owed.letter != self.letter.id):
            raise no_letter(self.letter.id)
        staged.letters_gone += (self.letter.id,)
        self._apply(staged, group)
        staged.touch()
        return None

    @abstractmethod
    def _apply(self, staged: Staged, group: Group) -> None:
        """Apply the command."""


class TryAgain(_LetterCommand):
    """Retries the step, undo or effect of a letter."""

    __slots__ = ()

    def _apply(self, staged: Staged, group: Group) -> None:
        letter, owed = self.letter, staged.live.owed
        if letter.kind == "effect":
            effect = OwedEffect(
                letter.key, letter.workflow, letter.version, letter.name, 0, group.now_us, letter.context
            )
            if not staged.begin_effect(effect, group.means):
                staged.effects += (effect,)
            return
        if letter.kind == "step":
            assert owed.run is not None
            owed = replace(owed, run=replace(owed.run, attempts=0, retry_us=None))
        else:
            owed = replace(owed, undos=(replace(owed.undos[0], attempts=0, retry_us=None), *owed.undos[1:]))
        staged.owe(replace(owed, dead=None, letter=""), group.now_us)
        staged.begin(group.means, called=False)


class Settle(_LetterCommand):
    """Resolves a letter that an operator has dealt with."""

    __slots__ = ()

    def _apply(self, staged: Staged, group: Group) -> None:
        if self.letter.kind == "undo":
            undone(staged, group)
        elif self.letter.kind == "step":
            staged.owe(replace(staged.live.owed, dead="settled", letter=""), group.now_us)


def check_kind(kind: object) -> None:
    """Raise InvalidPayload unless the value is a kind of dead letter, or None."""
    if kind not in {None, *KINDS}:
        raise InvalidPayload(
            f"{kind!r} is not a kind of dead letter.",
            why="Only steps, effects and undos become dead letters.",
            fix=f"Use one of {', '.join(map(repr, KINDS))}, or None for all.",
        )


async def find_letter(store: Store, letter_id: str) -> Letter:
    """Return the letter of that id. Raises WorkflowNotFound if it does not exist."""
    after = None
    while letters := await store.letters(after=after, limit=PAGE):
        for letter in letters:
            if letter.id == letter_id:
                return letter
        after = letters[-1]
    raise no_letter(letter_id)


def no_letter(letter_id: str) -> WorkflowNotFound:
    """Return the error for an id without a dead letter."""
    return WorkflowNotFound(
        f"there is no dead letter {letter_id!r}.",
        why="It was retried or resolved before, its workflow has moved on, or the id is wrong.",
        fix="List the dead letters again.",
    )
