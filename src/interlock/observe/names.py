"""Names, labels and descriptions of all metrics (C13), and the names of installed observers.

The dotted name is OpenTelemetry's; with underscores it is Prometheus's, where a counter ends in `_total`. Durations are
in seconds, and their names have no unit. Dashboards and alerts depend on exactly these names.
"""

from importlib.util import find_spec
from typing import Literal

import msgspec


class Metric(msgspec.Struct, frozen=True):
    """The declaration of one metric."""

    name: str
    kind: Literal["histogram", "gauge", "counter"]
    description: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """The unit of durations. Counts have none: "1" would add `_ratio` to a gauge where names get suffixes."""

    @property
    def flat(self) -> str:
        """The name for Prometheus, without a counter's suffix."""
        return self.name.replace(".", "_")


DURATION = Metric(
    "pipeline.transition.duration",
    "histogram",
    "Seconds from when a group of transitions began to be decided until it was durable, per transition.",
    ("machine", "from", "to"),
    "s",
)
GROUP = Metric("pipeline.group.size", "histogram", "Transitions that became durable together.")
ATTEMPT = Metric(
    "step.attempt.duration",
    "histogram",
    "Seconds an attempt of a step, an undo or an effect took.",
    ("machine", "step", "kind", "outcome"),
    "s",
)
REJECTIONS = Metric(
    "transition.rejections", "counter", "Events that were refused; nothing changed.", ("machine", "event", "code")
)
LATE = Metric("results.late", "counter", "Results of attempts whose workflow had moved on; nothing changed.")
BLOCKED = Metric(
    "event.loop.blocked",
    "counter",
    "Times the event loop did not turn, by the step that blocked it.",
    ("machine", "step"),
)
CHANGES = Metric(
    "circuit.breaker.changes", "counter", "Changes of a circuit breaker, by the new state.", ("dependency", "to")
)
ALERTS = Metric("alerts.raised", "counter", "Alerts for a person, by kind.", ("kind",))
REFUSALS = Metric("admission.refusals", "counter", "Calls that were not taken in because of overload.")
FAILURES = Metric("observer.failures", "counter", "Errors raised by observers; workflows were not harmed.")
BREAKER = Metric(
    "circuit.breaker.state", "gauge", "0 closed, 1 open, 2 half-open, as this process has it.", ("dependency",)
)
DEPENDENCY_CALLS = Metric("dependency.calls", "gauge", "Calls of a dependency under way.", ("dependency",))
DEPENDENCY_WAITING = Metric(
    "dependency.waiting", "gauge", "Workflows and effects that wait for a dependency.", ("dependency",)
)
IN_FLIGHT = Metric("calls.in.flight", "gauge", "Calls taken in and not answered.")
UNDER_WAY = Metric("attempts.under.way", "gauge", "Attempts that run.")
WAITING = Metric("attempts.waiting", "gauge", "Workflows and effects that wait for a place to run.")
DEPTH = Metric(
    "state.machine.depth", "gauge", "Workflows in a state, sampled by a query of the store.", ("machine", "state")
)
DEBT = Metric("compensation.debt", "gauge", "Workflows whose undos are pending or being tried.", ("machine",))
LETTERS = Metric("dead.letters", "gauge", "Dead letters that wait for a person.", ("kind",))
STALLED = Metric("workflows.stalled", "gauge", "Workflows longer in their state than declared.", ("machine",))
SAMPLE_AGE = Metric("store.sample.age", "gauge", "Seconds since the store was last sampled.", (), "s")
REDIS = Metric("redis.up", "gauge", "1 when Redis answers this process, 0 when it does not; only with Redis.")
UNHEARD = Metric(
    "workers.unheard", "gauge", "Workers of this server that did not answer; their figures are missing in this scrape."
)

METRICS = (
    DURATION,
    GROUP,
    ATTEMPT,
    REJECTIONS,
    LATE,
    BLOCKED,
    CHANGES,
    ALERTS,
    REFUSALS,
    FAILURES,
    BREAKER,
    DEPENDENCY_CALLS,
    DEPENDENCY_WAITING,
    IN_FLIGHT,
    UNDER_WAY,
    WAITING,
    REDIS,
    DEPTH,
    DEBT,
    LETTERS,
    STALLED,
    SAMPLE_AGE,
    UNHEARD,
)

BREAKER_STATES = {"closed": 0, "open": 1, "half_open": 2}
"""The values of `circuit.breaker.state`."""


NEEDED = {"prometheus": "prometheus_client", "otel": "opentelemetry.sdk"}
"""The package of each observer. Many packages depend on OpenTelemetry's API; only its SDK can export."""


def installed() -> tuple[str, ...]:
    """Return the names that `Engine.open(observers=…)` can load: the default of a server. Loads no package."""
    return tuple(name for name, package in NEEDED.items() if _is_installed(package))


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # The parent package is missing.
        return False
