"""Import the driver, or raise with the command that installs it."""

# pyright: reportMissingTypeStubs=false

from interlock.errors import MissingExtra

try:
    import asyncpg
except ImportError as error:
    raise MissingExtra("PostgreSQL needs asyncpg, which is not installed.", extra="postgres") from error

__all__ = ["asyncpg"]
