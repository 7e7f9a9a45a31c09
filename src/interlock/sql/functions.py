"""The functions and the collation that a lane registers on each of its connections.

Translated statements call them where SQLite has no function of that meaning: errors instead of NULL, exact decimals,
PostgreSQL's rounding. They raise `TransactionError`, which apsw hands through. What depends on time or luck is given
by the lane as `Sources`, so that a simulation can repeat it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from interlock.sql.values import StoredValue


@dataclass(frozen=True, slots=True)
class Sources:
    """What the lane provides: the transaction's time (fixed within one transaction), chance in [0, 1), new ids."""

    now: Callable[[], datetime]
    random: Callable[[], float]
    uuid: Callable[[], UUID]


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function: `apsw.Connection.create_scalar_function(name, call, arguments, deterministic=…)`."""

    name: str
    call: Callable[..., StoredValue]
    arguments: int
    deterministic: bool = True


class Accumulator(Protocol):
    """The state of one aggregate over one group."""

    def step(self, *values: StoredValue) -> None:
        """Take one row."""
        ...

    def final(self) -> StoredValue:
        """The result of the group."""
        ...


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate function: `make()` starts a group."""

    name: str
    make: Callable[[], Accumulator]
    arguments: int = 1


@dataclass(frozen=True, slots=True)
class Collation:
    """One collation: `apsw.Connection.create_collation(name, compare)`."""

    name: str
    compare: Callable[[str, str], int]


def scalar_functions(sources: Sources) -> tuple[Function, ...]:
    """Everything to register as a scalar function."""
    raise NotImplementedError


def aggregate_functions() -> tuple[Aggregate, ...]:
    """Everything to register as an aggregate."""
    raise NotImplementedError


def collations() -> tuple[Collation, ...]:
    """Everything to register as a collation."""
    raise NotImplementedError
