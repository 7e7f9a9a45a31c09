"""Configuration of an engine, besides its store and its machines."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlock.coordination.addresses import Address
from interlock.core.policies import Dependency
from interlock.runtime.alerts.alarms import Alarms
from interlock.runtime.contended import Contended
from interlock.runtime.settings import Admission, EngineSettings
from interlock.runtime.waiters import Waiters
from interlock.seams import Chance, Clock, Ids
from interlock.signals import Subscribers


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The settings, clock, observers and alerts of one engine."""

    settings: EngineSettings
    admission: Admission
    clock: Clock
    chance: Chance
    ids: Ids
    subscribers: Subscribers
    alarms: Alarms
    worker: bool
    dependencies: Sequence[Dependency] = ()
    contended: Contended = field(default_factory=Contended)
    redis: Address | None = None
    waiters: Waiters = field(default_factory=Waiters)
    """Callers that wait for workflows. They move along to another store."""
