"""Names of the observers whose packages are installed. Loads none of them."""

from importlib.util import find_spec

NEEDED = {"prometheus": "prometheus_client", "otel": "opentelemetry.sdk"}
"""The package of each observer. Many packages depend on OpenTelemetry's API; only its SDK can export."""


def installed() -> tuple[str, ...]:
    """Return the names that `Engine.open(observers=…)` can load: the default of a server."""
    return tuple(name for name, package in NEEDED.items() if _is_installed(package))


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # The parent package is missing.
        return False
