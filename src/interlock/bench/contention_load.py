"""One measurement of experiment 3: open the databases, let the clients write, and compare the rows.

The databases stay from round to round, and the books cover all rounds: after each measurement every row must hold
exactly what was acknowledged since it was made. Every measured write is counted.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from interlock.bench.clients import Ask, Load, ask_within
from interlock.bench.contention_series import STREAMS, Setting
from interlock.bench.grounds import Ground
from interlock.database.database import Database, Opening
from interlock.errors import CorruptionError
from interlock.lanes.beyond import HandOff
from interlock.sql.postgres.address import is_postgres, parsed

CONNECTIONS_MAX: Final = 64
"""Connections of all databases of one measurement, on PostgreSQL: the server's default is a hundred."""

IDLE_S: Final = 3_600.0
QUEUE_MAX: Final = 10_000
ROWS_AT_ONCE: Final = 500

TABLE: Final = "CREATE TABLE IF NOT EXISTS counter (id integer PRIMARY KEY, n bigint NOT NULL)"
INCREMENT: Final = "UPDATE counter SET n = n + 1 WHERE id = $1"
COUNTS: Final = "SELECT id, n FROM counter"
HITS: Final = "hits"
"""The name of the counter."""


KeyT = TypeVar("KeyT", int, str)


class Books:
    """The databases of an experiment, and the expected value of every row. Leaving the block closes them all."""

    def __init__(self, place: Ground) -> None:
        self._place = place
        self._stack = AsyncExitStack()
        self._opened: dict[str, Database] = {}
        self._rows: dict[str, Counter[int]] = {}
        self._hits: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def measure(self, setting: Setting, seconds: float) -> Load:
        """Measure one setting for `seconds`, then compare. Raises CorruptionError for a lost update."""
        async with AsyncExitStack() as turn:
            # A lane is idle between its turns and stays open. On PostgreSQL every open database holds some of the
            # server's connections, so it is closed after each turn.
            stack = turn if self._place.kind == "postgres" else self._stack
            names = _names(setting)
            databases = await asyncio.gather(*(self._database(stack, setting, name) for name in names))
            try:
                if setting.work in {"row", "rows"}:
                    return await self._on_rows(setting, seconds, names, databases)
                return await self._on_counter(setting, seconds, names[0], databases[0])
            finally:
                if stack is turn:
                    self._opened.clear()

    async def _database(self, stack: AsyncExitStack, setting: Setting, name: str) -> Database:
        if name not in self._opened:
            self._opened[name] = await stack.enter_async_context(self._opening(setting, name))
        return self._opened[name]

    def _opening(self, setting: Setting, name: str) -> Opening:
        url = self._place.address(name)
        if self._place.kind == "postgres":
            return Database.open(
                _with_connections(url, CONNECTIONS_MAX // setting.databases), counter_shard_count=STREAMS
            )
        assert setting.batch is not None
        return Database.open(
            url,
            hand_off=_hand_off(setting.hand_off_ms / 1e3) if setting.hand_off_ms else None,
            cache=str(self._place.cache),
            group_commit_max_batch=setting.batch,
            queue_max=QUEUE_MAX,
            idle_s=IDLE_S,
            counter_shard_count=STREAMS,
        )

    async def _on_rows(
        self, setting: Setting, seconds: float, names: Sequence[str], databases: Sequence[Database]
    ) -> Load:
        books = [self._rows.setdefault(name, Counter()) for name in names]
        rows = 1 if setting.work == "row" else -(-setting.clients // len(databases))
        await asyncio.gather(
            *(_make_rows(database, book, rows) for database, book in zip(databases, books, strict=True))
        )
        asks: list[Ask] = []
        for client in range(setting.clients):
            place, row = client % len(databases), client // len(databases) % rows
            asks.append(_counting(books[place], row, partial(databases[place].execute, INCREMENT, row)))
        load = await self._run_clients(setting, seconds, asks)
        for name, book, database in zip(names, books, databases, strict=True):
            found = {row.id: row.n for row in await database.query(COUNTS)}
            if found != dict(book):
                wrong = sum(found.get(row) != n for row, n in book.items())
                raise CorruptionError(
                    f"{setting}: {wrong:,} rows of the database {name} do not hold what was acknowledged: "
                    f"{sum(book.values()):,} increments."
                )
        return load

    async def _on_counter(self, setting: Setting, seconds: float, name: str, database: Database) -> Load:
        assert setting.work != "row"
        assert setting.work != "rows"
        fresh = name not in self._hits
        counter = database.counter(HITS, kind=setting.work)
        asks = [_counting(self._hits, name, counter.add)] * setting.clients
        load = await self._run_clients(setting, seconds, asks, fresh=fresh)
        found = await counter.value()
        if found != self._hits[name]:
            raise CorruptionError(
                f"{setting}: {self._hits[name]:,} additions were acknowledged, but the counter says {found:,}."
            )
        return load

    async def _run_clients(self, setting: Setting, seconds: float, asks: Sequence[Ask], *, fresh: bool = False) -> Load:
        # Tables, statements, shards, and connections to PostgreSQL are made before the measurement.
        warm = asks if self._place.kind == "postgres" or fresh else asks[: setting.databases]
        await asyncio.gather(*(_await_answer(ask) for ask in warm))
        return await ask_within(seconds, asks)


def _names(setting: Setting) -> list[str]:
    """Return the names of the databases of a setting; each has one setting of groups and hand-off."""
    kept = "rows" if setting.work in {"row", "rows"} else setting.work
    away_us = round(1e3 * setting.hand_off_ms)
    return [f"{kept}_{setting.batch or 0}_{away_us}_{number}" for number in range(setting.databases)]


async def _await_answer(ask: Ask) -> None:
    await ask()


def _counting(book: Counter[KeyT], key: KeyT, ask: Callable[[], Awaitable[object]]) -> Ask:
    # Not a coroutine, which would be measured. Counting first is safe: an unanswered write fails the experiment.
    def counted() -> Awaitable[object]:
        book[key] += 1
        return ask()

    return counted


async def _make_rows(database: Database, book: Counter[int], rows: int) -> None:
    if not book:
        await database.execute(TABLE)
    missing = [row for row in range(rows) if row not in book]
    for begin in range(0, len(missing), ROWS_AT_ONCE):
        values = ", ".join(f"({row}, 0)" for row in missing[begin : begin + ROWS_AT_ONCE])
        await database.execute(f"INSERT INTO counter (id, n) VALUES {values}")  # noqa: S608 -- numbers of our own.
    book.update(dict.fromkeys(missing, 0))


def _hand_off(seconds: float) -> HandOff:
    never = threading.Event()

    def hand_off() -> None:
        never.wait(seconds)

    return hand_off


def _with_connections(url: str, most: int) -> str:
    assert is_postgres(url)
    place, _, query = url.partition("?")
    options = [option for option in query.split("&") if option and not option.startswith("connections_max=")]
    count = max(1, min(most, parsed(url).connections_max))
    return f"{place}?{'&'.join([*options, f'connections_max={count}'])}"
