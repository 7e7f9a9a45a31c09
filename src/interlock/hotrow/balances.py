"""Balances: numbers that any number of writers add to and take from, never below their limit (D15).

    account = db.balance("alice")                     # limit=0: never negative
    await account.deposit(100)
    ok = await account.withdraw(30)                   # False when that would go below the limit
    ok = await account.transfer(db.balance("bob"), 20)

The check and the change of a withdrawal are one conditional UPDATE. A transfer is one transaction of one database; over
two databases it is refused (D17), because a crash could leave half of it. Amounts are whole numbers: count in
cents. The limit belongs to the handle, so each caller that withdraws sets how low the balance may go.
"""

from interlock.errors import TransactionError
from interlock.hotrow.tables import AMOUNT_MAX, checked_amount, checked_name, key_of, ready
from interlock.sql.stored_values import Executor, Row, Statements

DEPOSIT = "UPDATE hotrow_balance SET value = value + $2 WHERE name = $1"
FIRST_DEPOSIT = (
    "INSERT INTO hotrow_balance (name, value) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET value = hotrow_balance.value + excluded.value"
)
OPEN = "INSERT INTO hotrow_balance (name, value) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING"
WITHDRAW = "UPDATE hotrow_balance SET value = value - $2 WHERE name = $1 AND value >= $3"
VALUE = "SELECT value FROM hotrow_balance WHERE name = $1"


class Balance:
    """One balance in a database. An unused name has a balance of 0."""

    def __init__(self, db: Executor, name: str, *, limit: int = 0) -> None:
        self.name = checked_name("balance", name)
        """The primary key of its row."""
        self.limit = checked_amount("balance(limit=)", limit, least=-AMOUNT_MAX)
        """The lowest value that a withdrawal leaves; a negative one is credit."""
        self.db = db
        """The database that keeps it."""

    async def deposit(self, amount: int, *, key: str | None = None) -> None:
        """Add the amount."""
        checked_amount("balance.deposit", amount)
        await ready(self.db, "hotrow_balance")
        # The plain UPDATE first: it is the cheapest statement there is, and all but one deposit need no more.
        if await self.db.execute(DEPOSIT, self.name, amount, key=key_of("balance", self.name, key)):
            return
        await self.db.execute(FIRST_DEPOSIT, self.name, amount, key=key_of("balance", self.name, key, "-first"))

    async def withdraw(self, amount: int, *, key: str | None = None) -> bool:
        """Take the amount; return False when that would go below the limit. A key repeats its answer."""
        checked_amount("balance.withdraw", amount)
        least = self._needed(amount)
        await ready(self.db, "hotrow_balance")
        if await self.db.execute(WITHDRAW, self.name, amount, least, key=key_of("balance", self.name, key)):
            return True
        if least > 0:
            return False
        # There is credit for it, so only a balance that does not exist yet, or is deep in debt, has refused.
        await self.db.execute(OPEN, self.name)
        key = key_of("balance", self.name, key, "-opened")
        return bool(await self.db.execute(WITHDRAW, self.name, amount, least, key=key))

    async def value(self) -> int:
        """Return the current value."""
        await ready(self.db, "hotrow_balance")
        return _value(await self.db.query(VALUE, self.name))

    async def transfer(self, other: "Balance", amount: int, *, key: str | None = None) -> bool:
        """Move the amount to another balance of this database; return False when it would go below the limit."""
        checked_amount("balance.transfer", amount)
        self._refuse_elsewhere(other)
        await ready(self.db, "hotrow_balance")
        named = key_of("balance", self.name, key)
        return await self.db.transact(_transfer, self.name, other.name, amount, self._needed(amount), key=named)

    def _needed(self, amount: int) -> int:
        """Return the least value from which the amount may be taken."""
        return checked_amount("balance.withdraw, above the limit,", self.limit + amount, least=-AMOUNT_MAX)

    def _refuse_elsewhere(self, other: "Balance") -> None:
        # By identity: two lanes in memory have the same address, and so have the streams of one PostgreSQL.
        if self.db is not other.db:
            raise TransactionError(
                f"{self.name!r} of {self.db.url} cannot transfer to {other.name!r} of {other.db.url}; "
                "a transaction cannot span databases.",
                why="Each database commits alone: after a crash one of them could have happened without the other.",
                fix="Keep balances that pay each other in one database; or withdraw here and deposit there, each with "
                "a key, and repeat both until they are answered.",
            )
        if other.name == self.name:
            raise ValueError(f"balance.transfer from {self.name!r} to itself would change nothing.")


async def _transfer(tx: Statements, giver: str, taker: str, amount: int, least: int) -> bool:
    if _value(await tx.query(VALUE, giver)) < least:
        return False
    # Rows are written in the order of their names: two transfers that meet each other cannot deadlock.
    for name, change in sorted([(giver, -amount), (taker, amount)]):
        if not await tx.execute(DEPOSIT, name, change):
            await tx.execute(FIRST_DEPOSIT, name, change)
    return True


def _value(rows: list[Row]) -> int:
    if not rows:
        return 0
    [(value,)] = rows
    assert isinstance(value, int)
    return value
