"""Stock: so many units of one thing, taken by everybody at once, never oversold and never negative (D8).

    stock = db.stock("sku-1")
    await stock.add(100)
    ok = await stock.take(2)                          # False when not enough
    held = await stock.reserve(2, for_s=60)           # None when not enough
    await held.confirm()                              # sold; False when it has expired

The check and the change of a `take` are one conditional UPDATE: no reader comes between them on any engine. What was
added is always `available + reserved + sold`, in every transaction. A reservation expires by the clock of the database
and no other (G8); what has expired goes back when somebody finds too little, asks what is left, or calls `expire`.

Takers of one stock still wait for each other: the row is one. It is the price of being exact.
"""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from interlock.errors import ConstraintViolation, InvalidPayload
from interlock.hotrow.asked import checked_amount, checked_name, checked_seconds, key_of
from interlock.hotrow.tables import ready
from interlock.sql.executor import Executor, Statements

EXPIRED_MAX = 100
"""G6: reservations that one call gives back."""

EXPIRIES_MAX = 100
"""G6: so many times a caller who needs the units does so, one transaction after the other."""

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
    """Where the units of a stock are. Their sum is what was added."""

    available: int
    reserved: int
    sold: int


class Reservation:
    """Units that are held for somebody until they are confirmed, released, or the time is over."""

    def __init__(
        self, stock: "Stock", identifier: str, *, quantity: int | None = None, expires_at: datetime | None = None
    ) -> None:
        self.id = identifier
        """Keep it, and `stock.reservation(id)` gives the reservation again after a restart."""
        self.quantity = quantity
        """How many; None for one that was asked for by its id."""
        self.expires_at = expires_at
        """Until when, by the database's clock; None for one that was asked for by its id."""
        self._stock = stock

    def __repr__(self) -> str:
        return f"Reservation({self.id!r}, quantity={self.quantity}, expires_at={self.expires_at})"

    async def confirm(self) -> bool:
        """The units are sold. False when it was not in time, or was released; asked again, the answer is the same."""
        return await self._stock.end(self.id, confirmed=True)

    async def release(self) -> bool:
        """The units go back. False when they had gone back already, or were sold; asked again, the same answer."""
        return await self._stock.end(self.id, confirmed=False)


class Stock:
    """The units of one thing in a database. Any number of them, in any number of processes, may stand for one name."""

    def __init__(self, db: Executor, name: str) -> None:
        self.name = checked_name("stock", name)
        """What the units are of."""
        self._db = db

    async def add(self, quantity: int, *, key: str | None = None) -> None:
        """More units to take. The first ones make the stock."""
        checked_amount("stock.add", quantity)
        await ready(self._db, "hotrow_stock")
        await self._db.execute(ADD, self.name, quantity, key=key_of("stock", self.name, key))

    async def take(self, quantity: int = 1, *, key: str | None = None) -> bool:
        """Sell so many, all or none; False when not so many can be taken. The same key gives the same answer."""
        checked_amount("stock.take", quantity)
        await ready(self._db, "hotrow_stock")
        if await self._db.execute(TAKE, self.name, quantity, key=key_of("stock", self.name, key)):
            return True
        # With a key the second look is part of the answer, whatever it finds: a call that is repeated later, when more
        # has expired, must not find another answer than the first.
        if not await self._may_be_there(quantity) and key is None:
            return False
        return bool(
            await self._db.execute(TAKE, self.name, quantity, key=key_of("stock", self.name, key, "-second-look"))
        )

    async def give_back(self, quantity: int = 1, *, key: str | None = None) -> None:
        """Units that were sold can be taken again. More than were ever sold is a ConstraintViolation."""
        checked_amount("stock.give_back", quantity)
        await ready(self._db, "hotrow_stock")
        if key is None:
            await _give_back(self._db, self.name, quantity)
        else:
            # In a transaction, so that what was refused has not used its key up: the sale may be on its way.
            await self._db.transact(_give_back, self.name, quantity, key=key_of("stock", self.name, key))

    async def left(self) -> int:
        """How many can be taken now."""
        counts = await self.counts()
        if counts.reserved:
            counts = await self._without_expired()
        return counts.available

    async def counts(self) -> Counts:
        """Where the units are. A reservation that has expired counts as reserved until it has gone back."""
        await ready(self._db, "hotrow_stock")
        rows = await self._db.query(COUNTS, self.name)
        return Counts(*_whole(*rows[0])) if rows else Counts(0, 0, 0)

    async def reserve(self, quantity: int = 1, *, for_s: float, key: str | None = None) -> Reservation | None:
        """Hold so many for so many seconds, all or none; None when not so many can be taken."""
        checked_amount("stock.reserve", quantity)
        seconds = checked_seconds("stock.reserve(for_s=)", for_s, HELD_S_MAX)
        await ready(self._db, "hotrow_stock", "hotrow_reservation")
        held = await self._reserve(quantity, seconds, key, "")
        if held is None and (await self._may_be_there(quantity) or key is not None):
            held = await self._reserve(quantity, seconds, key, "-second-look")
        return held

    def reservation(self, identifier: str) -> Reservation:
        """The reservation of that id, for instance one that was made before a restart. Nothing is looked up."""
        return Reservation(self, str(_uuid(identifier)))

    async def expire(self) -> int:
        """Give back what has expired, at most `EXPIRED_MAX` reservations; how many units came back."""
        await ready(self._db, "hotrow_stock", "hotrow_reservation")
        # A plain read, which waits for nobody, tells most callers that there is nothing to do.
        if not await self._db.query(ANY_DUE, self.name):
            return 0
        return await self._db.transact(_expire, self.name, EXPIRED_MAX)

    async def _may_be_there(self, quantity: int) -> bool:
        """Whether a second look is worth it: what has expired came back, by this caller or by another at the time."""
        return (await self._without_expired()).available >= quantity

    async def _without_expired(self) -> Counts:
        for _ in range(EXPIRIES_MAX):
            if not await self.expire():
                break
        return await self.counts()

    async def end(self, identifier: str, *, confirmed: bool) -> bool:
        """What `confirm` and `release` of a reservation do."""
        await ready(self._db, "hotrow_stock", "hotrow_reservation")
        how = "confirm" if confirmed else "release"
        # The id is the key: whoever crashed before hearing the answer asks again and hears it.
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
            why="Giving back more than was sold would put units on sale that nobody ever added.",
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
    # Exactly those that were read: they are the first ones in this order, and nothing comes between in a transaction.
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
            f"{identifier!r} is no id of a reservation.",
            why="Reservations are named by UUIDs that the database gives them.",
            fix="Pass the `id` of a reservation that `reserve` returned.",
        ) from None
