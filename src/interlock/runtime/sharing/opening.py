"""Which inside an engine has: its store says whether it is shared.

A store with one owner answers from memory and is taken up when it opens; one that others write to as well is claimed
from, workflow by workflow.
"""

from interlock.runtime.bound import Bound
from interlock.runtime.given import Given
from interlock.runtime.inside import Inside
from interlock.runtime.sharing.inside import SharedInside
from interlock.store.protocol import Store
from interlock.store.shared import SharedStore


def inside_of(store: Store, machines: dict[str, Bound], given: Given) -> Inside:
    """The inside for a store."""
    if isinstance(store, SharedStore):
        return SharedInside(store, machines, given)
    return Inside(store, machines, given)
