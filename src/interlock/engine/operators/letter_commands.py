"""Commands of operators to dead letters: retry one, or mark it as dealt with. Each letter takes one command."""

from interlock.engine.internals import EngineParts
from interlock.engine.leases import LEASE_S, WAIT_S, Leasing
from interlock.engine.path.caller_commands import Settle, TryAgain, checked_actor, digest_of, find_letter, no_letter
from interlock.store.records import Letter


class LetterCommands:
    """Applies the commands of one engine. Of two concurrent ones to a letter the second gets WorkflowNotFound."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()

    async def apply(
        self,
        inside: EngineParts,
        letter_id: str,
        ruling: type[TryAgain | Settle],
        by: str | None,
        workflow: str | None,
    ) -> Letter:
        """Apply the command to the letter, which is found sooner by its workflow, and return the letter."""
        inside.refuse_if_closed()
        who = checked_actor(by)
        if letter_id in self._under_way:
            raise no_letter(letter_id)
        self._under_way.add(letter_id)
        try:
            if not inside.store.shared:
                return await _apply(inside, letter_id, ruling, who, workflow)
            # The lease makes that hold for two engines of a shared store too.
            name = f"dead-letter:{digest_of('', letter_id.encode('utf-8', 'replace')).hex()}"
            async with Leasing(inside.own_leases, name, wait_s=WAIT_S, lease_s=LEASE_S):
                return await _apply(inside, letter_id, ruling, who, workflow)
        finally:
            self._under_way.discard(letter_id)


async def _apply(
    inside: EngineParts, letter_id: str, ruling: type[TryAgain | Settle], by: str | None, workflow: str | None
) -> Letter:
    letter = await find_letter(inside.store, letter_id, workflow)
    if ruling is not TryAgain or not await inside.families.retry(letter):
        await inside.pipeline.admit(ruling(letter, by))
    return letter
