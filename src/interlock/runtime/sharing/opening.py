"""Which inside an engine has: its store says whether it is shared.

A store with one owner answers from memory and is taken up when it opens; one that others write to as well is claimed
from, workflow by workflow.
"""

from interlock.runtime.alerts.alarms import Alarms
from interlock.runtime.bound import Bound
from interlock.runtime.inside import Inside
from interlock.runtime.settings import Admission, EngineSettings
from interlock.runtime.sharing.inside import SharedInside
from interlock.seams import Chance, Clock, Ids
from interlock.signals import Subscribers
from interlock.store.protocol import Store
from interlock.store.shared import SharedStore


def inside_of(
    store: Store,
    machines: dict[str, Bound],
    *,
    settings: EngineSettings,
    admission: Admission,
    clock: Clock,
    chance: Chance,
    ids: Ids,
    subscribers: Subscribers,
    alarms: Alarms,
    worker: bool,
) -> Inside:
    """The inside for a store."""
    if isinstance(store, SharedStore):
        return SharedInside(
            store,
            machines,
            settings=settings,
            admission=admission,
            clock=clock,
            chance=chance,
            ids=ids,
            subscribers=subscribers,
            alarms=alarms,
            worker=worker,
        )
    return Inside(
        store,
        machines,
        settings=settings,
        admission=admission,
        clock=clock,
        chance=chance,
        ids=ids,
        subscribers=subscribers,
        alarms=alarms,
        worker=worker,
    )
