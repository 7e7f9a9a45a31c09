"""This process's cache of counters: their header rows, and the current form of `auto` counters.

A header says where adds with a key go, and how many shards may hold something. The first never changes; the second only
grows, and is committed BEFORE a shard beyond it is written: a reader that comes after an acknowledged add finds the
shard it went to. So a header that was read once is cached for ever, and no add reads it again.
"""

from collections import OrderedDict
from functools import partial
from typing import Final, NamedTuple, cast

from interlock.hotrow.counters import statements
from interlock.hotrow.counters.amounts import whole
from interlock.hotrow.counters.automatic import Automatic
from interlock.hotrow.counters.choice import Form, Kind
from interlock.hotrow.counters.once import Once
from interlock.hotrow.counters.tables import Tables
from interlock.sql.executor import Executor

NAMES_MAX: Final = 10_000
"""G6: cached counters. One more evicts the one that was opened longest ago; its header is read again."""


class Header(NamedTuple):
    """The header row of a counter."""

    keyed: Form
    """Where adds with a key go, for ever: a retry must meet the key of the first attempt (D5)."""
    keyed_shard_count: int
    """How many shards they are spread over, if that is where they go."""
    shard_count: int
    """How many shards may hold something."""


class Known:
    """The cache entry of one counter."""

    __slots__ = ("automatic", "header", "name")

    def __init__(self, name: str, automatic: Automatic) -> None:
        self.name = name
        self.automatic = automatic
        self.header: Header | None = None


class Headers:
    """The counters of one database."""

    def __init__(self, executor: Executor, tables: Tables, *, shard_count: int, threshold: float) -> None:
        self._executor = executor
        self._tables = tables
        self._shard_count = shard_count
        self._threshold = threshold
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._reading: Once[Header] = Once()

    def known(self, name: str) -> Known:
        """Return the cache entry of this counter, one for all handles."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= NAMES_MAX:
                self._known.popitem(last=False)
            automatic = Automatic(
                name, threshold=self._threshold, shard_count=self._shard_count, engine=self._executor.engine
            )
            found = self._known[name] = Known(name, automatic)
        else:
            self._known.move_to_end(name)
        return found

    async def made(self, known: Known, kind: Kind) -> Header:
        """Return the header of a counter; create and cache it if it is missing."""
        return self._remember(known, await self._reading.do((known.name, kind), partial(self._made, known.name, kind)))

    async def widened(self, known: Known, header: Header, shard_count: int) -> Header:
        """Return the header after it was committed with at least this shard count."""
        if header.shard_count >= shard_count:
            return header
        await self._executor.execute(statements.WIDEN, known.name, shard_count)
        return self._remember(known, header._replace(shard_count=shard_count))

    async def _made(self, name: str, kind: Kind) -> Header:
        await self._tables.need(self._executor, "counter")
        header = await self._read(name)
        if header is None:
            # A counter that chooses by itself may end up with many writers, and keys cannot move there later.
            keyed: Form = "sharded" if kind == "auto" else kind
            await self._executor.execute(statements.MAKE, name, keyed, self._shard_count)
            header = await self._read(name)
            assert header is not None, "a counter that was just made is not there"
        return header

    async def _read(self, name: str) -> Header | None:
        for keyed, keyed_shard_count, shard_count in await self._executor.query(statements.HEADER, name):
            return Header(cast("Form", keyed), whole(keyed_shard_count), whole(shard_count))
        return None

    @staticmethod
    def _remember(known: Known, header: Header) -> Header:
        # Another task may have widened it further meanwhile.
        if known.header is None or known.header.shard_count < header.shard_count:
            known.header = header
        return known.header
