"""The lane simulation: machines whose processes open a lane on a bucket, use it, and close it or die.

The seed decides the number of machines, the settings of the lane, the faults, and every later draw. A machine runs one
process after the other. The work of a process is random: transactions alone and in groups, with keys and without, some
that refuse because of a read, some that roll back more than fits into memory, and concurrent reads. It ends by closing
the lane, or by a kill at any instant; then the next one finds the disk as the kill left it, or empty.

When all machines have ended, the faults stop. One last process opens the lane and retries the transactions with an
unknown outcome; then the checks run.

Sections: lane, transactions, machine, seed.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import apsw

from interlock.clock import SeededIds
from interlock.errors import CorruptionError, Fenced, InterlockError, LaneOwned, OutcomeUnknown, UnavailableError
from interlock.faultpoints import listen
from interlock.lanes.lane import DurableLog, Lane
from interlock.lanes.lane_settings import LaneSettings
from interlock.lanes.objectlog import slots, snapshots
from interlock.lanes.objectlog.bucket_protocol import Bucket, Environment
from interlock.lanes.objectlog.log import ObjectLog, open_log
from interlock.lanes.readers import READ_THREADS_MAX, Readers, Shares, _Call  # pyright: ignore[reportPrivateUsage]
from interlock.lanes.writer import Session, Work
from interlock.testing.campaigns import Campaign, Luck, Simulated, Watcher, refuse_numbers, run_seeds
from interlock.testing.lane_simulation.bucket import (
    REQUEST_TIMEOUT_S,
    DriftingClock,
    LaneStory,
    Observed,
    Server,
    SimulatedBucket,
    Submission,
    Weather,
)
from interlock.testing.lane_simulation.log_audit import check
from interlock.testing.lane_simulation.threads import Baton, BatonCondition, BatonLoop, Killed, StrandLife

# --- Lane ------------------------------------------------------------------------------------------------------------
# Nothing of the lane is replaced but its threads: the driver is begun as a strand, the condition it waits with
# parks, and reads run in the strand of their event loop instead of a pool. Groups, acknowledgements, the gate that
# holds reads back, the hand-off and everything below it are the code that runs in production.

CACHE_PAGES = 10
"""So few pages in memory that a large transaction spills into the log before it is rolled back."""


class _InlineReaders(Readers):
    def start(self, call: _Call) -> bool:
        """Run the read in the strand of its event loop: there are no threads here."""
        call.future.get_loop().call_soon_threadsafe(self._serve, call)
        return True


class SimulatedLane(Lane):
    """A lane whose threads are strands of one life."""

    def __init__(
        self,
        path: Path,
        *,
        baton: Baton,
        life: StrandLife,
        clock: DriftingClock,
        settings: LaneSettings,
        open_log: Callable[[Path | None], DurableLog],
    ) -> None:
        self._baton = baton
        self._life = life
        super().__init__(path, settings=settings, clock=clock, prepare=_prepare, open_log=open_log)
        self._arrived = cast("threading.Condition", BatonCondition(baton, self._lock))
        # Places of its own: those of a process that is killed are gone with it.
        self._readers = _InlineReaders(
            self._file,
            settings=settings,
            clock=clock,
            prepare=_prepare,
            time=self._time,
            shares=Shares(READ_THREADS_MAX),
        )

    @property
    def log(self) -> ObjectLog | None:
        """The log in the bucket, while the lane is open."""
        return cast("ObjectLog | None", self._log)

    @property
    def stopped(self) -> bool:
        """Whether the lane has died and must be opened again."""
        return self._dead is not None

    def _start_driver(self) -> None:
        self._driving = True
        self._baton.spawn(self._life, "driver", self._drive)

    def drop(self) -> None:
        """The process was killed: let go of what the kernel would have let go of."""
        self._close_writer()
        if self._readers is not None:
            self._readers.close()
        if self._ownership is not None:
            self._ownership.release()


def open_lane(
    path: Path,
    bucket: Bucket,
    *,
    machine: str,
    baton: Baton,
    life: StrandLife,
    clock: DriftingClock,
    settings: LaneSettings,
    luck: Luck,
) -> SimulatedLane:
    """Open the lane as a process does: the local lock, the log, the file."""

    def pause(seconds: float) -> None:
        baton.park(seconds / clock.rate)

    def beside(work: Callable[[], None]) -> Callable[[], None]:
        strand = baton.spawn(life, "beside", work)
        return lambda: baton.join(strand)

    world = Environment(clock=clock, chance=luck.chance, ids=SeededIds(luck.number()), pause=pause, beside=beside)

    def opened(local: Path | None) -> DurableLog:
        assert local is not None
        # One machine is one local file, wherever the simulator has put it this time.
        local.with_name(local.name + ".id").write_text(machine)
        return open_log(bucket, local, settings=settings, world=world)

    return SimulatedLane(path, baton=baton, life=life, clock=clock, settings=settings, open_log=opened)


def _prepare(connection: apsw.Connection, _now_us: Callable[[], int]) -> None:
    connection.execute(f"PRAGMA cache_size = {CACHE_PAGES}")


# --- Transactions ----------------------------------------------------------------------------------------------------
# Each change increments a counter and adds a row with its number and name. So the rows are the order of all changes,
# and every observed state can be checked against it: a counter of 7 must come with the name of row 7.

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO counter VALUES (1, 0)",
    "CREATE TABLE IF NOT EXISTS entries (number INTEGER, id TEXT)",
    "CREATE TABLE IF NOT EXISTS junk (data BLOB)",
)
STATE = "SELECT n, (SELECT id FROM entries WHERE number = n) FROM counter WHERE id = 1"
KINDS = ("plain", "plain", "plain", "keyed", "keyed", "refusing", "spilling", "nothing", "read", "read")
JUNK_ROWS = 12
JUNK_BYTES = 900


class RefusedByRead(Exception):
    """A transaction that says no because of what it read."""

    def __init__(self, number: int, name: str | None) -> None:
        super().__init__(f"refused at {number}")
        self.number = number
        self.name = name


class RolledBack(Exception):
    """A large transaction that changed its mind."""


def make_tables(session: Session) -> object:
    """Make the tables, unless they are there."""
    for statement in SCHEMA:
        session.execute(statement)
    return None


def increment(name: str) -> Callable[[Session], object]:
    """The transaction of that name; its result is its number."""

    def work(session: Session) -> object:
        session.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
        [(number,)] = session.query("SELECT n FROM counter WHERE id = 1")
        session.execute("INSERT INTO entries (number, id) VALUES (?1, ?2)", (number, name))
        return number

    return work


def read_state(connection: apsw.Connection) -> object:
    """The counter, and the transaction that made it so."""
    return connection.execute(STATE).fetchall()


def _refusing(session: Session) -> object:
    [(number, name)] = session.query(STATE)
    raise RefusedByRead(int(str(number)), None if name is None else str(name))


def _spilling(session: Session) -> object:
    # The rows after the updates push the changed pages out of memory, so they stay in SQLite's log.
    insert = "INSERT INTO junk VALUES (zeroblob(?1))"
    for _ in range(JUNK_ROWS):
        session.execute(insert, (JUNK_BYTES,))
    session.execute("UPDATE counter SET n = n + 1000000")
    session.execute("UPDATE entries SET id = 'junk'")
    for _ in range(JUNK_ROWS):
        session.execute(insert, (JUNK_BYTES,))
    raise RolledBack


def _nothing(session: Session) -> object:
    return session.query(STATE)


NO_EFFECT: dict[str, Callable[[Session], object]] = {"refusing": _refusing, "spilling": _spilling, "nothing": _nothing}


# --- Machine ---------------------------------------------------------------------------------------------------------

_PROCESS = re.compile(r"process \d+ on host \S+")
"""The real process that runs all of them, which is not part of the story."""


class SimulatedMachine:
    """One machine, with its clock, its disk and its name."""

    def __init__(self, name: str, shared: "LaneSimulation", luck: Luck, *, lives: int, rounds: int) -> None:
        self.name = name
        self._shared = shared
        self._baton, self._story = shared.baton, shared.story
        self._luck = luck
        self._clock = DriftingClock(luck, shared.baton)
        self._lives = lives
        self._rounds = rounds
        self._life = StrandLife(name)
        self._points_left = 0
        self._disks = 0
        self._folder = self._fresh_folder()
        self._made = 0

    def run(self) -> None:
        """Run one life after the other. This is the work of a strand."""
        baton, luck = self._baton, self._luck
        strand, resting = baton.current, baton.current.life
        baton.park(luck.between(0.0, 12.0))
        for number in range(1, self._lives + 1):
            life = self._life = StrandLife(f"{self.name}{number}")
            life.strands.append(strand)
            strand.life = life
            lane = _OpenLane()
            try:
                self._arrange_death(life)
                self._live(life, lane)
            except Killed:
                self._story.counts["kills"] += 1
                if lane.it is not None:
                    lane.it.drop()
            strand.life = self._life = resting
            baton.park(luck.between(0.0, 4.0))

    def finish(self) -> None:
        """Run the last process, without faults: the lane opens, and unknown transactions can be retried (G9)."""
        lane = None
        self._life, self._points_left = self._baton.current.life, 0
        for _ in range(4):
            lane = lane or self._open(self._life)
            if lane is None:
                self._baton.park(self._shared.settings.lease_s)
        if lane is None:
            self._story.complain("the lane cannot be opened any more, although all faults have stopped", self.name)
            return
        loop = BatonLoop(self._baton)
        life = self._life
        unknown, self._shared.unknown[:] = list(self._shared.unknown), []
        loop.run_all([self._setup(lane), *(self._increment(life, lane, again=each) for each in unknown)])
        loop.run_all([self._increment(life, lane), self._read(life, lane)])
        last = self._story.attempts[-1]
        if self._shared.unknown or last.answer != "acknowledged":
            self._story.complain(f"the lane cannot be written any more: {last.why}", self.name, last.id)
        lane.close()

    def reached(self, point: str) -> None:
        """Handle a fault point of the lane's driver: kill the life, or let time pass."""
        life = self._life
        if self._points_left:
            self._points_left -= 1
            if not self._points_left:
                self._story.tell(self._baton.now_s, life.name, f"is killed at {point}", milestone=True)
                self._die(life)
        if life.killed:
            raise Killed
        if self._luck.often(0.15):
            self._baton.park(self._luck.between(0.0005, 0.03))

    # --- one life ------------------------------------------------------------------------------------------------

    def _live(self, life: StrandLife, opened: "_OpenLane") -> None:
        baton, luck = self._baton, self._luck
        loop = BatonLoop(baton)
        for _ in range(luck.count(1, self._rounds)):
            if opened.it is not None and opened.it.stopped:
                opened.it.close()
                opened.it = None
            if opened.it is None:
                opened.it = self._open(life)
                if opened.it is None:
                    baton.park(luck.between(0.0, self._shared.settings.lease_s))
                    continue
                loop.run_all([self._setup(opened.it)])
            clients = self._round(life, opened.it, loop)
            cancelled = (luck.count(0, len(clients) - 1), luck.between(0.0, 0.3)) if luck.often(0.1) else None
            loop.run_all(clients, cancelled)
            baton.park(luck.between(0.0, 1.0) if luck.often(0.8) else luck.between(1.0, 20.0))
        if opened.it is None:
            return
        if luck.often(0.2):
            self._story.tell(baton.now_s, life.name, "is killed at rest", milestone=True)
            self._die(life)
            raise Killed
        self._story.tell(baton.now_s, life.name, "closes the lane", milestone=True)
        opened.it.close()

    def _arrange_death(self, life: StrandLife) -> None:
        luck, baton = self._luck, self._baton
        self._points_left = 0
        if not luck.often(self._shared.server.weather.kills):
            return
        if luck.often(0.5):
            self._points_left = luck.count(1, 30)
            return

        def strike() -> None:
            if self._life is life and not life.killed:
                self._story.tell(baton.now_s, life.name, "is killed", milestone=True)
                self._die(life)

        baton.at(baton.now_s + luck.between(0.01, 25.0), strike)

    def _die(self, life: StrandLife) -> None:
        """Kill the life; what is on its disk at this instant is there for the next one, unless the disk dies too."""
        before, self._folder = self._folder, self._fresh_folder()
        if self._luck.often(0.7):
            shutil.copytree(before, self._folder, dirs_exist_ok=True)
        else:
            self._story.counts["disks lost"] += 1
        self._baton.kill(life)

    def _fresh_folder(self) -> Path:
        self._disks += 1
        folder = self._shared.folder / f"{self.name}-{self._disks}"
        folder.mkdir()
        return folder

    def _open(self, life: StrandLife) -> SimulatedLane | None:
        shared, story, baton = self._shared, self._story, self._baton
        bucket = SimulatedBucket(shared.server, life, shared.settings.lease_s)
        marked = (self._folder / "x.lane.clean").exists()
        try:
            lane = open_lane(
                self._folder / "x.lane",
                bucket,
                machine=self.name,
                baton=baton,
                life=life,
                clock=self._clock,
                settings=shared.settings,
                luck=self._luck,
            )
        except InterlockError as error:
            why = _PROCESS.sub("another process", error.what)
            story.tell(baton.now_s, life.name, f"cannot open the lane: {why}", milestone=True)
            story.counts[f"not opened: {type(error).__name__}"] += 1
            self._complain_if_corrupt(life, error)
            return None
        assert lane.log is not None
        epoch = lane.log.manifest.epoch
        story.tell(baton.now_s, life.name, f"opens the lane, epoch {epoch}, at {lane.log.position.seq}", milestone=True)
        story.counts["opens"] += 1
        story.counts["opens with a clean local file"] += marked
        story.counts["takeovers"] += bool(shared.owner) and shared.owner != self.name
        shared.owner = self.name
        return lane

    # --- clients -------------------------------------------------------------------------------------------------

    def _round(self, life: StrandLife, lane: SimulatedLane, loop: BatonLoop) -> list[Coroutine[Any, Any, None]]:
        luck = self._luck
        clients: list[Coroutine[Any, Any, None]] = []
        for _ in range(luck.count(1, 4)):
            delay_s = 0.0 if luck.often(0.6) else luck.between(0.0, 0.15)
            clients.append(self._client(life, lane, loop, luck.one(KINDS), delay_s))
        return clients

    async def _client(self, life: StrandLife, lane: SimulatedLane, loop: BatonLoop, kind: str, delay_s: float) -> None:
        if delay_s:
            await loop.wait(delay_s)
        unknown = self._shared.unknown
        if kind == "keyed" and unknown and self._luck.often(0.7):
            await self._increment(life, lane, again=unknown.pop(int(self._luck.between(0, len(unknown)))))
        elif kind in {"plain", "keyed"}:
            await self._increment(life, lane, keyed=kind == "keyed")
        elif kind == "read":
            await self._read(life, lane)
        else:
            await self._without_effect(life, lane, kind)

    async def _setup(self, lane: SimulatedLane) -> None:
        await self._answered(self._life, lane, Work(make_tables))

    async def _increment(
        self, life: StrandLife, lane: SimulatedLane, *, keyed: bool = False, again: Submission | None = None
    ) -> None:
        story, baton = self._story, self._baton
        self._made += 1
        name = f"{self.name}.{self._made}" if again is None else again.id
        key = again.key if again is not None else name if keyed else None
        log = lane.log
        attempt = Submission(name, life.name, log.manifest.epoch if log is not None else 0, baton.now_s, key)
        story.attempts.append(attempt)
        story.counts["retried by key"] += again is not None

        work = Work(increment(name), key=key, digest=b"increment")
        try:
            value, attempt.answer, error = await self._answered(life, lane, work)
        except asyncio.CancelledError:
            story.counts["cancelled"] += 1
            if key is not None:
                self._shared.unknown.append(attempt)
            raise
        attempt.answered_s = baton.now_s
        if error is not None:
            what = error.what if isinstance(error, InterlockError) else str(error)
            attempt.why = f"{type(error).__name__}: {_PROCESS.sub('another process', what)}"
            if attempt.answer == "unknown" and key is not None:
                self._shared.unknown.append(attempt)
        else:
            assert isinstance(value, int)
            attempt.number = value
        story.tell(baton.now_s, life.name, f"receives: {name} {attempt.answer}, {attempt.number or attempt.why}", name)

    async def _without_effect(self, life: StrandLife, lane: SimulatedLane, kind: str) -> None:
        asked_s = self._baton.now_s
        value, _, error = await self._answered(life, lane, Work(NO_EFFECT[kind]))
        for number, name in cast("list[tuple[int, str | None]]", value or []):
            self._record_observed("read", life, asked_s, number, name)
        self._story.counts["spilled and rolled back"] += isinstance(error, RolledBack)
        if isinstance(error, RefusedByRead):
            self._record_observed("refusal", life, asked_s, error.number, error.name)

    async def _read(self, life: StrandLife, lane: SimulatedLane) -> None:
        asked_s = self._baton.now_s

        try:
            rows = await lane.read(read_state)
        except InterlockError as error:
            self._complain_if_corrupt(life, error)
            self._story.counts["reads refused"] += 1
            return
        for number, name in cast("list[tuple[int, str | None]]", rows):
            self._record_observed("read", life, asked_s, number, name)

    def _record_observed(self, how: str, life: StrandLife, asked_s: float, number: int, name: str | None) -> None:
        now_s = self._baton.now_s
        self._story.observed.append(Observed(how, life.name, asked_s, now_s, number, name))
        self._story.tell(now_s, life.name, f"is shown {number} ({name}) by a {how}", *([name] if name else []))
        self._story.counts[f"{how}s"] += 1

    async def _answered(
        self, life: StrandLife, lane: SimulatedLane, work: Work
    ) -> tuple[object, str, Exception | None]:
        counts = self._story.counts
        try:
            value = await lane.run(work)
        except OutcomeUnknown as error:
            counts["unknown"] += 1
            self._complain_if_corrupt(life, error)
            return None, "unknown", error
        except (UnavailableError, RefusedByRead, RolledBack) as error:
            counts["fenced"] += isinstance(error, Fenced)
            self._complain_if_corrupt(life, error)
            return None, "absent", error
        counts["acknowledged"] += 1
        return value, "acknowledged", None

    def _complain_if_corrupt(self, life: StrandLife, error: Exception) -> None:
        text = str(error)
        if isinstance(error, CorruptionError) or "CorruptionError" in text:
            self._story.complain(f"{life.name} met corruption: {text.splitlines()[0]}", life.name)
        elif "could not be made durable" in text or "upkeep failed" in text:
            self._story.complain(f"{life.name} met something unexpected: {text.splitlines()[0]}", life.name)
        elif not isinstance(error, LaneOwned | UnavailableError | RefusedByRead | RolledBack):
            self._story.complain(f"{life.name} received {type(error).__name__}: {error}", life.name)


class _OpenLane:
    """Holds the open lane of a life, so that it can be dropped after a kill."""

    def __init__(self) -> None:
        self.it: SimulatedLane | None = None


# --- Seed ------------------------------------------------------------------------------------------------------------

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 -- a disk in memory, where there is one; what lies there is removed again.
PROCESSES_MAX = 8


class LaneSimulation:
    """One seed: its machines, its bucket and its story."""

    def __init__(
        self, seed: int, folder: Path, *, processes: int | None = None, conditions_ignored: bool = False
    ) -> None:
        luck = Luck(seed)
        self.baton = Baton()
        self.story = LaneStory(seed)
        self.folder = folder
        self.settings = _settings(luck)
        self.weather = Weather(Luck(luck.number()), conditions_ignored=conditions_ignored)
        self.server = Server(self.baton, Luck(luck.number()), self.weather, self.story)
        self.unknown: list[Submission] = []
        self.owner = ""
        count = luck.count(2, 4)
        self._machines = [
            SimulatedMachine(
                chr(ord("a") + at), self, Luck(luck.number()), lives=luck.count(1, 2), rounds=luck.count(2, 5)
            )
            for at in range(processes or count)
        ]
        # The last process runs where another one ran before it, or on a machine of its own.
        self._last = SimulatedMachine("z", self, Luck(luck.number()), lives=1, rounds=1)
        if luck.often(0.5):
            self._last = luck.one(self._machines)
        self.page_bytes = luck.one((512, 512, 1_024, 4_096))
        self._bounds: list[tuple[ModuleType, str, int]] = [
            (slots, "READ_AHEAD", luck.one((1, 3, 32))),
            (snapshots, "PART_BYTES", luck.one((4_096, 8_192, snapshots.PART_BYTES))),
            (snapshots, "COLLECTED_AT_ONCE", luck.one((2, 100))),
        ]

    def run(self) -> None:
        """Run the seed to its end, and check it."""
        with self._small_world():
            for machine in self._machines:
                self.baton.spawn(StrandLife(machine.name), machine.name, machine.run)
            self.baton.run()
            self._complain_about_strands()
            self.weather.calm()
            if self.story.complaints:
                return
            self.baton.spawn(StrandLife(f"{self._last.name}9"), self._last.name, self._last.finish)
            self.baton.run()
            self._complain_about_strands()
        if not self.story.complaints:
            check(self.story, self.server, self.settings)

    @contextmanager
    def _small_world(self) -> Generator[None]:
        """Small pages, small portions, temporary files in memory: more happens in less time."""
        hook = self._small_pages
        folder, tempfile.tempdir = tempfile.tempdir, str(self.folder)
        bounds = [(module, name, getattr(module, name)) for module, name, _ in self._bounds]
        apsw.connection_hooks.append(hook)
        listen(self._reached)
        _set_bounds(self._bounds)
        try:
            yield
        finally:
            _set_bounds(bounds)
            listen(None)
            apsw.connection_hooks.remove(hook)
            tempfile.tempdir = folder

    def _small_pages(self, connection: apsw.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {self.page_bytes}")

    def _reached(self, point: str) -> None:
        self.story.counts["logs folded"] += point == "log.folded"
        name = self.baton.current.life.name[0]
        machine = next((each for each in self._machines if each.name == name), None)
        if machine is not None:
            machine.reached(point)

    def _complain_about_strands(self) -> None:
        for strand, error in self.baton.crashes:
            self.story.complain(f"the {strand.name} of {strand.life.name} ended with {error!r}", strand.life.name)
        self.baton.crashes.clear()
        for strand in self.baton.stuck:
            self.story.complain(f"the {strand.name} of {strand.life.name} waits for ever", strand.life.name)
            strand.life.killed = True
            self.baton.wake(strand)
        self.baton.run()


def simulate(seed: int, *, processes: int | None = None, conditions_ignored: bool = False) -> Simulated:
    """Run one seed."""
    return summarize(play(seed, processes=processes, conditions_ignored=conditions_ignored))


def play(seed: int, *, processes: int | None = None, conditions_ignored: bool = False) -> LaneStory:
    """Run one seed and return its whole story."""
    disk = str(MEMORY_DISK) if MEMORY_DISK.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="interlock-simulation-", dir=disk))
    try:
        simulation = LaneSimulation(seed, folder, processes=processes, conditions_ignored=conditions_ignored)
        simulation.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return simulation.story


def summarize(story: LaneStory) -> Simulated:
    """Return the result of a story, with the lines about its first complaint."""
    lines: tuple[str, ...] = ()
    if story.complaints:
        lines = tuple(story.text_lines(story.complaints[0][1]))
    return Simulated(
        seed=story.seed,
        complaints=tuple(what for what, _ in story.complaints),
        story=lines,
        counts=dict(story.counts),
        faults=dict(story.faults),
    )


def _set_bounds(bounds: list[tuple[ModuleType, str, int]]) -> None:
    for module, name, value in bounds:
        setattr(module, name, value)


def _settings(luck: Luck) -> LaneSettings:
    return LaneSettings(
        lease_s=luck.one((4.0, 10.0)),
        append_deadline_s=luck.one((2.0, 6.0, 20.0)),
        group_commit_max_batch=luck.one((1, 2, 1_000, 1_000)),
        request_timeout_s=REQUEST_TIMEOUT_S,
        snapshot_bytes_min=luck.one((4_096, 4_096, 16_384, 65_536)),
        snapshots_retained=luck.one((1, 2)),
        retention_s=luck.one((0.0, 0.0, 15.0)),
        idle_s=luck.one((0.0, 1.0, 30.0, 30.0)),
        wal_bytes_max=65_536,
    )


def run_campaign(
    first: int, seeds: int, *, processes: int | None = None, workers: int | None = None, watch: Watcher | None = None
) -> Campaign:
    """Run `seeds` seeds, beginning with `first`. Raises BadUsage for numbers out of range."""
    refuse_numbers(("processes", processes, 1, PROCESSES_MAX))
    return run_seeds(partial(simulate, processes=processes), first, seeds, workers=workers, watch=watch)
