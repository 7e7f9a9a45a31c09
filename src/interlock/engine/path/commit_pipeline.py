"""The data path: `admit → load → decide → commit → acknowledge → dispatch`.

Envelopes queue while a group is being written; the queue is the next group (natural batching). A workflow is in at most
one group (G1), and several of its events are decided there one after the other. No caller gets an answer before the
group is durable: refusals and duplicates are reads of the staged state, and wait for the commit as well (G7).

One path serves both kinds of store; a `PathPolicy` answers where they differ. On a store with one owner memory is
current, and one group is under way. On a shared store memory may be stale: what changes nothing is decided again on a
fresh row before the caller gets it. A change that is lost on a fresh row is parked, with all later envelopes of its
workflow. Several groups are under way: the database writes one while this process decides the next.

Sections: moves of the store; errors of an engine that cannot act; listener and store policy; contention;
sums of a minute; the path.
"""

import asyncio
import math
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from interlock.clock import Chance
from interlock.engine.bound_machine import BoundMachine, LoadedWorkflow, NotCompared
from interlock.engine.check_definitions import compare_version
from interlock.engine.engine_settings import EngineSettings
from interlock.engine.path.staged_group import DecisionContext, Envelope, Group, LookFirst, Staged, uncount
from interlock.engine.tracer_protocol import outside
from interlock.errors import Fenced, InterlockError, MovedElsewhere, UnavailableError
from interlock.faultpoints import reach
from interlock.lanes.hot_rows import Contention, HotRow
from interlock.lanes.lane_settings import LaneSettings
from interlock.store.lane_store import SqliteStore
from interlock.store.protocol import Store
from interlock.store.records import Row

# --- Check that the workflows were not moved to another store: a move makes cached workflows stale -------------------
# Writes and reads of the store detect a move themselves. An answer from memory, a view or a refusal, would miss
# changes at the new place. A check costs some microseconds on a lane in use.

NO_ID = ""
"""An id that no workflow has."""


def is_here(store: Store) -> bool:
    """Return whether this is known without a read: the workflows live in this store. If not, await `confirm`.

    Raises MovedElsewhere.
    """
    return not isinstance(store, SqliteStore) or store.here()


async def confirm(store: Store) -> None:
    """Read from the store. Raises MovedElsewhere or Fenced."""
    await store.load([NO_ID])


# --- Errors of an engine that cannot act: the machine is unknown, or the engine has stopped --------------------------


class MachineNotGiven(UnavailableError):
    """A workflow belongs to a machine that the engine does not have."""


def machine_of(row: Row, machines: Mapping[str, BoundMachine]) -> BoundMachine:
    """Return the machine of a workflow. Raises MachineNotGiven if this engine does not have it."""
    bound = machines.get(row.machine)
    if bound is not None:
        return bound
    raise MachineNotGiven(
        f"workflow {row.id!r} belongs to the machine {row.machine!r}, which was not given to this engine.",
        why="Only the machine knows what an event means for it.",
        fix=f"Open the engine with it: Engine.open(url, machines=[{row.machine}, …]).",
    )


def stopped(error: BaseException) -> UnavailableError:
    """Return the error of an engine that has stopped."""
    reason = error.what if isinstance(error, InterlockError) else repr(error)
    return UnavailableError(
        f"the engine has stopped: {reason}",
        why="It is unknown whether the last group became durable; going on could do things twice.",
        fix="Close the engine and open it again: what is durable is taken up, and nothing else.",
    )


def closed() -> UnavailableError:
    """Return the error of a closed engine."""
    return UnavailableError(
        "the engine is closed.",
        why="It was left or closed before.",
        fix="Use it inside `async with`, or open it again.",
    )


# --- What the path asks: a listener, and a policy of the store -------------------------------------------------------


class Listener(Protocol):
    """Receives durable changes and answers, and acts on them."""

    def durable(self, staged: Staged) -> None:
        """Act on a committed change of a workflow."""
        ...

    def answered(self, envelope: Envelope, answer: object) -> None:
        """Handle an answer that changed nothing, or an error, before the sender gets it."""
        ...

    def grouped(self, changed: Sequence[Staged], lost: Sequence[str]) -> None:
        """Handle the end of a group: all of its changes were acted on, but for those of workflows that were lost."""
        ...

    def measured_s(self) -> float:
        """Return the time of a clock finer than a millisecond, the resolution of some event loops."""
        ...

    def elsewhere(self, error: UnavailableError) -> bool:
        """Handle a group that failed because the workflows were moved; return whether the engine follows them."""
        ...


class PathPolicy(Protocol):
    """Where the data path of a store with one owner and that of a shared store differ."""

    memory_is_current: bool
    """Whether this engine is the only writer, so that a cached row may answer a caller."""

    groups_max: int
    """Groups that may be under way: decided, and not yet acknowledged."""

    idle_s_max: float
    """Seconds for which a stopping engine waits for parked workflows and repeated reports."""

    fatal: tuple[type[InterlockError], ...]
    """Errors of the store after which the engine cannot go on."""

    @property
    def write(self) -> Callable[[Sequence[Staged]], Awaitable[Sequence[str]]] | None:
        """Commits a group, settles its outcome if that is unknown, and returns the workflows whose change was lost.

        None: the store commits it, and an unknown outcome is fatal (G9).
        """
        ...

    def kept_moving(self, workflow: str, conflicts: int) -> InterlockError:
        """Return the error for an event that was lost too often."""
        ...


# --- Contention of events on workflows: the contention signal of an engine (D9) --------------------------------------
# An event is a *hand-off* when another event of its workflow was decided while it waited already: in the same group
# before it, or in a group that was still under way when it arrived. Its waiting time until the decision is counted. A
# *conflict* is an event that was decided again on a shared store, because another process had changed the workflow.
# Many events of many workflows are volume, and cause neither.
#
# Groups are sampled, to limit the cost to about one percent of the time. Events that are not sampled are counted by the
# weight of the next sample. So an event itself costs one reading of the clock.

LOOK_S = 0.002
LOOK_AT_ONE_S = 0.000_15
"""Pauses between two samples: the minimum, and per sampled event. A sampled event takes up to two microseconds when
many workflows are hot."""

GROUPS_REMEMBERED = 2
"""Groups that may have been under way when an event arrived: the default of `groups_max`."""

NEVER: frozenset[str] = frozenset()


class ContentionTable:
    """The contention table of one engine. Lives in its event loop, and may be read from another thread."""

    def __init__(self, settings: LaneSettings | None = None) -> None:
        self.contention = Contention(settings or LaneSettings(), source="workflow")
        self._next_s = -math.inf
        self._events = 0
        """Events since the last sample."""
        self._recent: deque[tuple[list[str], float]] = deque(maxlen=GROUPS_REMEMBERED)
        """The workflows of the last groups, and when each group was durable."""

    def passed(
        self,
        envelopes: Sequence[Envelope],
        changed: Sequence[Staged],
        *,
        decided_s: float,
        now_s: float,
        lost: Collection[str] = (),
        fresh: frozenset[str] = NEVER,
    ) -> None:
        """Count a durable group. Workflows in `lost` were not committed; those in `fresh` were loaded for it."""
        size = len(envelopes)
        self._events += size
        if now_s >= self._next_s:
            self._next_s = now_s + max(LOOK_S, LOOK_AT_ONE_S * size)
            weight, self._events = self._events / size, 0
            self._look(envelopes, changed, decided_s, now_s, weight, lost, fresh)
        if lost and fresh:
            # Decided on a fresh row, and still in conflict. Rare enough to count without sampling.
            conflicts = {staged.live.row.id: staged.live.bound.name for staged in changed if staged.live.row.id in lost}
            self.contention.conflicted([(conflicts[each], each) for each in fresh if each in conflicts], now_s=now_s)
        self._recent.append(([each.workflow for each in envelopes], now_s))

    def worst(self, now_s: float) -> list[HotRow]:
        """Return the workflows with the most contention, worst first."""
        return self.contention.worst(now_s)

    def _look(
        self,
        envelopes: Sequence[Envelope],
        changed: Sequence[Staged],
        decided_s: float,
        now_s: float,
        weight: float,
        lost: Collection[str],
        fresh: frozenset[str],
    ) -> None:
        machines: dict[str, str] = {}
        for staged in changed:
            live = staged.live
            machines[live.row.id] = live.bound.name
        for workflow in lost:
            machines.pop(workflow, None)
        under_way: dict[str, float] = {}
        """The time of the last commit of each workflow in the last groups."""
        for workflows, done_s in self._recent:
            under_way.update(dict.fromkeys(workflows, done_s))
        met: dict[str, list[float]] = {}
        for each in envelopes:
            workflow = each.workflow
            if workflow not in machines:
                continue
            count = met.get(workflow)
            waited = count is not None
            if count is None:
                count = met[workflow] = [0.0, 0.0, 0.0]
                waited = under_way.get(workflow, -math.inf) > each.since_s
            count[0] += weight
            if waited and each.since_s <= decided_s:
                count[1] += weight
                count[2] += weight * (decided_s - each.since_s)
            if fresh and each.look and workflow in fresh:
                self.contention.conflicted([(machines[workflow], workflow)], now_s=now_s, weight=weight)
        took_turns = self.contention.took_turns
        for workflow, (writes, handoffs, wait_s) in met.items():
            took_turns((machines[workflow], workflow), writes=writes, handoffs=handoffs, wait_s=wait_s, now_s=now_s)


# --- Sums of a minute: what charts over time are made of (F7) --------------------------------------------------------
# This runs for every group, and must cost less than a hundredth of it. So moves are counted by the interpreter's own
# loop, as edges between states. How long workflows had been in a state is measured for a few of a large group.

NEVER_US = -1
"""A time before all others."""

MEASURED_MAX = 4
"""Workflows of a group whose time in their state is measured: every one of a small group."""


class StateSums:
    """The sums of one state in the current minute."""

    __slots__ = (
        "dead_letters",
        "dwell_max_us",
        "dwell_us",
        "dwells",
        "entered",
        "failed",
        "left",
        "moves",
        "refused",
        "started",
    )

    def __init__(self) -> None:
        self.moves = self.started = self.entered = self.left = self.dwells = self.dwell_us = self.dwell_max_us = 0
        self.failed = self.refused = self.dead_letters = 0

    def values(self) -> tuple[int, ...]:
        """Return the sums in the order of a chart's record."""
        dwell = (self.dwells, self.dwell_us, self.dwell_max_us)
        failures = (self.failed, self.refused, self.dead_letters)
        return (self.moves, self.started, self.entered, self.left, *dwell, *failures)


class MinuteSums:
    """The sums of the current minute, by machine and state. Lives in one event loop."""

    def __init__(self, turn: Callable[[int], None]) -> None:
        self._table: defaultdict[str, defaultdict[str, StateSums]] = defaultdict(_states)
        self._edges: Counter[tuple[str, str, str, bool]] = Counter()
        """Moves by machine, from and to, and whether they are starts; not in the table yet."""
        self.end_us = NEVER_US
        """When the minute ends; then `turn` is called with the time before anything is counted."""
        self._turn = turn

    def clear(self) -> None:
        """Begin again with nothing."""
        self._table, self._edges = defaultdict(_states), Counter()

    def table(self) -> defaultdict[str, defaultdict[str, StateSums]]:
        """Return the sums by machine and state."""
        for (machine, before, after, starts), count in self._edges.items():
            state = self._table[machine][after]
            state.moves += count
            state.started += count if starts else 0
            state.entered += count if starts or before != after else 0
            if before != after:
                self._table[machine][before].left += count
        self._edges = Counter()
        return self._table

    def count(self, changed: Sequence[Staged], lost: Collection[str], now_us: int) -> None:
        """Count the moves of a durable group."""
        if now_us >= self.end_us:
            self._turn(now_us)
        if lost:
            changed = [staged for staged in changed if staged.live.row.id not in lost]
        self._edges.update(
            [
                (staged.live.row.machine, happened.from_state, happened.to_state, happened.version == 1)
                for staged in changed
                for happened in staged.history
            ]
        )
        for staged in changed[:: len(changed) // MEASURED_MAX + 1]:
            since_us, table = staged.entered_us, self._table[staged.live.row.machine]
            for happened in staged.history:
                if happened.from_state != happened.to_state:
                    state = table[happened.from_state]
                    dwell_us = happened.created_us - since_us
                    since_us = happened.created_us
                    state.dwells += 1
                    state.dwell_us += dwell_us
                    state.dwell_max_us = max(state.dwell_max_us, dwell_us)


def _states() -> defaultdict[str, StateSums]:
    return defaultdict(StateSums)


# --- The path --------------------------------------------------------------------------------------------------------

AGAIN_S = 0.25
"""Pause before a report is sent again to a store that was unavailable."""

PARKED_S_MIN = 0.005
PARKED_S_MAX = 0.2
"""Seconds for which a workflow that others write to is left alone: more each time, up to this."""

TURNS_MAX = 4
"""Turns of the event loop that the first group waits while each of them brings more, as many connections do."""

GROUP_MIN = 32
"""Fewer envelopes than this are not split into groups: each group has its price."""

HOT_MAX = 64
"""Envelopes of one workflow in a group, while others wait too or did for the last one; of a very long queue, one part
in as many."""

Loading = tuple[dict[str, LoadedWorkflow], list[str], list[tuple[str, str]]]
"""Cached workflows, workflows to load, and delivery keys to look up."""


class CommitPipeline:
    """The data path of one engine. Lives in one event loop."""

    def __init__(
        self,
        store: Store,
        policy: PathPolicy,
        machines: dict[str, BoundMachine],
        means: DecisionContext,
        settings: EngineSettings,
        listener: Listener,
        contended: ContentionTable,
        chance: Chance,
    ) -> None:
        self.store = store
        self.means = means
        self.contended = contended
        self.dead: BaseException | None = None
        """The error that stopped the pipeline: the outcome of a group is unknown, or there is a bug."""
        self.group_begun_s = 0.0
        """When the group that is being answered began, by the listener's clock."""
        self.closed = False
        self._policy = policy
        self._memory_is_current = policy.memory_is_current
        self._groups_max = policy.groups_max
        self._commit = policy.write or self._commit_to_owned
        self._machines = machines
        self._settings = settings
        self._listener = listener
        self._chance = chance
        self._waiting: list[Envelope] = []
        self._live: dict[str, LoadedWorkflow] = {}
        self._in_commit: Mapping[str, Staged] = {}
        """The workflows of the group that is being written, where memory is current."""
        self._suspects: frozenset[str] = frozenset()
        """Workflows whose last group was lost: delivery keys for them are looked up before deciding."""
        self._groups: set[asyncio.Task[None]] = set()
        """Groups under way, where there may be several."""
        self._busy: set[str] = set()
        """Workflows of these groups."""
        self._parked: dict[str, list[Envelope]] = {}
        """Envelopes of workflows that others write to, in their order."""
        self._crowded = False
        """Whether the last large queue had several workflows."""
        self._stirred = asyncio.Event()
        """Set when there may be another group to begin."""
        self.left: list[Envelope] | None = None
        """Envelopes that arrived after the workflows were moved, not applied. None before a move."""
        self.heir: Callable[[Envelope], None]
        """Receives the envelopes that arrive after a move."""
        self._later: set[Envelope] = set()
        """Reports that wait for `AGAIN_S` before they are sent again."""
        self.counted: dict[str, None] = {}
        """Workflows whose counts are in memory only: they are not evicted until their next durable change."""
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._outside = outside()

    def admit(self, envelope: Envelope) -> "asyncio.Future[object]":
        """Queue the envelope for the next group and return the future of its answer."""
        future = envelope.future = self._loop.create_future()
        self.add(envelope)
        return future

    def add(self, envelope: Envelope) -> None:
        """Queue an envelope whose answer is not awaited."""
        self._waiting.append(envelope)
        if self._task is None:
            self._begin()
        elif not self._memory_is_current:
            self._stirred.set()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run(), context=self._outside.copy())

    def leave(self) -> None:
        """Keep all further envelopes, in their order, for the engine at the new place of the workflows."""
        if self.left is None:
            self.left, self._later = [*self._later], set()
            self.heir = self.left.append
            self._live, self.counted = {}, {}
            for parked in self._parked.values():
                self._pass_on(parked)
                parked.clear()

    def refuse(self, error: InterlockError) -> None:
        """Fail the envelopes that callers await. Reports cannot be repeated, and are kept for the new place."""
        left = self.left or []
        waiting = [envelope for envelope in left if envelope.future is not None]
        left[:] = [envelope for envelope in left if envelope.future is None]
        for envelope in waiting:
            self._tell(envelope, error)

    async def idle(self) -> None:
        """Wait until the queue is empty; a limited time for parked workflows and repeated reports."""
        deadline_s = self._loop.time() + self._policy.idle_s_max
        while self._task is not None or ((self._parked or self._later) and self._loop.time() < deadline_s):
            if self._task is not None:
                await asyncio.wait([self._task])
            else:
                await asyncio.sleep(PARKED_S_MIN)

    def known(self, workflow: str) -> LoadedWorkflow | None:
        """Return the durable workflow from memory; None if it is not cached or memory may be stale."""
        return self._live.get(workflow) if self._memory_is_current else None

    def is_in_commit(self, workflow: str) -> bool:
        """Return whether the workflow's last move is being written: readers of the store may see it before `known`."""
        return workflow in self._in_commit

    def supposed(self, workflow: str) -> LoadedWorkflow | None:
        """Return the cached, possibly stale workflow of a shared store; None where memory is current: see `known`."""
        return None if self._memory_is_current else self._live.get(workflow)

    def learn(self, row: Row) -> None:
        """Cache a row that was just read. Raises CorruptionError when its machine cannot read it."""
        if row.id not in self._busy:
            self._live[row.id] = self._read(row)

    def cached(self) -> Iterable[LoadedWorkflow]:
        """Return the cached workflows."""
        return self._live.values()

    def let_go(self, workflow: str) -> None:
        """Evict a workflow that may wait for long. It is loaded again for its next event."""
        if workflow not in self.counted:
            self._live.pop(workflow, None)

    def forget(self, workflows: Iterable[str]) -> None:
        """Evict workflows that were removed from the store."""
        for workflow in workflows:
            self._live.pop(workflow, None)
            self.counted.pop(workflow, None)

    # --- groups ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            for _ in range(TURNS_MAX):
                count = len(self._waiting)
                await asyncio.sleep(0)  # All envelopes of these turns of the event loop are in one group.
                if len(self._waiting) == count:
                    break
            if self._memory_is_current:
                while self._waiting:
                    taken = self._gather()
                    is_long = bool(self._waiting)
                    await self._complete(taken)
                    if is_long:
                        await asyncio.sleep(0)  # The commit may not have suspended, and other tasks wait for a turn.
            else:
                await self._run_concurrently()
        finally:
            self._task = None

    async def _run_concurrently(self) -> None:
        """Run several groups concurrently. No two of them share a workflow (G1)."""
        while self._waiting or self._groups:
            self._stirred.clear()
            if len(self._groups) < self._groups_max and (taken := self._gather()):
                self._busy.update([envelope.workflow for envelope in taken])
                self._groups.add(self._loop.create_task(self._complete_concurrently(taken)))
            else:
                await self._stirred.wait()
            # Callers that just got an answer may send more, and attempts that begin may end immediately.
            await asyncio.sleep(0)

    def _gather(self) -> list[Envelope]:
        """Return up to a group of waiting envelopes, in order; none of a busy or parked workflow."""
        waiting, busy, parked = self._waiting, self._busy, self._parked
        most, share = self._settings.group_max, len(waiting)
        if share > GROUP_MIN:
            most, share = self._shares(most)
        if not busy and not parked and share >= len(waiting):
            first, self._waiting = waiting[:most], waiting[most:]
            return first
        taken: list[Envelope] = []
        left: list[Envelope] = []
        counts: dict[str, int] = {}
        for envelope in waiting:
            workflow = envelope.workflow
            if workflow in parked:
                parked[workflow].append(envelope)
            elif workflow in busy or len(taken) >= most or (count := counts.get(workflow, 0)) >= share:
                left.append(envelope)
            else:
                counts[workflow] = count + 1
                taken.append(envelope)
        self._waiting = left
        return taken

    def _shares(self, most: int) -> tuple[int, int]:
        """Return how many of the waiting envelopes one group should take, and how many of one workflow.

        A group that took all would leave nothing to decide while the database writes it. But envelopes of few workflows
        cannot be split: a workflow is in one group at a time. Neighbours of a hot one do not wait for all that it has.
        """
        counts = Counter([envelope.workflow for envelope in self._waiting])
        count, workflows = len(self._waiting), len(counts)
        crowded, self._crowded = self._crowded or workflows > 1, workflows > 1
        # The longer the queue the larger the share: all of the queue is looked through for each group.
        share = max(HOT_MAX, count // HOT_MAX) if crowded and max(counts.values()) > HOT_MAX else count
        free = self._groups_max - len(self._groups)
        if free > 1 and 2 * workflows >= count:
            most = min(most, max(GROUP_MIN, math.ceil(count / free)))
        return most, share

    async def _complete(self, taken: list[Envelope]) -> None:
        try:
            await self._pass(taken)
        except BaseException as error:
            # A bug after the commit, or the end of the program: no caller may wait for ever.
            self._give_up(taken, None, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._in_commit = {}

    async def _complete_concurrently(self, taken: list[Envelope]) -> None:
        """Complete a group while the next one is decided."""
        try:
            await self._complete(taken)
        finally:
            self._busy.difference_update([envelope.workflow for envelope in taken])
            task = asyncio.current_task()
            assert task is not None
            self._groups.discard(task)
            self._stirred.set()

    # --- load → decide → commit → acknowledge → dispatch -------------------------------------------------------------

    async def _pass(self, envelopes: Sequence[Envelope]) -> None:
        group: Group | None = None
        if self.left is not None:
            self._pass_on(envelopes)
            return
        if self.dead is not None:
            self._give_up(envelopes, group, stopped(self.dead))
            return
        try:
            begun_s = self._listener.measured_s()
            group = await self._load(envelopes)
            answers = [self._decide(envelope, group) for envelope in envelopes]
            changed = [staged for staged in group.staged.values() if staged.touched]
            decided_s = self._loop.time()
            reach("engine.decided")
            if self._memory_is_current:
                self._in_commit = group.staged
            lost = await self._commit(changed) if changed else ()
            if not (changed or is_here(self.store)):
                await confirm(self.store)
        except Exception as error:  # noqa: BLE001 -- every awaiting caller gets it.
            self._give_up(envelopes, group, error)
            return
        reach("engine.committed")
        if changed:
            now_s = self._loop.time()
            self.contended.passed(envelopes, changed, decided_s=decided_s, now_s=now_s, lost=lost, fresh=group.fresh)
        self._suspects = frozenset(lost)
        self.group_begun_s = begun_s  # Set for each group: several may run concurrently.
        self._keep(changed, lost)
        self._listener.grouped(changed, lost)
        reach("engine.dispatched")
        again: list[Envelope] = []
        for envelope, answer in zip(envelopes, answers, strict=True):
            if lost and envelope.workflow in lost:
                self._again(envelope, again)
            elif answer is not None or envelope.future is not None:
                self._tell(envelope, answer, again)
        if again:
            self._retry(again, group, lost)
        reach("engine.told")

    async def _load(self, envelopes: Sequence[Envelope]) -> Group:
        live, missing, keys = self._look_up(envelopes) if self._memory_is_current else self._look_up_stale(envelopes)
        rows = await self.store.load(missing) if missing else {}
        delivered = await self.store.delivered(keys) if keys else {}
        self.means.now_us = self.store.now_us()
        group = Group(self.means, live, delivered)
        if not self._memory_is_current:
            group.fresh = frozenset(missing)
        await self._read_into(group, rows.values())
        return group

    def _look_up(self, envelopes: Sequence[Envelope]) -> Loading:
        """Return the cache, and what to load.

        A delivery key is looked up only before a refusal is returned, and when the store reports that the key was used.
        The same holds for the id of a new workflow. An event that applies costs only the store's own check.
        """
        live, suspects = self._live, self._suspects
        missing = [each.workflow for each in envelopes if each.workflow not in live and (each.look or not each.begins)]
        keys = [
            (each.workflow, each.key)
            for each in envelopes
            if each.key is not None and (each.look or each.workflow in suspects)
        ]
        return live, list(dict.fromkeys(missing)), keys

    def _look_up_stale(self, envelopes: Sequence[Envelope]) -> Loading:
        """Return the cached workflows, and what to load: memory may be stale, and a refusal needs a fresh row."""
        looked = {each.workflow for each in envelopes if each.look}
        known: dict[str, LoadedWorkflow] = {}
        missing: dict[str, None] = {}
        for each in envelopes:
            workflow = each.workflow
            live = None if workflow in looked else self._live.get(workflow)
            if live is not None:
                known[workflow] = live  # Kept here: the cache may drop it while others are loaded.
            elif each.look or not each.begins:
                missing[workflow] = None
        keys = [(each.workflow, each.key) for each in envelopes if each.key is not None and each.workflow in looked]
        return known, list(missing), keys

    def _decide(self, envelope: Envelope, group: Group) -> object:
        workflow = envelope.workflow
        if group.deferred and workflow in group.deferred:
            return LookFirst()
        stale = not self._memory_is_current and workflow not in group.fresh
        before = _mark(group.staged.get(workflow)) if stale else None
        answer: object
        try:
            answer = envelope.decide(group)
        except LookFirst as first:
            group.deferred.add(workflow)
            return first
        except Exception as error:  # noqa: BLE001 -- a refusal, or a bug in the user's code: it is this envelope's answer.
            answer = error
        if stale and _same(before, _mark(group.staged.get(workflow))):
            # It changes nothing on the cached row, which may be stale: only a fresh row may answer.
            group.deferred.add(workflow)
            return LookFirst()
        return answer

    async def _commit_to_owned(self, changed: Sequence[Staged]) -> Sequence[str]:
        return await self.store.commit([staged.change(shared=False) for staged in changed])

    async def _read_into(self, group: Group, rows: Iterable[Row]) -> None:
        other: list[Row] = []
        for row in rows:
            try:
                group.live[row.id] = self._read(row)
            except NotCompared:
                other.append(row)
            except Exception as error:  # noqa: BLE001 -- any error: see `broken`.
                group.broken[row.id] = error
        if other:
            await self.compare(other)
            await self._read_into(group, other)

    async def compare(self, rows: Iterable[Row]) -> None:
        """Compare the machines with the versions that stored these rows, unless they are compared already."""
        notes: dict[str, str] | None = None
        for row in rows:
            bound = self._machines.get(row.machine)
            if bound is None or bound.is_compared(row):
                continue
            if notes is None:
                notes = await self.store.notes()
            compare_version(bound, row.machine_version, row.state, notes)

    def _read(self, row: Row) -> LoadedWorkflow:
        return machine_of(row, self._machines).decidable(row)

    def _keep(self, changed: Sequence[Staged], lost: Sequence[str]) -> None:
        """Cache the durable changes and act on them. Workflows that have ended are not cached: they never change."""
        live = self._live
        if lost and not self._memory_is_current:
            for workflow in lost:
                live.pop(workflow, None)  # Another process has moved it.
        for staged in changed:
            workflow = staged.live.row.id
            if lost and workflow in lost:
                # With a single writer, a used key lost it, and memory is right; counts that wait to be saved stay.
                staged.give_up()
                uncount(live.get(workflow), staged.counts, self.means)
                continue
            live.pop(workflow, None)
            if not staged.ended:
                live[workflow] = staged.live
            self._listener.durable(staged)
        while len(live) > self._settings.snapshots_max + len(self.counted):
            oldest = next(iter(live))
            kept = live.pop(oldest)
            if oldest in self.counted:
                live[oldest] = kept

    def _again(self, envelope: Envelope, again: list[Envelope]) -> None:
        # B2: decided again on the new state, a bounded number of times. A report is the only record of an effect
        # outside, and is never dropped.
        if envelope.look:
            envelope.conflicts += 1
        envelope.look = True
        if envelope.conflicts <= self._settings.conflicts_max or envelope.future is None:
            again.append(envelope)
        else:
            self._tell(envelope, self._policy.kept_moving(envelope.workflow, envelope.conflicts))

    def _retry(self, again: list[Envelope], group: Group, lost: Sequence[str]) -> None:
        """Decide again immediately after a stale row, and later for workflows that others write to."""
        contended = group.fresh.intersection(lost)
        if not contended:
            self._waiting[:0] = again
            return
        self._waiting[:0] = [envelope for envelope in again if envelope.workflow not in contended]
        for envelope in again:
            workflow = envelope.workflow
            if workflow in contended:
                if workflow not in self._parked:
                    self._parked[workflow] = []
                    wait_s = min(PARKED_S_MAX, PARKED_S_MIN * 2.0**envelope.conflicts)
                    self._loop.call_later(wait_s * (0.5 + self._chance.fraction()), self._unpark, workflow)
                self._parked[workflow].append(envelope)

    def _unpark(self, workflow: str) -> None:
        parked = self._parked.pop(workflow)
        if self.closed:
            return
        self._waiting[:0] = parked
        if self._task is None:
            self._begin()
        self._stirred.set()

    # --- failures and the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop sending reports again, and fail the envelopes of workflows that others lock."""
        self.closed = True
        for workflow, parked in self._parked.items():
            self._give_up(parked, None, _closed_while_locked(workflow))

    def _give_up(self, envelopes: Sequence[Envelope], group: Group | None, error: BaseException) -> None:
        """Discard a group that was not committed, or has an unknown outcome, and fail its callers."""
        if group is not None:
            for staged in group.staged.values():
                staged.give_up()
                self._live.pop(staged.live.row.id, None)
        if isinstance(error, MovedElsewhere | Fenced) and self._listener.elsewhere(error):
            self._pass_on(envelopes)  # Both errors guarantee that nothing of the group was applied.
            return
        fatal = isinstance(error, self._policy.fatal) or not isinstance(error, InterlockError)
        if fatal and self.dead is None:
            self.dead = error
        for envelope in envelopes:
            if envelope.future is None and self.dead is None and not self.closed:
                self._later.add(envelope)
                self._loop.call_later(AGAIN_S, self._resend, envelope)
            else:
                self._tell(envelope, error)

    def _pass_on(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            self.heir(envelope)

    def _resend(self, envelope: Envelope) -> None:
        if not self.closed and envelope in self._later:
            self._later.discard(envelope)
            self.add(envelope)

    def _tell(self, envelope: Envelope, answer: object, again: list[Envelope] | None = None) -> None:
        error = answer if isinstance(answer, BaseException) else None
        if again is not None and isinstance(error, LookFirst):
            self._again(envelope, again)
            return
        self._listener.answered(envelope, answer)
        future = envelope.future
        if future is None or future.done():
            return
        if error is None:
            future.set_result(answer)
        elif isinstance(error, Exception):
            future.set_exception(error)
        else:
            future.cancel()


def _closed_while_locked(workflow: str) -> UnavailableError:
    return UnavailableError(
        f"the engine is closed; until then others wrote to workflow {workflow!r}, or had it locked.",
        why="What was sent was decided again and again, and nothing of it was written.",
        fix="Send it to another engine; keep transactions that send events short.",
    )


def _mark(staged: Staged | None) -> tuple[LoadedWorkflow, tuple[int, ...]] | None:
    """Return a mark that differs after any change by a decision."""
    if staged is None or not staged.touched:
        return None
    sizes = (
        len(staged.effects),
        len(staged.effects_again),
        len(staged.effects_done),
        len(staged.effects_dead),
        len(staged.letters),
        len(staged.letters_gone),
        len(staged.children),
    )
    return staged.live, sizes


def _same(
    before: tuple[LoadedWorkflow, tuple[int, ...]] | None, after: tuple[LoadedWorkflow, tuple[int, ...]] | None
) -> bool:
    """Whether nothing has changed. Compares identity; both objects are referenced, so no id is reused."""
    if before is None or after is None:
        return before is after
    return before[0] is after[0] and before[1] == after[1]
