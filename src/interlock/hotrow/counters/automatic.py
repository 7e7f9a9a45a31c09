"""The form of one `auto` counter in this process, chosen from the measurements since the last look (D7).

Every process chooses for itself. That is safe because the value is the sum of all forms, and because adds with a key
have a place that no choice moves.
"""

from interlock.hotrow.counters.choice import Form, Measured, calm_below, choose
from interlock.hotrow.counters.signal import LOOK_S, ROW_TABLE, SHARD_TABLE, Seen, Signal
from interlock.redaction import logger_of
from interlock.sql.executor import EngineName

log = logger_of("interlock.hotrow")


class Automatic:
    """The current form of one counter, and since when a simpler one would suffice."""

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
        """Return the form of an add that happens now."""
        if self._looked_s is None:
            self._looked_s = self._calm_since_s = now_s
        elif now_s - self._looked_s >= LOOK_S:
            # Set before anything is awaited: the other adds of this moment do not look again.
            adds_per_s = self._adds / (now_s - self._looked_s)
            self._looked_s, self._adds = now_s, 0
            self._choose(adds_per_s, await signal.look(), now_s)
        self._adds += 1
        return self.form

    def _choose(self, adds_per_s: float, seen: Seen, now_s: float) -> None:
        if adds_per_s >= calm_below(self.form, threshold=self._threshold, shard_count=self._shard_count):
            self._calm_since_s = now_s
        measured = Measured(
            row_handoffs_per_s=seen.rates.get((ROW_TABLE, self._name), 0.0),
            shard_handoffs_per_s=seen.rates.get((SHARD_TABLE, self._name), 0.0),
            calm_s=now_s - self._calm_since_s,
            commits_shared=seen.commits_shared,
            appends_apart=self._appends_apart,
        )
        chosen = choose(self.form, measured, threshold=self._threshold)
        if chosen != self.form:
            log.info("counter %r: from %s to %s, %s", self._name, self.form, chosen, measured)
            self.form, self._calm_since_s = chosen, now_s
