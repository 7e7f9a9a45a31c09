"""What is said when an optional part of the testing kit is used without being installed."""

from interlock.errors import MissingExtra


def missing_extra(module: str, package: str) -> MissingExtra:
    """The error for a module of the testing kit whose package is not installed, with the command that installs it."""
    return MissingExtra(f"{module} needs {package}, which is not installed.", extra="testing")
