"""`Engine.open`: check the arguments, open the store and begin the engine.

Arguments are checked before anything is opened: a misspelt setting, two machines of one name, a strategy for a step
that no machine has, an unknown observer. If opening fails, the store is closed again.

Observers may be named: `Engine.open(observers=["prometheus", "otel"])`. The engine imports no exporter, and loads one
only when it is named. Other packages add theirs as entry points of the group `interlock.observers`, each a callable
without arguments that makes an observer.
"""

import importlib
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from interlock.clock import Chance, Clock, Ids, RandomIds, SystemChance, SystemClock
from interlock.core.decide import suggestion
from interlock.core.machine import Machine, Step
from interlock.core.pipeline import PipelineStep
from interlock.core.policies import Dependency, Seconds, in_seconds
from interlock.engine.alerts.delivery import Alarms
from interlock.engine.alerts.receivers import Receiver
from interlock.engine.bound_machine import OWN_MACHINES, AnyMachine, BoundMachine, Strategy
from interlock.engine.engine_settings import Admission, EngineSettings
from interlock.engine.follow_moves import Follower, StoreRoute
from interlock.engine.internals import EngineConfig, EngineParts
from interlock.engine.operators.bulk_runs import bulk_machine
from interlock.engine.operators.gauges import Gauges
from interlock.engine.path.commit_pipeline import ContentionTable
from interlock.engine.pauses import pause_machine
from interlock.engine.schedules import Schedule, Schedules, schedule_machine, start_due
from interlock.errors import BadUsage, DefinitionError, MissingExtra
from interlock.lanes.lane_settings import KINDS
from interlock.settings import configured, configured_engine, lane_settings
from interlock.signals import Observer, Subscribers
from interlock.store.open_store import NAME, open_store
from interlock.urls import configured_redis, resolve_url

# --- Observers -------------------------------------------------------------------------------------------------------
# OpenTelemetry is the default (C13): where the program has set a provider, or the environment names an exporter, an
# engine uses it by default. Everywhere else that costs two lookups in dictionaries.

GROUP = "interlock.observers"

OURS = {
    "prometheus": ("interlock.observe.prometheus", "Prometheus"),
    "otel": ("interlock.observe.otel", "OpenTelemetry"),
    "logs": ("interlock.observe.logs", "Logs"),
}

OTEL_SDK = ("opentelemetry.sdk.trace", "opentelemetry.sdk.metrics")
"""Modules of which a program that has set a provider has loaded one."""


@runtime_checkable
class GaugesObserver(Protocol):
    """An observer that also samples: it receives the gauges of each engine that it observes."""

    def opened(self, gauges: Gauges, /) -> None:
        """Receive the gauges of an engine that was opened."""
        ...


def observers_of(observers: Iterable[Observer | str]) -> tuple[Observer, ...]:
    """Return the observers, and load those that are names. Raises MissingExtra for a package that is missing."""
    several: object = observers
    if isinstance(several, str):
        raise DefinitionError(
            f"observers= is the text {several!r}.",
            why="An engine takes any number of observers.",
            fix=f'Pass a list: observers=["{several}"].',
            rule="unknown-observer",
        )
    return tuple(load_observer(each) if isinstance(each, str) else each for each in observers)


def default_observers(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return OpenTelemetry, if the program or its environment has set it up and no other observer traces.

    OTEL_SDK_DISABLED=true disables it.
    """
    wanted = any(name in sys.modules for name in OTEL_SDK) or any(
        name.startswith("OTEL_") and name.endswith(("_EXPORTER", "_ENDPOINT")) for name in os.environ
    )
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not wanted or disabled or any(hasattr(each, "tracing") for each in observers):
        return ()
    try:
        otel = load_observer("otel")
    except MissingExtra:  # The environment is meant for another program, or for another release of this one.
        return ()
    return (otel,) if getattr(otel, "is_heard", False) else ()


def load_observer(name: str) -> Observer:
    """Make a new observer of that name. Raises DefinitionError for an unknown one."""
    if name in OURS:
        module, attribute = OURS[name]
        make = cast("Callable[[], Observer]", getattr(importlib.import_module(module), attribute))
        return make()
    others = {each.name: each for each in entry_points(group=GROUP)}
    if name not in others:
        known = [*OURS, *others]
        raise DefinitionError(
            f"there is no observer {name!r}.{suggestion(name, known)}",
            why="An unknown name would silently observe nothing.",
            fix=f"Use one of {', '.join(known)}, or pass an observer itself: any function that takes a signal.",
            rule="unknown-observer",
        )
    return cast("Callable[[], Observer]", others[name].load())()


# --- Opening ---------------------------------------------------------------------------------------------------------

SETTINGS: dict[str, type[float]] = {field.name: field.type for field in msgspec.structs.fields(EngineSettings)}


class Closing(Protocol):
    """An object that can be closed: the result of an opening."""

    async def close(self) -> None:
        """Close it."""
        ...


EngineT = TypeVar("EngineT", bound=Closing)


class EngineOpening(Generic[EngineT]):
    """Awaitable and async context manager that opens an engine."""

    def __init__(
        self,
        make: Callable[[EngineParts, Follower], EngineT],
        url: str,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency],
        steps: Mapping[object, Strategy],
        provide: Sequence[object],
        worker: bool,
        admission: Admission,
        observers: Sequence[Observer | str],
        alerts: Sequence[Receiver],
        schedules: Sequence[Schedule],
        clock: Clock | None,
        chance: Chance | None,
        ids: Ids | None,
        cache: str | None,
        redis: str | None,
        accept_changes: bool,
        settings: Mapping[str, Seconds],
    ) -> None:
        self._make = make
        self._url = resolve_url(url)
        refuse_other_machines(machines)
        self._schedules = Schedules(machines, schedules)
        self._machines = bind(machines, steps, provide if worker else None)
        if worker:
            _demand_machines_of_children(self._machines)
        add_own_machines(self._machines, self._schedules)
        self._cache = cache
        self._accept_changes = accept_changes
        engine_settings, self._lane_settings = split_settings(settings)
        clock, chance, subscribers = clock or SystemClock(), chance or SystemChance(), Subscribers()
        chosen = observers_of(observers)
        # A simulation in virtual time ignores the environment, and has only the observers of its caller.
        defaults = default_observers(chosen) if isinstance(clock, SystemClock) else ()
        for observer in (*chosen, *defaults):
            subscribers.subscribe(observer)
        self._config = EngineConfig(
            settings=engine_settings,
            admission=admission,
            clock=clock,
            chance=chance,
            ids=ids or RandomIds(),
            subscribers=subscribers,
            alarms=Alarms(subscribers, alerts, clock=clock, chance=chance),
            worker=worker,
            dependencies=check_dependencies(dependencies, self._machines),
            redis=configured_redis(redis, None if isinstance(clock, SystemClock) else {}),
            contended=ContentionTable(lane_settings({**configured(NAME, KINDS), **self._lane_settings})),
            schedules=self._schedules,
        )
        self._engine: EngineT | None = None

    def __enter__(self) -> None:
        """Raise BadUsage: an engine lives in an event loop."""
        raise BadUsage(
            "an engine was entered with `with`.",
            why="An engine lives in an event loop.",
            fix="Write `async with Engine.open(…)`; in synchronous code `with BlockingEngine.open(…)`.",
        )

    def __exit__(self, *_: object) -> None:
        """Never reached: see `__enter__`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"the engine is not open yet, so {name!r} cannot be used. "
                "Write `async with Engine.open(…) as engine`, or `engine = await Engine.open(…)`."
            )

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
        """Close it, also after an error in the block."""
        del kind, error, trace
        assert self._engine is not None
        await self._engine.close()

    async def _open(self) -> EngineT:
        config, route = self._config, StoreRoute(self._url, [*self._machines])
        try:
            await route.begin()
            parts = await route.open(self._open_parts)
        except BaseException:
            await config.alarms.close()
            raise
        follower = Follower(
            parts, route, make=self._make_parts, begin=self._begin, chance=config.chance, clock=config.clock
        )
        engine, gauges = self._make(parts, follower), Gauges(parts)
        follower.entered.append(gauges.enter)
        for observer in config.subscribers.observers:
            if isinstance(observer, GaugesObserver):
                observer.opened(gauges)
        try:
            await self._schedules.put_declared()
        except BaseException:
            await engine.close()
            raise
        return engine

    async def _begin(self, parts: EngineParts) -> None:
        await parts.begin(accept_changes=self._accept_changes)

    async def _open_parts(self, route: StoreRoute) -> EngineParts:
        """Open and begin the parts of the engine at the current place of the workflows."""
        parts = await self._make_parts(route)
        try:
            await self._begin(parts)
        except BaseException:
            await parts.leave()
            raise
        return parts

    async def _make_parts(self, route: StoreRoute) -> EngineParts:
        """Open the parts of the engine at the current place of the workflows, without beginning it."""
        store = await open_store(
            route.url, clock=self._config.clock, settings=self._lane_settings, cache=self._cache, epoch=route.seen_epoch
        )
        try:
            return EngineParts(store, self._machines, self._config)
        except BaseException:
            await store.close()
            raise


def check_dependencies(
    dependencies: Sequence[Dependency], machines: Mapping[str, BoundMachine]
) -> tuple[Dependency, ...]:
    """Raise DefinitionError for a wrong type, two of one name, and one that no step or effect names (C19)."""
    several: object = dependencies  # Not every caller has a type checker.
    if not isinstance(several, Iterable):
        raise DefinitionError(
            f"dependencies= is {several!r}, which is not a list.",
            why="An engine takes any number of them.",
            fix='Pass a list: dependencies=[Dependency("gateway", concurrency_max=20)].',
            rule="bad-dependency",
        )
    names: set[str] = set()
    for each in dependencies:
        value: object = each  # Not every caller has a type checker.
        if not isinstance(value, Dependency) or value.name in names:
            raise DefinitionError(
                f"dependencies= has {value!r}, "
                + ("a second time." if isinstance(value, Dependency) else "which is not a Dependency."),
                why="A dependency has one breaker and one set of limits in the whole process.",
                fix='Pass each once: dependencies=[Dependency("gateway", concurrency_max=20)].',
                rule="bad-dependency",
            )
        names.add(value.name)
    known = {name for bound in machines.values() for name in bound.dependencies()}
    for name in sorted(names - known):
        hint = suggestion(repr(name), map(repr, known))
        raise DefinitionError(
            f"dependencies= has {name!r}, which no step or effect of these machines names.{hint}",
            why="Its limits and its breaker would have no effect, and the real dependency would have the defaults.",
            fix=f"Use one of: {', '.join(map(repr, sorted(known))) or 'none, no step names one'}; or leave it out.",
            rule="unknown-dependency",
        )
    return tuple(dependencies)


def bind(
    machines: Sequence[AnyMachine], steps: Mapping[object, Strategy], provide: Sequence[object] | None = None
) -> dict[str, BoundMachine]:
    """Bind the machines to their strategies, by name. Raises DefinitionError for invalid arguments.

    `provide` are the resources of steps, undos and effects; None for an engine that runs no steps.
    """
    if not machines:
        raise DefinitionError(
            "an engine was opened without a machine.",
            why="An engine runs the machines that it is opened with, and without one there is nothing to run.",
            fix="Pass them: Engine.open(url, machines=[order]).",
            rule="no-machine",
        )
    strategies = {_strategy_key(step): strategy for step, strategy in steps.items()}
    bound: dict[str, BoundMachine] = {}
    used: set[object] = set()
    for machine in machines:
        if machine.name in bound:
            raise DefinitionError(
                f"two machines are named {machine.name!r}.",
                why="Workflows are stored with the name of their machine.",
                fix="Give one of them another name; versions of one machine are not machines of their own.",
                rule="duplicate-machine",
            )
        bound[machine.name] = BoundMachine(machine, strategies, provide)
        used |= bound[machine.name].swappable()
    for key, step in zip(strategies, steps, strict=True):
        if key not in used and not (isinstance(key, str) and any(name == key for _, name in _names(bound))):
            raise DefinitionError(
                f"steps= has {step!r}, which is not a step, undo or effect of these machines.",
                why="A strategy that replaces nothing would silently never run.",
                fix="Use the step as it was declared: steps={charge: fake}.",
                rule="unknown-step",
            )
        unchecked: object = strategies[key]  # Not every caller has a type checker.
        if not callable(unchecked):
            raise DefinitionError(
                f"steps= has {unchecked!r:.100} for {step!r:.100}, which cannot be called.",
                why="It runs in place of the step's function, with the same arguments.",
                fix="Pass an async function: steps={charge: fake}.",
                rule="unknown-step",
            )
    return bound


def _demand_machines_of_children(bound: Mapping[str, BoundMachine]) -> None:
    """Raise DefinitionError if a machine starts children of a machine that a working engine does not have."""
    for parent in bound.values():
        for node in parent.table.steps.values():
            children = None if node.step is None else node.step.children
            if children is None:
                continue
            of = children.of.name
            what = f"machine {parent.name!r} starts children of machine {of!r} in state {node.name!r}"
            if of not in bound:
                raise DefinitionError(
                    f"{what}, and this engine was opened without machine {of!r}.",
                    why="An engine that runs steps starts the children itself, with the machine of the children.",
                    fix=f"Add machine {of!r} to machines=[...], or open with worker=False.",
                    rule="machine-of-children",
                )
            if cast("object", bound[of].machine) is not children.of:
                raise DefinitionError(
                    f"{what}, and this engine was opened with another machine of the name {of!r}.",
                    why="The children are started with the machine that children(of=...) names.",
                    fix=f"Pass that machine object in machines=[...] too: build {of!r} once.",
                    rule="machine-of-children",
                )


def refuse_other_machines(machines: object) -> None:
    """Raise DefinitionError for a machine that is not in a list, and for a list with anything else in it."""
    if isinstance(machines, Machine):
        found = f"machines= is the machine {machines.name!r}"
    elif isinstance(machines, str) or not isinstance(machines, Iterable):
        found = f"machines= is {machines!r:.100}"
    else:
        others = [entry for entry in cast("Iterable[object]", machines) if not isinstance(entry, Machine)]
        if not others:
            return
        found = f"machines= has {others[0]!r:.100}, which is not a Machine"
    raise DefinitionError(
        f"{found}.",
        why="An engine runs any number of machines, so it takes a list of them.",
        fix="Pass a list of machines: machines=[order].",
        rule="not-a-machine",
    )


def add_own_machines(bound: dict[str, BoundMachine], schedules: Schedules) -> None:
    """Add the machines of schedules, pauses and bulk runs, whose workflows are those of a home."""
    own: tuple[AnyMachine, ...] = (schedule_machine, pause_machine, bulk_machine)
    for machine in own:
        assert machine.name in OWN_MACHINES
        taken = bound.get(machine.name)
        if taken is not None and taken.machine is not machine:
            raise DefinitionError(
                f"a machine is named {machine.name!r}.",
                why="The schedules, pauses and bulk runs of a home are the workflows of such names.",
                fix="Give the machine another name.",
                rule="duplicate-machine",
            )
    bound[schedule_machine.name] = BoundMachine(schedule_machine, {_strategy_key(start_due): schedules})
    bound[pause_machine.name] = BoundMachine(pause_machine)
    bound[bulk_machine.name] = BoundMachine(bulk_machine)


def _names(bound: Mapping[str, BoundMachine]) -> list[tuple[str, str]]:
    return [(name, step) for name, each in bound.items() for step in each.steps]


def _strategy_key(step: object) -> object:
    if isinstance(step, Step):
        return step.machine, step.name
    return step.name if isinstance(step, PipelineStep) else step


def split_settings(chosen: Mapping[str, Seconds]) -> tuple[EngineSettings, dict[str, float]]:
    """Split settings into those of the engine and those of its lane. Raises DefinitionError for invalid ones."""
    known = {**SETTINGS, **KINDS}
    settings = {name: in_seconds(value) for name, value in chosen.items()}
    for name in settings:
        if name not in known:
            raise DefinitionError(
                f"an engine has no setting {name!r}.{suggestion(name, known)}",
                why="An unknown setting would silently have no effect.",
                fix=f"Use one of: {', '.join(sorted(SETTINGS))}; or one of the lane's: {', '.join(sorted(KINDS))}.",
                rule="unknown-setting",
            )
    mine = {**configured_engine(SETTINGS), **{name: value for name, value in settings.items() if name in SETTINGS}}
    try:
        engine = msgspec.convert(mine, EngineSettings, strict=True)
    except msgspec.ValidationError as error:
        raise DefinitionError(
            f"a setting of the engine is wrong: {error}.",
            why="Every bound and every wait has its type and its range.",
            fix="Give it a number within its range; docs/reference/settings.md has them all.",
            rule="setting-out-of-range",
        ) from error
    return engine, {name: value for name, value in settings.items() if name not in SETTINGS}
