"""`Counter`: a number that any number of writers add to concurrently, always the exact sum of all adds (D5-D7).

    views = db.counter("video:42")
    await views.add(1)
    await views.value()

An add is written in exactly one place: the counter's row, one of its shards, or its log; the value is the sum of all
places. So a counter may be opened as anything at any time, by several processes as different things, and `auto` may
change its form between two adds. Only adds with a key have a fixed place, or a retry could miss its first attempt.
"""

import asyncio
from dataclasses import dataclass
from typing import assert_never

from interlock.hotrow.counters import statements
from interlock.hotrow.counters.amounts import refuse_amount, whole
from interlock.hotrow.counters.choice import Form, Kind
from interlock.hotrow.counters.headers import Header, Headers, Known
from interlock.hotrow.counters.keys import shard_of, stored_key
from interlock.hotrow.counters.rollup import Rollup
from interlock.hotrow.counters.shards import Shards
from interlock.hotrow.counters.signal import Signal
from interlock.hotrow.counters.tables import Tables
from interlock.seams import Chance, Clock
from interlock.sql.executor import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The parts that all counters of one database share."""

    executor: Executor
    clock: Clock
    chance: Chance
    shard_count: int
    tables: Tables
    headers: Headers
    signal: Signal
    rollup: Rollup


class Counter:
    """A counter. Make one with `Database.counter`; it is cheap, and needs no closing."""

    __slots__ = ("_inside", "_kind", "_known")

    def __init__(self, inside: Inside, known: Known, kind: Kind) -> None:
        self._inside = inside
        self._known = known
        self._kind: Kind = kind

    @property
    def name(self) -> str:
        """The name that it was opened with."""
        return self._known.name

    @property
    def kind(self) -> Form:
        """The form that adds have now; of an `auto` counter the one that it has chosen."""
        return self._known.automatic.form if self._kind == "auto" else self._kind

    async def add(self, amount: int = 1, *, key: str | None = None) -> None:
        """Add a whole number, or take one back with a negative amount; durable when it returns.

        The sum is exact and may fall below zero; use a stock or a balance where it must not. With a key it is added
        once, however often it is repeated, also after a crash, in another process, or under another kind; the
        same key with another amount is KeyReused. Raises ValueError for 0 and for what is not a whole number.
        """
        refuse_amount(amount)
        if key is not None:
            await self._add_once(amount, key, stored_key(self.name, key))
            return
        header = self._known.header or await self._inside.headers.made(self._known, self._kind)
        form = self._kind
        if form == "auto":
            form = await self._known.automatic.next_form(self._inside.signal, self._inside.clock.monotonic_s())
        count = self._inside.shard_count
        # Chosen once, and here: in WHERE it would be chosen anew for every row (D5).
        shard = int(self._inside.chance.fraction() * count)
        await self._write(header, form, amount, shard=shard, shard_count=count, key=None)

    async def value(self) -> int:
        """Return the sum of all adds that were acknowledged before this call, each counted once."""
        apart, shard_count = await self._read()
        return apart + sum(await self._shard_values(shard_count))

    async def shards(self) -> Shards:
        """Return the value of each shard, and the skew between them. Empty for a counter that was never sharded."""
        _, shard_count = await self._read()
        return Shards(tuple(await self._shard_values(shard_count)))

    async def roll_up(self) -> int:
        """Roll the log up now, instead of within a second; return how many entries became part of its snapshot.

        One call folds at most 100,000 entries; when it returns that number, there may be more.
        """
        await self._inside.tables.need(self._inside.executor, "counter")
        return await self._inside.rollup.run(self.name)

    def __repr__(self) -> str:
        return f"<Counter {self.name!r}, {self._kind}: {self.kind}>"

    async def _add_once(self, amount: int, key: str, stored: str) -> None:
        header = self._known.header or await self._inside.headers.made(self._known, self._kind)
        count = header.keyed_shard_count
        await self._write(header, header.keyed, amount, shard=shard_of(key, count), shard_count=count, key=stored)

    async def _write(
        self, header: Header, form: Form, amount: int, *, shard: int, shard_count: int, key: str | None
    ) -> None:
        inside, name = self._inside, self.name
        match form:
            case "exact":
                await inside.executor.execute(statements.ADD, name, amount, key=key)
            case "sharded":
                if header.shard_count < shard_count:
                    await inside.headers.widened(self._known, header, shard_count)
                part = await inside.executor.shard(shard)
                await inside.tables.need(part, "shard")
                await part.execute(statements.ADD_SHARD, name, shard, amount, key=key)
            case "event_log":
                await inside.executor.execute(statements.APPEND, name, amount, key=key)
                inside.rollup.appended(name)
            case _:
                assert_never(form)

    async def _read(self) -> tuple[int, int]:
        """Return the value outside of the shards, and the number of shards. Called before the shards are read."""
        inside = self._inside
        await inside.tables.need(inside.executor, "counter")
        for shard_count, *apart in await inside.executor.query(statements.VALUE, self.name):
            return sum([whole(n) for n in apart]), whole(shard_count)
        return 0, 0

    async def _shard_values(self, count: int) -> list[int]:
        # On PostgreSQL all shards are rows of one database, which is asked once.
        parts = await asyncio.gather(*[self._inside.executor.shard(shard) for shard in range(count)])
        found = await asyncio.gather(*[self._shards_in(part) for part in {id(part): part for part in parts}.values()])
        values = [0] * count
        for shard, n in (row for rows in found for row in rows):
            if shard < count:
                values[shard] += n
        return values

    async def _shards_in(self, part: Executor) -> list[tuple[int, int]]:
        await self._inside.tables.need(part, "shard")
        return [(whole(shard), whole(n)) for shard, n in await part.query(statements.SHARDS, self.name)]
