"""Stock: units of one thing, taken by concurrent callers, never oversold and never negative (D8).

    stock = db.stock("sku-1")
    await stock.add(100)
    ok = await stock.take(2)                          # False when not enough
    reservation = await stock.reserve(2, for_s=60)    # None when not enough
    await reservation.confirm()                       # sold; False when it has expired

The check and the change of a `take` are one conditional UPDATE: no reader comes between them on any engine. What was
added is always `available + reserved + sold`, in every transaction. A reservation expires by the clock of the database
and no other (G8). Expired units return when a caller finds too few, calls `left`, or calls `expire`.

Callers that take from one stock still wait for each other, because it is one row.
"""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from interlock.errors import ConstraintViolation, InvalidPayload
from interlock.hotrow.tables import checked_amount, checked_name, checked_seconds, key_of, ready
from interlock.sql.stored_values import Executor, Statements

EXPIRED_MAX = 100
"""G6: expired reservations that one transaction returns."""

EXPIRIES_MAX = 100
"""G6: such transactions, one after the other, of a call that needs the units."""

HELD_S_MAX = 366 * 24 * 3600.0
"""The longest that a reservation may be held."""

ADD = (
    "INSERT INTO hotrow_stock (name, available, reserved, sold) VALUES ($1, $2, 0, 0) "
    "ON CONFLICT (name) DO UPDATE SET available = hotrow_stock.available + excluded.available"
)
TAKE = "UPDATE hotrow_stock SET available = available - $2, sold = sold + $2 WHERE name = $1 AND available >= $2"
GIVE_BACK = "UPDATE hotrow_stock SET available = available + $2, sold = sold - $2 WHERE name = $1 AND sold >= $2"
COUNTS = "SELECT available, reserved, sold FROM hotrow_stock WHERE name = $1"

RESERVE = (
    "UPDATE hotrow_stock SET available = available - $2, reserved = reserved + $2 WHERE name = $1 AND available >= $2"
)
HOLD = (
    "INSERT INTO hotrow_reservation (id, name, quantity, expires_at) VALUES (gen_random_uuid(), $1, $2, $3) "
    "RETURNING id"
)
END = "DELETE FROM hotrow_reservation WHERE id = $1 AND name = $2 AND expires_at > now() RETURNING quantity"
CONFIRM = "UPDATE hotrow_stock SET reserved = reserved - $2, sold = sold + $2 WHERE name = $1"
RELEASE = "UPDATE hotrow_stock SET reserved = reserved - $2, available = available + $2 WHERE name = $1"

ANY_DUE = "SELECT id FROM hotrow_reservation WHERE name = $1 AND expires_at <= now() LIMIT 1"
DUE = (
    "SELECT id, quantity, expires_at FROM hotrow_reservation WHERE name = $1 AND expires_at <= now() "
    "ORDER BY expires_at, id LIMIT $2"
)
END_DUE = (
    "DELETE FROM hotrow_reservation WHERE name = $1 AND (expires_at < $2 OR (expires_at = $2 AND id <= $3)) "
    "RETURNING quantity"
)


class Counts(NamedTuple):
    """The units of a stock by state. Their sum is the number that was added."""

    available: int
    reserved: int
    sold: int


class Reservation:
    """Units that are reserved until they are confirmed, released or expired."""

    def __init__(
        self, stock: "Stock", identifier: str, *, quantity: int | None = None, expires_at: datetime | None = None
    ) -> None:
        self.id = identifier
        """Store it: `stock.reservation(id)` returns the reservation again after a restart."""
        self.quantity = quantity
        """Reserved units; None for a reservation that was looked up by its id."""
        self.expires_at = expires_at
        """Expiry by the database's clock; None for a reservation that was looked up by its id."""
        self._stock = stock

    def __repr__(self) -> str:
        return f"Reservation({self.id!r}, quantity={self.quantity}, expires_at={self.expires_at})"

    async def confirm(self) -> bool:
        """Sell the units; return False when it has expired or was released. A repeated call returns the same."""
        return await self._stock.end(self.id, confirmed=True)

    async def release(self) -> bool:
        """Give the units back; return False when it has expired or was confirmed. A repeated call returns the same."""
        return await self._stock.end(self.id, confirmed=False)


class Stock:
    """The units of one thing in a database. Any number of handles, in any number of processes, may use one name."""

    def __init__(self, db: Executor, name: str) -> None:
        self.name = checked_name("stock", name)
        """The primary key of its row."""
        self._db = db

    async def add(self, quantity: int, *, key: str | None = None) -> None:
        """Add units. The first call creates the stock."""
        checked_amount("stock.add", quantity)
        await ready(self._db, "hotrow_stock")
        await self._db.execute(ADD, self.name, quantity, key=key_of("stock", self.name, key))

    async def take(self, quantity: int = 1, *, key: str | None = None) -> bool:
        """Sell the whole quantity; return False when fewer are available. A key repeats its answer."""
        checked_amount("stock.take", quantity)
        await ready(self._db, "hotrow_stock")
        if await self._db.execute(TAKE, self.name, quantity, key=key_of("stock", self.name, key)):
            return True
        # With a key the second attempt is part of the answer: a call that is repeated after more has expired must
        # return the same as the first.
        if not await self._enough_after_expiry(quantity) and key is None:
            return False
        return bool(
            await self._db.execute(TAKE, self.name, quantity, key=key_of("stock", self.name, key, "-second-look"))
        )

    async def give_back(self, quantity: int = 1, *, key: str | None = None) -> None:
        """Make sold units available again. Raises ConstraintViolation for more than were sold."""
        checked_amount("stock.give_back", quantity)
        await ready(self._db, "hotrow_stock")
        if key is None:
            await _give_back(self._db, self.name, quantity)
        else:
            # In a transaction, so that a refused call does not use up its key: the sale may commit later.
            await self._db.transact(_give_back, self.name, quantity, key=key_of("stock", self.name, key))

    async def left(self) -> int:
        """Return how many can be taken now."""
        counts = await self.counts()
        if counts.reserved:
            counts = await self._counts_after_expiry()
        return counts.available

    async def counts(self) -> Counts:
        """Return the units by state. An expired reservation counts as reserved until its units are returned."""
        await ready(self._db, "hotrow_stock")
        rows = await self._db.query(COUNTS, self.name)
        return Counts(*_whole(*rows[0])) if rows else Counts(0, 0, 0)

    async def reserve(self, quantity: int = 1, *, for_s: float, key: str | None = None) -> Reservation | None:
        """Reserve the whole quantity for `for_s` seconds; return None when fewer are available."""
        checked_amount("stock.reserve", quantity)
        seconds = checked_seconds("stock.reserve(for_s=)", for_s, HELD_S_MAX)
        await ready(self._db, "hotrow_stock", "hotrow_reservation")
        reservation = await self._reserve(quantity, seconds, key, "")
        if reservation is None and (await self._enough_after_expiry(quantity) or key is not None):
            reservation = await self._reserve(quantity, seconds, key, "-second-look")
        return reservation

    def reservation(self, identifier: str) -> Reservation:
        """Return the reservation of that id, for instance of one made before a restart. Nothing is read."""
        return Reservation(self, str(_uuid(identifier)))

    async def expire(self) -> int:
        """Return the units of at most `EXPIRED_MAX` expired reservations to the stock; return their number."""
        await ready(self._db, "hotrow_stock", "hotrow_reservation")
        # A plain read, which takes no lock, is enough for most calls: nothing has expired.
        if not await self._db.query(ANY_DUE, self.name):
            return 0
        return await self._db.transact(_expire, self.name, EXPIRED_MAX)

    async def _enough_after_expiry(self, quantity: int) -> bool:
        """Return expired units to the stock and report whether enough are available for a second attempt."""
        return (await self._counts_after_expiry()).available >= quantity

    async def _counts_after_expiry(self) -> Counts:
        for _ in range(EXPIRIES_MAX):
            if not await self.expire():
                break
        return await self.counts()

    async def end(self, identifier: str, *, confirmed: bool) -> bool:
        """End a reservation, for `Reservation.confirm` and `Reservation.release`."""
        await ready(self._db, "hotrow_stock", "hotrow_reservation")
        how = "confirm" if confirmed else "release"
        # The id is the key: a caller that crashed before it got the answer repeats the call and gets it.
        key = key_of("reservation", self.name, f"{identifier}:{how}")
        return await self._db.transact(_end, self.name, _uuid(identifier), confirmed, key=key)

    async def _reserve(self, quantity: int, seconds: float, key: str | None, part: str) -> Reservation | None:
        found = await self._db.transact(
            _reserve, self.name, quantity, seconds, key=key_of("stock", self.name, key, part)
        )
        if found is None:
            return None
        identifier, expires_at = found
        return Reservation(self, str(identifier), quantity=quantity, expires_at=expires_at)


async def _give_back(on: Statements, name: str, quantity: int) -> None:
    if not await on.execute(GIVE_BACK, name, quantity):
        raise ConstraintViolation(
            f"{quantity:,} of {name!r} were given back, and fewer are sold. Nothing was changed.",
            why="Giving back more than was sold would put units on sale that were never added.",
            fix="Give back what was taken, once (pass a key); new units come with add.",
        )


async def _reserve(tx: Statements, name: str, quantity: int, seconds: float) -> tuple[UUID, datetime] | None:
    if not await tx.execute(RESERVE, name, quantity):
        return None
    [(now,)] = await tx.query("SELECT now()")
    assert isinstance(now, datetime)
    expires_at = now + timedelta(seconds=seconds)
    [(identifier,)] = await tx.query(HOLD, name, quantity, expires_at)
    assert isinstance(identifier, UUID)
    return identifier, expires_at


async def _end(tx: Statements, name: str, identifier: UUID, confirmed: bool) -> bool:  # noqa: FBT001 - by position: part of the key's digest.
    ended = await tx.query(END, identifier, name)
    if not ended:
        return False
    await tx.execute(CONFIRM if confirmed else RELEASE, name, ended[0][0])
    return True


async def _expire(tx: Statements, name: str, most: int) -> int:
    due = await tx.query(DUE, name, most)
    if not due:
        return 0
    # Exactly the rows that were read: they are the first in this order, and a transaction sees no others.
    last = due[-1]
    ended = await tx.query(END_DUE, name, last[2], last[0])
    units = sum(_whole(*(row[0] for row in ended)))
    await tx.execute(RELEASE, name, units)
    return units


def _whole(*values: object) -> tuple[int, ...]:
    """Values of bigint columns."""
    assert all(isinstance(value, int) for value in values)
    return tuple(value for value in values if isinstance(value, int))


def _uuid(identifier: object) -> UUID:
    try:
        return UUID(str(identifier))
    except ValueError:
        raise InvalidPayload(
            f"{identifier!r} is not the id of a reservation.",
            why="Reservations are named by UUIDs that the database gives them.",
            fix="Pass the `id` of a reservation that `reserve` returned.",
        ) from None
