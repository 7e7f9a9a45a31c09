"""The form of one `auto` counter in this process: when to look, what was measured since, what was chosen (D7).

Every process chooses for itself. That is safe because the value is the sum of all forms, and because adds with a key
have a place that no choice moves. The signal is looked at once a second at most, whatever the number of adds; what it
says about all counters is read once for all of them.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, cast

from interlock.errors import InterlockError
from interlock.hotrow.counters.choice import Form, Measured, calm_below, choose
from interlock.lanes.contention import HotRow
from interlock.seams import Clock
from interlock.sql.executor import EngineName

LOOK_S: Final = 1.0
"""The signal is not looked at more often."""

ROW_TABLE: Final = "hotrow_counter"
SHARD_TABLE: Final = "hotrow_counter_shard"

Contended = Callable[[], Awaitable[Sequence[HotRow]]]
"""The contention signal of a database: `Database.contention`."""

log = logging.getLogger("interlock.hotrow")


class Signal:
    """The worst hand-off rates of counters, as of at most `LOOK_S` ago."""

    def __init__(self, contended: Contended | None, clock: Clock) -> None:
        self._contended = contended
        self._clock = clock
        self._looked_s: float | None = None
        self._rates: Mapping[tuple[str, str], float] = {}
        self.failures = 0
        """Looks that failed. No add fails for that; the counters keep the form they have."""

    async def rates(self) -> Mapping[tuple[str, str], float]:
        """Hand-offs per second by table and counter. While one caller looks, the others see what was there before."""
        now_s = self._clock.monotonic_s()
        if self._contended is not None and (self._looked_s is None or now_s - self._looked_s >= LOOK_S):
            self._looked_s = now_s
            try:
                self._rates = _worst(await self._contended())
            except InterlockError:
                self.failures += 1
                self._rates = {}
                log.warning("the contention signal could not be read; counters keep their form.", exc_info=True)
        return self._rates


class Automatic:
    """What one counter does at the moment, and since when it could do with less."""

    def __init__(self, name: str, *, threshold: float, shard_count: int, engine: EngineName) -> None:
        self.form: Form = "exact"
        self._name = name
        self._threshold = threshold
        self._shard_count = shard_count
        self._appends_apart = engine == "postgres"
        self._adds = 0
        self._looked_s: float | None = None
        self._calm_since_s = 0.0

    async def next_form(self, signal: Signal, now_s: float) -> Form:
        """The form of an add that happens now."""
        if self._looked_s is None:
            self._looked_s = self._calm_since_s = now_s
        elif now_s - self._looked_s >= LOOK_S:
            # Set before anything is awaited: the other adds of this moment do not look again.
            adds_per_s = self._adds / (now_s - self._looked_s)
            self._looked_s, self._adds = now_s, 0
            self._choose(adds_per_s, await signal.rates(), now_s)
        self._adds += 1
        return self.form

    def _choose(self, adds_per_s: float, rates: Mapping[tuple[str, str], float], now_s: float) -> None:
        if adds_per_s >= calm_below(self.form, threshold=self._threshold, shard_count=self._shard_count):
            self._calm_since_s = now_s
        measured = Measured(
            row_handoffs_per_s=rates.get((ROW_TABLE, self._name), 0.0),
            shard_handoffs_per_s=rates.get((SHARD_TABLE, self._name), 0.0),
            calm_s=now_s - self._calm_since_s,
            appends_apart=self._appends_apart,
        )
        chosen = choose(self.form, measured, threshold=self._threshold)
        if chosen != self.form:
            log.info("counter %r: from %s to %s, %s", self._name, self.form, chosen, measured)
            self.form, self._calm_since_s = chosen, now_s


def _worst(rows: Sequence[HotRow]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        table = row.table.rpartition(".")[2]
        if table in {ROW_TABLE, SHARD_TABLE}:
            key = table, _counter_of(row.key)
            found[key] = max(found.get(key, 0.0), row.handoffs_per_s)
    return found


def _counter_of(key: object) -> str:
    # The key of a shard is its counter and its number.
    parts = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
    return str(parts[0]) if parts else ""
