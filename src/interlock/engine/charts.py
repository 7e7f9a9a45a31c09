"""Charts over time: what an engine counts per minute, and what operators read of it (F7).

Every durable group, failed attempt and refusal is counted in memory, per machine and state. At the end of a minute of
the store's time the sums are added to the store by one small write, so that charts survive a restart and several
processes add up. An engine without work writes nothing. A process that is killed loses at most its last minute.

The backlog is not sampled. It is counted when charts are read, and traced back by what entered and left each state.

Sections: the answer, the recorder, reading.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from interlock.engine.bound_machine import BoundMachine
from interlock.engine.path.commit_pipeline import NEVER_US, MinuteSums
from interlock.engine.path.staged_group import Staged
from interlock.engine.views import moment, time_us
from interlock.errors import InvalidPayload, OutcomeUnknown, UnavailableError
from interlock.redaction import logger_of
from interlock.store.chart_store import (
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    ChartRecord,
    added,
    chart_record,
    rolled_up,
)
from interlock.store.protocol import Store

log = logger_of("interlock.charts")

SPAN_S = 3 * HOUR_S
"""The span that is shown unless a caller names another one."""

STEPS_S = (60, 300, 900, 3_600, 21_600, 86_400)
"""The steps of which the first with few enough points is the default."""

POINTS = 360
POINTS_MAX = 1_500
"""Points of a chart: by default at most, and at most."""

UNWRITTEN_MAX = 20_000
"""Records that wait for a store which is unavailable; the oldest are dropped first."""

COUNTED_S = 10.0
"""Seconds for which a count of all workflows is used again, or 20 times what it took."""

MINUTE_US, HOUR_US = MINUTE_S * 1_000_000, HOUR_S * 1_000_000

FAR_US = 2**52
"""A time after all others that PostgreSQL can hold."""

LATER_S = 0.25
"""Seconds after the end of a minute when it is written."""

CLOSE_S = 5.0
"""The longest that an engine which closes waits for its last minute to be written."""


# --- The answer ------------------------------------------------------------------------------------------------------


class StateCharts(msgspec.Struct, frozen=True, kw_only=True):
    """The charts of one state: a number for each interval. Effects belong to their machine, and to no state."""

    state: str
    final: bool
    moves: list[int]
    """Moves that led into the state or stayed in it."""
    left: list[int]
    """Workflows that left the state."""
    dwell_mean_s: list[float | None]
    """How long they had been there, measured for some of many; None when none left."""
    dwell_max_s: list[float | None]
    failed_attempts: list[int]
    refused: list[int]
    dead_letters: list[int]
    workflows: list[int | None]
    """Workflows in the state at the end of the interval; None before the first record of the store."""


class MachineCharts(msgspec.Struct, frozen=True, kw_only=True):
    """The charts of one machine: a number for each interval."""

    machine: str
    moves: list[int]
    """Durable moves, with starts."""
    started: list[int]
    failed_attempts: list[int]
    """Failed attempts of steps, undos and effects, retried or not."""
    refused: list[int]
    dead_letters: list[int]
    """New dead letters."""
    waiting: list[int | None]
    """Work that was due and waited for a slot or a dependency, the highest sample; None without a sample."""
    workflows: list[int | None]
    """Workflows in states that are not final, at the end of the interval."""
    states: list[StateCharts]


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    """Charts over time: interval `i` of each list begins at `since` plus `i` steps."""

    since: datetime
    until: datetime
    step_s: int
    machines: list[MachineCharts]


# --- Recorder --------------------------------------------------------------------------------------------------------


class ChartRecorder:
    """The charts of one engine. Lives in its event loop."""

    def __init__(
        self, store: Store, machines: Mapping[str, BoundMachine], waiting: Callable[[], Mapping[str, int]]
    ) -> None:
        self._store = store
        self._machines = machines
        self._waiting = waiting
        self._loop = asyncio.get_running_loop()
        self.sums = MinuteSums(self._turn)
        """The sums of the current minute."""
        self._minute_us = NEVER_US
        """When the current minute began."""
        self.unwritten: dict[str, ChartRecord] = {}
        """The sums of minutes that are over, and not in the store."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._rolled_us = NEVER_US
        """The hour in which this engine rolled up last."""
        self._living: Mapping[tuple[str, int, str], int] = {}
        self._living_until_s = -math.inf
        """A count of all workflows, and until when it is used."""
        self._closed = False

    def count_from_thread(self, staged: Staged, now_us: int) -> None:
        """Count a change that was written in a transaction of the caller, in any thread. A rollback is not noticed."""
        with suppress(RuntimeError):  # The event loop has ended, and the engine with it.
            self._loop.call_soon_threadsafe(self.sums.count, [staged], (), now_us)

    def failed(self, machine: str, state: str) -> None:
        """Count a failed attempt of a step or undo; of an effect, which belongs to no state, with an empty one."""
        self._turn(self._store.now_us())
        self.sums.table()[machine][state].failed += 1

    def gave_up(self, staged: Staged) -> None:
        """Count the new dead letters of a change. The workflow of an effect may be in another state by now."""
        self._turn(self._store.now_us())
        states, state = self.sums.table()[staged.live.row.machine], staged.live.row.state
        for letter in staged.letters:
            states["" if letter.kind == "effect" else state].dead_letters += 1

    def refused(self, machine: str, state: str) -> None:
        """Count a refused event."""
        self._turn(self._store.now_us())
        self.sums.table()[machine][state].refused += 1

    def take_over(self, other: "ChartRecorder") -> None:
        """Go on with what another recorder has counted and not written: the workflows were moved to this store."""
        self._keep(other.unwritten.values())
        if self.unwritten:
            self._turn(self._store.now_us())

    def _turn(self, now_us: int) -> None:
        """Begin the next minute if the current one is over, and set the timer that writes its sums."""
        if now_us >= self.sums.end_us:
            self._close_minute(sampled=True)
            self._minute_us = now_us // MINUTE_US * MINUTE_US
            self.sums.end_us = self._minute_us + MINUTE_US
        if self._timer is None and not self._closed:
            wait_s = (self.sums.end_us - now_us) / 1_000_000 + LATER_S
            self._timer = self._loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._close_minute(sampled=self._store.now_us() >= self.sums.end_us)
        self.sums.end_us = NEVER_US  # The next one that is counted sets the timer again.
        if self.unwritten and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._write())

    def _close_minute(self, *, sampled: bool) -> None:
        """Make records of the current counts; with `sampled` also of what waits, once per minute."""
        records = self._records()
        self.sums.clear()
        machines = {each.machine for each in records}
        if sampled and machines:
            waiting, nothing = self._waiting(), (0,) * 10
            records += [
                chart_record(MINUTE_S, self._minute_us, name, "", *nothing, waiting.get(name, 0)) for name in machines
            ]
        self._keep(records)

    def _records(self) -> list[ChartRecord]:
        """Return the counts of machines that the program has given, without those of schedules and pauses."""
        return [
            chart_record(MINUTE_S, self._minute_us, machine, state, *each.values())
            for machine, states in self.sums.table().items()
            if machine in self._machines
            for state, each in states.items()
        ]

    def _keep(self, records: Iterable[ChartRecord]) -> None:
        unwritten = self.unwritten
        for each in records:
            unwritten[each.id] = added(unwritten[each.id], each) if each.id in unwritten else each
        while len(unwritten) > UNWRITTEN_MAX:
            del unwritten[next(iter(unwritten))]

    # --- writing -----------------------------------------------------------------------------------------------------
    # An addition whose outcome is unknown is not repeated: a minute that is missing harms less than one that counts
    # twice. What was certainly not written is added with the next minute.

    async def close(self, *, write: bool) -> None:
        """Stop counting, and write what is left. Without `write` it is kept for `take_over`."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._close_minute(sampled=False)
        try:
            async with asyncio.timeout(CLOSE_S):
                if write:
                    await self._write()
                async with self._writing:
                    return
        except TimeoutError:
            if self._task is not None:
                self._task.cancel()

    async def _write(self) -> None:
        """Add the sums of the minutes that are over to the store; roll up once an hour."""
        async with self._writing:
            records, self.unwritten = list(self.unwritten.values()), {}
            if not records:
                return
            try:
                await self._store.charts.add(records)
                await self._roll_up()
            except OutcomeUnknown as error:
                log.warning("the charts of a minute may be missing: %s", error.what)
            except UnavailableError as error:
                self._keep(records)
                log.info("charts are written later: %s", error.what)
                if self._timer is None and not self._closed:
                    self._timer = self._loop.call_later(MINUTE_S, self._on_timer)
            except Exception as error:
                log.exception("the charts of a minute could not be written", exc_info=error)

    async def _roll_up(self) -> None:
        now_us = self._store.now_us()
        hour_us = now_us // HOUR_US * HOUR_US
        if hour_us != self._rolled_us:
            await self._store.charts.roll_up(hour_us - MINUTES_KEPT_S * 1_000_000, hour_us - HOURS_KEPT_S * 1_000_000)
            self._rolled_us = hour_us

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read(
        self, machine: BoundMachine | None, since: datetime | None, until: datetime | None, step_s: int | None
    ) -> Charts:
        """Return the charts of one machine, or of all. Raises InvalidPayload for a span that cannot be shown."""
        span = _span(self._store.now_us(), since, until, step_s)
        name = "" if machine is None else machine.name
        async with self._writing:  # Otherwise what is being written would count twice, or not at all.
            first_us, found = await self._store.charts.read(name, span.since_us, span.end_us, span.step_us)
            _, later = await self._store.charts.read(name, span.end_us, FAR_US, FAR_US)
            here = [*self.unwritten.values(), *self._records()]
        first_us = min([each.since_us for each in here] + ([] if first_us is None else [first_us]), default=span.now_us)
        found += rolled_up(
            [each for each in here if span.since_us <= each.since_us < span.end_us], span.since_us, span.step_us
        )
        later += [each for each in here if each.since_us >= span.end_us]
        living = await self._count_living()
        machines = [machine] if machine is not None else list(self._machines.values())
        return Charts(
            since=moment(span.since_us),
            until=moment(span.until_us),
            step_s=span.step_us // 1_000_000,
            machines=[_MachineSums(bound, span, first_us, found, later, living).charts() for bound in machines],
        )

    async def _count_living(self) -> Mapping[tuple[str, int, str], int]:
        """Count all workflows. The count reads all of them, so it is used again for a while."""
        now_s = self._loop.time()
        if now_s >= self._living_until_s:
            self._living = await self._store.living()
            done_s = self._loop.time()
            self._living_until_s = done_s + max(COUNTED_S, 20 * (done_s - now_s))
        return self._living


# --- Reading ---------------------------------------------------------------------------------------------------------


NOTHING = chart_record(0, 0, "", "")
"""The record of an interval in which nothing happened."""


class _Span(msgspec.Struct, frozen=True):
    """The intervals of a chart, in microseconds."""

    now_us: int
    since_us: int
    until_us: int
    step_us: int

    @property
    def points(self) -> int:
        """The number of intervals; the last one may be longer than `until_us`."""
        return -(-(self.until_us - self.since_us) // self.step_us)

    @property
    def end_us(self) -> int:
        """The end of the last interval."""
        return self.since_us + self.points * self.step_us


def _span(now_us: int, since: datetime | None, until: datetime | None, step_s: int | None) -> _Span:
    until_us = now_us if until is None else _time_of("until", until)
    since_us = until_us - SPAN_S * 1_000_000 if since is None else _time_of("since", since)
    if since_us >= until_us:
        raise InvalidPayload(
            f"since is {moment(since_us).isoformat()}, and until is {moment(until_us).isoformat()}.",
            why="A chart begins before it ends.",
            fix="Pass a since before until; without until a chart ends now.",
        )
    least_s = MINUTE_S if since_us >= now_us - MINUTES_KEPT_S * 1_000_000 else HOUR_S
    if step_s is None:
        fits = (each for each in STEPS_S if each >= least_s and (until_us - since_us) <= POINTS * each * 1_000_000)
        step_s = next(fits, STEPS_S[-1])
    if step_s < least_s or step_s % least_s:
        raise InvalidPayload(
            f"step is {step_s} seconds; it must be a multiple of {least_s}.",
            why=f"Minutes are kept for {MINUTES_KEPT_S // HOUR_S} hours, and then hours for "
            f"{HOURS_KEPT_S // HOUR_S // 24} days.",
            fix=f"Pass a multiple of {least_s}, or leave the step out.",
        )
    step_us = step_s * 1_000_000
    span = _Span(now_us, since_us // step_us * step_us, until_us, step_us)
    if span.points > POINTS_MAX:
        raise InvalidPayload(
            f"the chart would have {span.points:,} points; {POINTS_MAX:,} are the most.",
            why="Each point is a number of each state.",
            fix="Pass a longer step, or a later since.",
        )
    return span


def _time_of(name: str, at: datetime) -> int:
    if at.tzinfo is None:
        raise InvalidPayload(
            f"{name} is {at.isoformat()}, a time without a timezone.",
            why="Times of the store are moments, the same everywhere.",
            fix="Pass an aware time: datetime.now(UTC), or 2026-01-01T12:00:00Z.",
        )
    return time_us(at)


class _MachineSums:
    """The records of one machine on their way to charts."""

    def __init__(
        self,
        bound: BoundMachine,
        span: _Span,
        first_us: int,
        found: Iterable[ChartRecord],
        later: Iterable[ChartRecord],
        living: Mapping[tuple[str, int, str], int],
    ) -> None:
        self._bound = bound
        self._span = span
        self._known_from = (first_us - span.since_us) // span.step_us
        """The first interval with a known backlog."""
        self._rows: dict[str, list[ChartRecord]] = {}
        """By state: a record for each interval."""
        for each in found:
            if each.machine == bound.name:
                rows = self._rows_of(each.state)
                at = (each.since_us - span.since_us) // span.step_us
                rows[at] = each if rows[at] is NOTHING else rolled_up([rows[at], each], span.since_us, FAR_US)[0]
        self._net: dict[str, int] = {}
        """By state: what entered without what left after the last interval."""
        for each in later:
            if each.machine == bound.name:
                state = self._name(each.state)
                self._net[state] = self._net.get(state, 0) + each.entered - each.left
        self._living: dict[str, int] = {}
        for (machine, _, state), count in living.items():
            if machine == bound.name:
                name = self._name(state)
                self._living[name] = self._living.get(name, 0) + count

    def charts(self) -> MachineCharts:
        """Return the charts of the machine, its states in the order of their declaration."""
        names = [node.name for node in self._bound.table.nodes.values()]
        names += sorted((self._rows.keys() | self._living.keys()) - {*names, ""})
        rows = [self._rows_of(name) for name in [*names, ""]]
        states = [self._state(name) for name in names]
        backlogs = [each.workflows for each in states if not each.final]
        return MachineCharts(
            machine=self._bound.name,
            moves=_totals([each.moves for each in row] for row in rows),
            started=_totals([each.started for each in row] for row in rows),
            failed_attempts=_totals([each.failed for each in row] for row in rows),
            refused=_totals([each.refused for each in row] for row in rows),
            dead_letters=_totals([each.dead_letters for each in row] for row in rows),
            waiting=[each.waiting for each in self._rows_of("")],
            workflows=[
                None if None in column else sum(count or 0 for count in column)
                for column in zip(*backlogs, strict=True)
            ],
            states=states,
        )

    def _state(self, name: str) -> StateCharts:
        rows = self._rows_of(name)
        node = self._bound.stored.get(name)
        return StateCharts(
            state=name,
            final=node is not None and node.final,
            moves=[each.moves for each in rows],
            left=[each.left for each in rows],
            dwell_mean_s=[each.dwell_us / each.dwells / 1_000_000 if each.dwells else None for each in rows],
            dwell_max_s=[each.dwell_max_us / 1_000_000 if each.dwells else None for each in rows],
            failed_attempts=[each.failed for each in rows],
            refused=[each.refused for each in rows],
            dead_letters=[each.dead_letters for each in rows],
            workflows=self._backlog(name, rows),
        )

    def _backlog(self, name: str, rows: Sequence[ChartRecord]) -> list[int | None]:
        """Trace the workflows of a state back from now, by what entered and left it."""
        count = self._living.get(name, 0) - self._net.get(name, 0)
        counts: list[int | None] = []
        for at in reversed(range(len(rows))):
            counts.append(max(0, count) if at >= self._known_from else None)
            count -= rows[at].entered - rows[at].left
        return counts[::-1]

    def _rows_of(self, state: str) -> list[ChartRecord]:
        return self._rows.setdefault(self._name(state), [NOTHING] * self._span.points)

    def _name(self, state: str) -> str:
        """Return the present name of a state, which may have been stored under an earlier one."""
        node = self._bound.stored.get(state) if state else None
        return state if node is None else node.name


def _totals(columns: Iterable[list[int]]) -> list[int]:
    return [sum(each) for each in zip(*columns, strict=True)]
