"""Observers by name: the runtime imports no exporter, and loads one only when it is named.

`Engine.open(observers=["prometheus", "otel"])` names those of Interlock. Other packages add theirs as entry points of
the group `interlock.observers`, each a callable without arguments that makes an observer.

OpenTelemetry is the default (C13): where the program has set a provider, or the environment names an exporter, an
engine uses it by default. Everywhere else that costs two lookups in dictionaries.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Protocol, TypeGuard, cast

from interlock.core.refusals import suggestion
from interlock.errors import DefinitionError, MissingExtra
from interlock.runtime.figures import Figures
from interlock.signals import Observer

GROUP = "interlock.observers"

OURS = {
    "prometheus": ("interlock.observe.prometheus", "Prometheus"),
    "otel": ("interlock.observe.otel", "OpenTelemetry"),
    "logs": ("interlock.observe.logs", "Logs"),
}


THEIR_SDK = ("opentelemetry.sdk.trace", "opentelemetry.sdk.metrics")
"""Modules of which a program that has set a provider has loaded one."""


class Opened(Protocol):
    """An observer that also samples: it receives the gauges of each engine that it observes."""

    def opened(self, figures: Figures, /) -> None:
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
    return tuple(loaded(each) if isinstance(each, str) else each for each in observers)


def by_default(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return OpenTelemetry, if the program or its environment has set it up and no other observer traces.

    OTEL_SDK_DISABLED=true disables it.
    """
    wanted = any(name in sys.modules for name in THEIR_SDK) or any(
        name.startswith("OTEL_") and name.endswith(("_EXPORTER", "_ENDPOINT")) for name in os.environ
    )
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not wanted or disabled or any(hasattr(each, "tracing") for each in observers):
        return ()
    try:
        otel = loaded("otel")
    except MissingExtra:  # The environment is meant for another program, or for another release of this one.
        return ()
    return (otel,) if getattr(otel, "is_heard", False) else ()


def loaded(name: str) -> Observer:
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


def looks(observer: object) -> TypeGuard[Opened]:
    """Return whether the observer takes the gauges of its engine."""
    return hasattr(observer, "opened")
