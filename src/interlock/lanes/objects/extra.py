"""The error for a missing package that a lane on a bucket needs."""

from interlock.errors import MissingExtra


def missing_extra(package: str) -> MissingExtra:
    """Return the error for a package that is not installed, with the command that installs it."""
    return MissingExtra(f"a database in a bucket needs {package}, which is not installed.", extra="objects")
