"""Configuration of an engine, besides its store and its machines."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlock.clock import Chance, Clock, Ids
from interlock.core.policies import Dependency
from interlock.engine.alerts.alarms import Alarms
from interlock.engine.path.contention import Contended
from interlock.engine.settings import Admission, EngineSettings
from interlock.engine.waiters import Waiters
from interlock.signals import Subscribers
from interlock.urls import RedisAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
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
    redis: RedisAddress | None = None
    waiters: Waiters = field(default_factory=Waiters)
    """Callers that wait for workflows. They move along to another store."""
