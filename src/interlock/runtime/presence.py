"""Whether the workflows are still here: what memory has of them is not true any more when they were moved.

A write finds out by itself, and so does a read. What is answered from memory, a view or a refusal, would show what
others have changed since at the new place. A look costs some microseconds, beside a lane that is in use.
"""

from interlock.store.protocol import Store
from interlock.store.sqlite import SqliteStore

NO_ID = ""
"""No workflow has it."""


def is_here(store: Store) -> bool:
    """False: only a read can tell (`confirm`). Raises MovedElsewhere."""
    return not isinstance(store, SqliteStore) or store.here()


async def confirm(store: Store) -> None:
    """Read something. Raises MovedElsewhere, or Fenced."""
    await store.load([NO_ID])
