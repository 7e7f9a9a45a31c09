"""Check that the workflows were not moved to another store: a move makes cached workflows stale.

Writes and reads of the store detect a move themselves. An answer from memory, a view or a refusal, would miss changes
at the new place. A check costs some microseconds on a lane in use.
"""

from interlock.store.protocol import Store
from interlock.store.sqlite import SqliteStore

NO_ID = ""
"""An id that no workflow has."""


def is_here(store: Store) -> bool:
    """Return whether the workflows are known to be here; False: `confirm` must read. Raises MovedElsewhere."""
    return not isinstance(store, SqliteStore) or store.here()


async def confirm(store: Store) -> None:
    """Read from the store. Raises MovedElsewhere or Fenced."""
    await store.load([NO_ID])
