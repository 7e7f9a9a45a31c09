"""The error for an optional part of the testing kit that is not installed."""

from interlock.errors import MissingExtra


def missing_extra(module: str, package: str) -> MissingExtra:
    """Return the error for a module whose package is not installed, with the command that installs it."""
    return MissingExtra(f"{module} needs {package}, which is not installed.", extra="testing")
