"""The contract of a store that can send an event inside a transaction of the caller.

The store never sees the connection. Its generators yield a statement with its values and are sent the rows; the caller,
which has the connection, runs them. So it is the same for every driver, with and without an event loop.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from interlock.store.values import Change, Delivered, Row

ResultT = TypeVar("ResultT")

Question = tuple[str, Sequence[object]]
Asking = Generator[Question, Sequence[Sequence[Any]], ResultT]


class Found(NamedTuple):
    """A workflow as the transaction sees it."""

    now_us: int
    """The database's time."""
    row: Row | None


class Transactions(Protocol):
    """Statements inside the caller's transaction. None of them commits or rolls back."""

    def load(self, workflow: str, *, lock: bool) -> Asking[Found]:
        """Load the workflow; with `lock` its row is locked until the transaction ends."""
        ...

    def delivered(self, workflow: str, key: str) -> Asking[Delivered | None]:
        """Load the recorded use of the key. Run it while the workflow is locked, so that the key stays unused."""
        ...

    def noted(self) -> Asking[dict[str, str]]:
        """Load the notes of the store, by name."""
        ...

    def write(self, change: Change, *, hint: bool) -> Asking[bool]:
        """Write the change; return False when another writer was faster, and nothing was written.

        With `hint` workers are notified of due work when the transaction commits.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store whose tables a transaction of the caller can reach."""

    def transactions(self) -> Transactions:
        """Return the statements for the caller's transaction."""
        ...
