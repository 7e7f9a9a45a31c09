"""Reservations as the tests of stock make them and let them expire, without waiting for a clock."""

from interlock.hotrow.stock import Reservation, Stock
from interlock.sql.stored_values import Executor


async def held(stock: Stock, quantity: int, *, key: str | None = None) -> Reservation:
    reservation = await stock.reserve(quantity, for_s=3600, key=key)
    assert reservation is not None
    return reservation


async def let_all_expire(db: Executor) -> None:
    await db.execute("UPDATE hotrow_reservation SET expires_at = now()")
