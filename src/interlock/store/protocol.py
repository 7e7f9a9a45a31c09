"""The contract of a store, in prose and types. `memory` is the executable form of it.

A store never decides. It gets groups of changes that the engine has decided, and makes each change durable wholly or
not at all (G3), in their order. A change names the revision it was decided upon. If the workflow has another one, or a
delivery key of the change was used before, the change is *lost*: nothing of it is written, `commit` returns its id, and
the other changes of the group are not affected (G1). A change that `commit` has returned survives any crash (G2). When
the outcome is unknown it raises OutcomeUnknown (G9), and the caller reads before it decides again. An invalid group
raises InternalError and changes nothing: two changes of one workflow, or a version or key twice in one history.

Reads return only durable data (G7), and everything that `commit` has returned. `shared` means that other processes
write to the same store: then nothing may be answered from memory. Long results come in pages: `after` is the last item
of the page before, and changes between two pages neither hide other items nor repeat them.
"""

from collections.abc import Sequence
from typing import Protocol

from interlock.store.leases import Leases
from interlock.store.pruning import Pruning
from interlock.store.values import Change, Delivered, Found, Happened, Letter, OwedEffect, Row


class Store(Protocol):
    """A place for workflows. Used from one event loop.

    Texts have neither NUL nor lone surrogates: the layer above refuses them. A store that gets one nevertheless keeps
    it exactly, or raises InvalidPayload and changes nothing.
    """

    shared: bool

    @property
    def leases(self) -> Leases:
        """The leases of this store (C10)."""
        ...

    @property
    def pruning(self) -> Pruning:
        """The pruning of final workflows."""
        ...

    async def load(self, ids: Sequence[str]) -> dict[str, Row]:
        """Return the rows of these workflows; missing ones are left out."""
        ...

    async def commit(self, changes: Sequence[Change]) -> list[str]:
        """Make the changes durable, at most one per workflow; return the ids of those that were lost.

        Effects and letters are inserted before completed ones are deleted. Raises OutcomeUnknown when the result cannot
        be known, UnavailableError when nothing was written.
        """
        ...

    async def delivered(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Delivered]:
        """Return the recorded uses of these delivery keys, as (workflow, key); unused ones are left out."""
        ...

    async def history(self, workflow: str, *, after: int = 0, limit: int = 1_000) -> list[Happened]:
        """Return the history after a version, in the order of versions (B3)."""
        ...

    async def find(self, machine: str, state: str | None, *, after: str | None, limit: int) -> Found:
        """Return the workflows of a machine in the order of creation; those of one state in the order of entry.

        `after` is the cursor of the page before. Raises InvalidPayload for one that no page has given.
        """
        ...

    async def stalled(self, machine: str, before_us: dict[str, int], *, limit: int) -> list[Row]:
        """Return the active workflows that entered their state before its time in `before_us`, longest first (B7)."""
        ...

    async def effects(self, *, after: OwedEffect | None = None, limit: int) -> list[OwedEffect]:
        """Return the owed effects, soonest first; `after` is the last one of the page before."""
        ...

    async def letters(
        self, kind: str | None = None, *, after: Letter | None = None, limit: int = 1_000
    ) -> list[Letter]:
        """Return the dead letters, oldest first; `after` is the last one of the page before."""
        ...

    async def living(self) -> dict[tuple[str, int, str], int]:
        """Count all workflows by machine, version of the machine, and state. Reads all of them."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Store a short text under a name, durably: state of the runtime itself."""
        ...

    async def noted(self) -> dict[str, str]:
        """Return all notes by name."""
        ...

    def now_us(self) -> int:
        """Return the store's time in microseconds; it never goes back before a commit, also after a restart (G8)."""
        ...

    async def close(self) -> None:
        """Finish running calls and close the store; later calls raise UnavailableError."""
        ...
