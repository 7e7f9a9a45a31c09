"""The choice of an engine's inside by its store: shared or not.

A store with one owner answers from memory and is taken up when it opens. A store that others write to as well is
claimed from, workflow by workflow.
"""

from interlock.runtime.bound import Bound
from interlock.runtime.given import Given
from interlock.runtime.inside import Inside
from interlock.runtime.sharing.inside import SharedInside
from interlock.store.protocol import Store
from interlock.store.shared import SharedStore


def inside_of(store: Store, machines: dict[str, Bound], given: Given) -> Inside:
    """Return the inside for a store."""
    if isinstance(store, SharedStore):
        return SharedInside(store, machines, given)
    return Inside(store, machines, given)
