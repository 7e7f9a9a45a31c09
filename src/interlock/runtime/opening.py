"""`Engine.open`: from an address and machines to an engine that runs.

What is given is checked before anything is opened: a misspelt setting, two machines of one name, a strategy for a step
that no machine has. Whatever fails on the way, the store is given up again.
"""

import difflib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import msgspec

from interlock.catalog.configuration import configured, configured_engine, lane_settings
from interlock.coordination.addresses import configured_redis
from interlock.core.pipeline import PipelineStep
from interlock.core.policies import Dependency
from interlock.core.step import Step
from interlock.errors import BadUsage, DefinitionError
from interlock.lanes.settings import KINDS
from interlock.runtime.alerts.alarms import Alarms
from interlock.runtime.alerts.receivers import Receiver
from interlock.runtime.bound import AnyMachine, Bound, Strategy
from interlock.runtime.contended import Contended
from interlock.runtime.figures import Figures
from interlock.runtime.following import Follower
from interlock.runtime.given import Given
from interlock.runtime.inside import Inside
from interlock.runtime.observers import by_default, looks, observers_of
from interlock.runtime.settings import Admission, EngineSettings
from interlock.runtime.sharing.opening import inside_of
from interlock.runtime.trail import Trail
from interlock.seams import Chance, Clock, Ids, RandomIds, SystemChance, SystemClock
from interlock.signals import Observer, Subscribers
from interlock.store.opening import NAME, open_store

SETTINGS: dict[str, type[float]] = {field.name: field.type for field in msgspec.structs.fields(EngineSettings)}


class Closing(Protocol):
    """What an opening hands out."""

    async def close(self) -> None:
        """Give it up."""
        ...


EngineT = TypeVar("EngineT", bound=Closing)


class Opening(Generic[EngineT]):
    """An engine that is about to be open: enter it, or await it."""

    def __init__(
        self,
        make: Callable[[Inside, Follower], EngineT],
        url: str,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency],
        steps: Mapping[object, Strategy],
        worker: bool,
        admission: Admission,
        observers: Sequence[Observer | str],
        alerts: Sequence[Receiver],
        clock: Clock | None,
        chance: Chance | None,
        ids: Ids | None,
        cache: str | None,
        redis: str | None,
        accept_changes: bool,
        settings: Mapping[str, float],
    ) -> None:
        self._make = make
        self._url = url
        self._machines = bind(machines, steps)
        self._dependencies = check_dependencies(dependencies, self._machines)
        self._worker = worker
        self._admission = admission
        self._subscribers = Subscribers()
        self._clock = clock or SystemClock()
        given = observers_of(observers)
        # The environment is that of the real world: a simulation in virtual time has only what it is given.
        defaults = by_default(given) if isinstance(self._clock, SystemClock) else ()
        for observer in (*given, *defaults):
            self._subscribers.subscribe(observer)
        self._chance = chance or SystemChance()
        self._ids = ids or RandomIds()
        self._alerts = tuple(alerts)
        self._cache = cache
        self._redis = configured_redis(redis, None if isinstance(self._clock, SystemClock) else {})
        self._accept_changes = accept_changes
        self._settings, self._lane_settings = split_settings(settings)
        self._engine: EngineT | None = None

    def __enter__(self) -> None:
        """Refused: an engine lives in an event loop."""
        raise BadUsage(
            "an engine was entered with `with`.",
            why="An engine lives in an event loop.",
            fix="Write `async with Engine.open(…)`; in synchronous code `with BlockingEngine.open(…)`.",
        )

    def __exit__(self, *_: object) -> None:
        """Never reached: see `__enter__`."""

    def __await__(self) -> Generator[object, None, EngineT]:
        """Open it without a block; close it with `await engine.close()`."""
        return self._open().__await__()

    async def __aenter__(self) -> EngineT:
        """Open it; leaving the block closes it."""
        self._engine = await self._open()
        return self._engine

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, whatever happened inside."""
        del kind, error, trace
        assert self._engine is not None
        await self._engine.close()

    async def _open(self) -> EngineT:
        given = self._given()
        trail = Trail(self._url, [*self._machines])
        try:
            await trail.begin()
            inside = await trail.open(lambda trail: self._begun(trail, given))
        except BaseException:
            await given.alarms.close()
            raise
        follower = Follower(
            inside,
            trail,
            make=lambda trail: self._made(trail, given),
            begin=lambda inside: inside.begin(accept_changes=self._accept_changes),
            chance=self._chance,
            clock=given.clock,
        )
        engine, figures = self._make(inside, follower), Figures(inside)
        follower.entered.append(figures.enter)
        for observer in self._subscribers.observers:
            if looks(observer):
                observer.opened(figures)
        return engine

    def _given(self) -> Given:
        return Given(
            settings=self._settings,
            admission=self._admission,
            clock=self._clock,
            chance=self._chance,
            ids=self._ids,
            subscribers=self._subscribers,
            alarms=Alarms(self._subscribers, self._alerts, clock=self._clock, chance=self._chance),
            worker=self._worker,
            dependencies=self._dependencies,
            redis=self._redis,
            contended=Contended(lane_settings({**configured(NAME, KINDS), **self._lane_settings})),
        )

    async def _begun(self, trail: Trail, given: Given) -> Inside:
        """The inside at the place, begun."""
        inside = await self._made(trail, given)
        try:
            await inside.begin(accept_changes=self._accept_changes)
        except BaseException:
            await inside.leave()
            raise
        return inside

    async def _made(self, trail: Trail, given: Given) -> Inside:
        """An inside at the place, which has not begun."""
        store = await open_store(
            trail.url, clock=self._clock, settings=self._lane_settings, cache=self._cache, epoch=trail.seen_epoch
        )
        try:
            return inside_of(store, self._machines, given)
        except BaseException:
            await store.close()
            raise


def check_dependencies(dependencies: Sequence[Dependency], machines: Mapping[str, Bound]) -> tuple[Dependency, ...]:
    """Refuse what is not a dependency, two of one name, and one that no step or effect of the machines names (C19)."""
    several: object = dependencies  # Not every caller has a type checker.
    if not isinstance(several, Iterable):
        raise DefinitionError(
            f"dependencies= is {several!r}, which is no list.",
            why="An engine takes any number of them.",
            fix='Give a list: dependencies=[Dependency("gateway", concurrency_max=20)].',
            rule="bad-dependency",
        )
    names: set[str] = set()
    for each in dependencies:
        given: object = each  # Not every caller has a type checker.
        if not isinstance(given, Dependency) or given.name in names:
            raise DefinitionError(
                f"dependencies= has {given!r}, "
                + ("a second time." if isinstance(given, Dependency) else "which is no Dependency."),
                why="A dependency has one breaker and one set of limits in the whole process.",
                fix='Give each once: dependencies=[Dependency("gateway", concurrency_max=20)].',
                rule="bad-dependency",
            )
        names.add(given.name)
    known = {name for bound in machines.values() for name in bound.dependencies()}
    for name in sorted(names - known):
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise DefinitionError(
            f"dependencies= has {name!r}, which no step or effect of these machines names.{meant}",
            why="Its limits and its breaker would hold for nothing, while the real dependency has the defaults.",
            fix=f"Use one of: {', '.join(map(repr, sorted(known))) or 'none, no step names one'}; or leave it out.",
            rule="unknown-dependency",
        )
    return tuple(dependencies)


def bind(machines: Sequence[AnyMachine], steps: Mapping[object, Strategy]) -> dict[str, Bound]:
    """The machines with their strategies, by name. Raises DefinitionError for what cannot be meant."""
    if not machines:
        raise DefinitionError(
            "an engine was opened without a machine.",
            why="An engine runs the machines that it is given, and without one there is nothing to run.",
            fix="Pass them: Engine.open(url, machines=[order]).",
            rule="no-machine",
        )
    strategies = {_key(step): strategy for step, strategy in steps.items()}
    bound: dict[str, Bound] = {}
    used: set[object] = set()
    for machine in machines:
        if machine.name in bound:
            raise DefinitionError(
                f"two machines are named {machine.name!r}.",
                why="Workflows are stored with the name of their machine.",
                fix="Give one of them another name; versions of one machine are not machines of their own.",
                rule="duplicate-machine",
            )
        bound[machine.name] = Bound(machine, strategies)
        used |= bound[machine.name].swappable()
    for key, given in zip(strategies, steps, strict=True):
        if key not in used and not (isinstance(key, str) and any(name == key for _, name in _names(bound))):
            raise DefinitionError(
                f"steps= has {given!r}, which is no step, undo or effect of these machines.",
                why="A strategy that replaces nothing would never run, and nobody would notice.",
                fix="Use the step as it was declared: steps={charge: fake}.",
                rule="unknown-step",
            )
    return bound


def _names(bound: Mapping[str, Bound]) -> list[tuple[str, str]]:
    return [(name, step) for name, each in bound.items() for step in each.steps]


def _key(step: object) -> object:
    if isinstance(step, Step):
        return step.machine, step.name
    return step.name if isinstance(step, PipelineStep) else step


def split_settings(given: Mapping[str, float]) -> tuple[EngineSettings, dict[str, float]]:
    """The settings of the engine, and those of the lane below it."""
    known = {**SETTINGS, **KINDS}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise DefinitionError(
                f"an engine has no setting {name!r}.{meant}",
                why="A setting that nobody reads would silently not hold.",
                fix=f"Use one of: {', '.join(sorted(SETTINGS))}; or one of the lane's: {', '.join(sorted(KINDS))}.",
                rule="unknown-setting",
            )
    mine = {**configured_engine(SETTINGS), **{name: value for name, value in given.items() if name in SETTINGS}}
    try:
        settings = msgspec.convert(mine, EngineSettings, strict=True)
    except msgspec.ValidationError as error:
        raise DefinitionError(
            f"a setting of the engine is wrong: {error}.",
            why="Every bound and every wait has its type and its range.",
            fix="Give it a number within its range; docs/reference/settings.md has them all.",
            rule="setting-out-of-range",
        ) from error
    return settings, {name: value for name, value in given.items() if name not in SETTINGS}
