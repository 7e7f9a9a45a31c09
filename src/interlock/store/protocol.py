"""The contract of a store, in prose and types. `memory` is the executable form of it.

A store remembers; it never decides. It is given groups of changes that somebody has decided upon, and makes each change
durable wholly or not at all (G3), in the order given. A change names the revision it was decided upon: if the workflow
has another one, or a delivery key of the change was used before, the change is *lost*: it leaves nothing behind, the
caller is told, and the others of the group are not touched by it (G1). What `commit` has returned survives any crash
(G2). When it cannot know whether it happened it raises OutcomeUnknown (G9), and the caller looks before it decides
again. A group that no caller can mean raises InternalError, and nothing of it happens: two changes of one workflow, or
a version or key that stands twice in one history.

Reads show only what is durable (G7), and everything that `commit` has returned. `shared` tells whether others write to
the same store: then nothing may be answered from memory. What may be long comes in pages: `after` is the last one of
the page before, and what comes, goes or changes between two pages neither hides others nor shows them twice.
"""

from collections.abc import Sequence
from typing import Protocol

from interlock.store.leases import Leases
from interlock.store.pruning import Pruning
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row


class Store(Protocol):
    """A place for workflows. Used from one event loop.

    Texts have neither NUL nor lone surrogates: the layer above refuses them. A store that is given one all the same
    keeps it exactly, or raises InvalidPayload and is as it was before.
    """

    shared: bool

    @property
    def leases(self) -> Leases:
        """Who of several may do something, one at a time (C10)."""
        ...

    @property
    def pruning(self) -> Pruning:
        """The way out for what is final and old."""
        ...

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """The rows of these workflows; those that do not exist are missing."""
        ...

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Make the changes durable, at most one per workflow; returns the ids of those that were lost.

        Effects and letters are put in before those that are done or gone are taken out. Raises OutcomeUnknown when
        nobody can know whether it happened, UnavailableError when nothing happened.
        """
        ...

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """What these delivery keys, as (workflow, key), were used for; those never used are missing."""
        ...

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
        """The history behind a version, in the order of versions (B3)."""
        ...

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """The workflows of a machine in the order of their creation; those of one state in the order they came there.

        `after` is the cursor of the page before. Raises InvalidPayload for one that no page has given.
        """
        ...

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """The active workflows that entered their state before the time given for it, longest first (B7)."""
        ...

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """The effects that are owed, soonest first; `after` the last one of the page before."""
        ...

    async def letters(
        self, kind: str | None = None, *, after: Letter | None = None, limit: int = 1_000
    ) -> list[Letter]:
        """The dead letters, oldest first; `after` the last one of the page before."""
        ...

    async def living(self) -> dict[tuple[str, int, str], int]:
        """How many workflows there are by machine, version of the machine, and state. It looks at all of them."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name, durably: what the runtime must know of its own past."""
        ...

    async def noted(self) -> dict[str, str]:
        """Everything that was noted."""
        ...

    def now_us(self) -> int:
        """The store's own time in microseconds; never behind one that it gave before a commit, in any life (G8)."""
        ...

    async def close(self) -> None:
        """Finish what is on its way and give the store up; from then on it raises UnavailableError."""
        ...
