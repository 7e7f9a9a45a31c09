"""Observers by name: the runtime knows no exporter, and loads one only when somebody asks for it.

`Engine.open(observers=["prometheus", "otel"])` names those of Interlock; other packages add theirs as entry points of
the group `interlock.observers`, each a callable without arguments that makes an observer.

OpenTelemetry is the default (C13): where the program has set a provider, or the environment names an exporter, an
engine speaks to it without being asked. Everywhere else that costs a look at two dictionaries.
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
"""A program that has set a provider has loaded one of these."""


class Opened(Protocol):
    """An observer that also looks: it is given the figures of each engine that it observes."""

    def opened(self, figures: Figures, /) -> None:
        """The engine is open."""
        ...


def observers_of(given: Iterable[Observer | str]) -> tuple[Observer, ...]:
    """The observers, those that are named made. Raises MissingExtra when the package of one is not installed."""
    several: object = given
    if isinstance(several, str):
        raise DefinitionError(
            f"observers= is the text {several!r}.",
            why="An engine takes any number of observers.",
            fix=f'Give a list: observers=["{several}"].',
            rule="unknown-observer",
        )
    return tuple(loaded(each) if isinstance(each, str) else each for each in given)


def by_default(given: Iterable[Observer]) -> tuple[Observer, ...]:
    """OpenTelemetry, if the program or its environment has set it up and nobody else speaks to it; else nothing.

    OTEL_SDK_DISABLED=true is the way to say no.
    """
    wanted = any(name in sys.modules for name in THEIR_SDK) or any(
        name.startswith("OTEL_") and name.endswith(("_EXPORTER", "_ENDPOINT")) for name in os.environ
    )
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not wanted or disabled or any(hasattr(each, "tracing") for each in given):
        return ()
    try:
        otel = loaded("otel")
    except MissingExtra:  # The environment is meant for another program, or for another release of this one.
        return ()
    return (otel,) if getattr(otel, "is_heard", False) else ()


def loaded(name: str) -> Observer:
    """A new observer of that name."""
    if name in OURS:
        module, attribute = OURS[name]
        make = cast("Callable[[], Observer]", getattr(importlib.import_module(module), attribute))
        return make()
    others = {each.name: each for each in entry_points(group=GROUP)}
    if name not in others:
        known = [*OURS, *others]
        raise DefinitionError(
            f"there is no observer {name!r}.{suggestion(name, known)}",
            why="A name that nobody has would silently observe nothing.",
            fix=f"Use one of {', '.join(known)}, or give an observer itself: any function that takes a signal.",
            rule="unknown-observer",
        )
    return cast("Callable[[], Observer]", others[name].load())()


def looks(observer: object) -> TypeGuard[Opened]:
    """Whether the observer wants the figures of its engine."""
    return hasattr(observer, "opened")
