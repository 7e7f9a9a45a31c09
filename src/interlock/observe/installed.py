"""Which observers can be loaded here: those whose packages are installed. Looks, and loads nothing of them."""

from importlib.util import find_spec

NEEDED = {"prometheus": "prometheus_client", "otel": "opentelemetry.sdk"}
"""Many packages bring the API of OpenTelemetry along; without its SDK there is nobody to speak to."""


def installed() -> tuple[str, ...]:
    """The names that `Engine.open(observers=…)` can load: what a server has without being asked."""
    return tuple(name for name, package in NEEDED.items() if _is_there(package))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # Not even what it is a part of.
        return False
