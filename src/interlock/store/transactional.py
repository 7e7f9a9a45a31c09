"""What a store offers beyond the protocol when an event may be sent inside a transaction of the caller.

The store never sees the connection. It says what to ask, as generators that yield a statement with its values and are
sent the rows; whoever has the connection runs them. So it is the same for every driver, with and without an event loop.
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
    """What is asked inside the caller's transaction. Nothing of it commits or rolls back."""

    def load(self, workflow: str, *, lock: bool) -> Asking[Found]:
        """The workflow as it is now; with `lock` it stays like that until the transaction ends."""
        ...

    def delivered(self, workflow: str, key: str) -> Asking[Delivered | None]:
        """What the key was used for. Asked when the workflow is locked, so that nobody can use it meanwhile."""
        ...

    def noted(self) -> Asking[dict[str, str]]:
        """The notes of the store, by their names."""
        ...

    def write(self, change: Change, *, hint: bool) -> Asking[bool]:
        """Write it; False when somebody else was faster, and nothing was written.

        With `hint` workers are told when the transaction commits that something is due.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store whose tables a transaction of the caller can reach."""

    def transactions(self) -> Transactions:
        """What is asked there."""
        ...
