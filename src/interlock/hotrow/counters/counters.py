"""All counters of one open database, with the parts that they share.

counters = Counters(db, contention=db.contention)
views = counters.open("video:42", kind="auto")
await counters.close()                     # before the database is closed
"""

from typing import Final, get_args

from interlock.errors import BadUsage, DefinitionError
from interlock.hotrow.counters.choice import Kind
from interlock.hotrow.counters.counter import Counter, Inside
from interlock.hotrow.counters.headers import Headers
from interlock.hotrow.counters.keys import refuse_name
from interlock.hotrow.counters.rollup import CADENCE_S, Rollup
from interlock.hotrow.counters.signal import Contended, Groups, Signal
from interlock.hotrow.counters.tables import Tables
from interlock.lanes.settings import COUNTER_SHARDS_MAX
from interlock.seams import Chance, Clock, SystemChance, SystemClock
from interlock.sql.executor import Executor

SHARD_COUNT: Final = 16
THRESHOLD: Final = 50.0

_KINDS: Final[tuple[str, ...]] = get_args(Kind)


class Counters:
    """The counters of one database."""

    def __init__(
        self,
        executor: Executor,
        *,
        shard_count: int = SHARD_COUNT,
        kind: Kind = "auto",
        clock: Clock | None = None,
        chance: Chance | None = None,
        contention: Contended | None = None,
        groups: Groups | None = None,
        threshold: float = THRESHOLD,
        roll_up_every_s: float = CADENCE_S,
    ) -> None:
        _refuse_shard_count(shard_count)
        clock = clock or SystemClock()
        tables = Tables()
        self._kind: Kind = kind
        """The kind of a counter that is opened without one: `auto`, unless it was set otherwise (D16)."""
        self._inside = Inside(
            executor=executor,
            clock=clock,
            chance=chance or SystemChance(),
            shard_count=shard_count,
            tables=tables,
            headers=Headers(executor, tables, shard_count=shard_count, threshold=threshold),
            signal=Signal(contention, clock, groups=groups),
            rollup=Rollup(executor, cadence_s=roll_up_every_s),
        )

    def open(self, name: str, *, kind: Kind = "auto") -> Counter:
        """Return the counter of this name. Nothing is read or written before it is used."""
        refuse_name(name)
        if kind not in _KINDS:
            raise BadUsage(
                f"{kind!r} is not a kind of counter; {', '.join(_KINDS)} are.",
                why="The kind says where adds are written; the value is the same under each of them.",
                fix='Leave it out, or write kind="auto": it is chosen by measured contention.',
            )
        chosen = self._kind if kind == "auto" else kind
        return Counter(self._inside, self._inside.headers.known(name), chosen)

    @property
    def roll_up_failures(self) -> int:
        """Roll-ups that failed. Nothing is lost by that: what is not rolled up counts all the same."""
        return self._inside.rollup.failures

    @property
    def signal_failures(self) -> int:
        """Looks at the contention signal that failed: `auto` counters kept their form."""
        return self._inside.signal.failures

    async def close(self) -> None:
        """End the roll-up. Call it before the database is closed; what it leaves in the log counts all the same."""
        await self._inside.rollup.close()


def _refuse_shard_count(count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNTER_SHARDS_MAX:
        raise DefinitionError(
            f"counter_shard_count is {count!r}; it must be a whole number from 1 to {COUNTER_SHARDS_MAX}.",
            why="Each shard is a row, on lanes a database of its own, and reading a counter reads all of them.",
            fix=f"Give it a whole number from 1 to {COUNTER_SHARDS_MAX}; {SHARD_COUNT} is the default.",
            rule="value-out-of-range",
        )
