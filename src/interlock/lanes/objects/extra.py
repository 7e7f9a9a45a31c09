"""What is said when a lane on a bucket is wanted and the packages it needs are not installed."""

from interlock.errors import MissingExtra


def missing_extra(package: str) -> MissingExtra:
    """The error for a package that is not installed, with the command that installs it."""
    return MissingExtra(f"a database in a bucket needs {package}, which is not installed.", extra="objects")
