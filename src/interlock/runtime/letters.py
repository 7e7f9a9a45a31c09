"""What a person does about a dead letter: have it tried again, or say that it is dealt with.

Trying again keeps the idempotency key and begins the count of attempts anew. Dealing with an undo goes on with the
older ones; dealing with a step leaves the workflow where it is, for an event to move it on: what the step may have done
stays in the undo log.
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


class _Ruling(Report):
    """What a person has said about one letter."""

    __slots__ = ("letter",)

    def __init__(self, letter: Letter) -> None:
        super().__init__(letter.workflow)
        self.letter = letter
        self.future: asyncio.Future[object] | None = None

    def decide(self, group: Group) -> object:
        """Take the letter away and do what was said."""
        staged = group.stage(self.workflow)
        owed = None if staged is None else staged.live.owed
        if staged is None or owed is None or (self.letter.kind != "effect" and owed.letter != self.letter.id):
            raise no_letter(self.letter.id)
        staged.letters_gone += (self.letter.id,)
        self._rule(staged, group)
        staged.touch()
        return None

    @abstractmethod
    def _rule(self, staged: Staged, group: Group) -> None:
        """Do what was said."""


class TryAgain(_Ruling):
    """It is worth another try."""

    __slots__ = ()

    def _rule(self, staged: Staged, group: Group) -> None:
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


class Settle(_Ruling):
    """A person has dealt with it."""

    __slots__ = ()

    def _rule(self, staged: Staged, group: Group) -> None:
        if self.letter.kind == "undo":
            undone(staged, group)
        elif self.letter.kind == "step":
            staged.owe(replace(staged.live.owed, dead="settled", letter=""), group.now_us)


def check_kind(kind: object) -> None:
    """Refuse what is no kind of dead letter: nobody would ever find one."""
    if kind not in {None, *KINDS}:
        raise InvalidPayload(
            f"{kind!r} is no kind of dead letter.",
            why="Steps, effects and undos give up; nothing else does.",
            fix=f"Use one of {', '.join(map(repr, KINDS))}, or None for all.",
        )


async def find_letter(store: Store, letter_id: str) -> Letter:
    """The letter of that id. Raises WorkflowNotFound when there is none."""
    after = None
    while letters := await store.letters(after=after, limit=PAGE):
        for letter in letters:
            if letter.id == letter_id:
                return letter
        after = letters[-1]
    raise no_letter(letter_id)


def no_letter(letter_id: str) -> WorkflowNotFound:
    """The answer about a letter that is not there."""
    return WorkflowNotFound(
        f"there is no dead letter {letter_id!r}.",
        why="It was retried or resolved before, its workflow has moved on, or the id is wrong.",
        fix="List the dead letters again.",
    )
