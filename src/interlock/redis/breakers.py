"""The breakers of a cluster (C4): open for one process is open for all, and probes are counted together.

Each process counts failures for itself. It reports the resulting state to Redis, with the generation that it knew. Of
two reports about one generation the first counts; the other process reads the result with its next beat. A probe needs
a permit. Permits are fetched in the background, so a process that wants to probe waits for one more round trip. A
process that dies with its permit delays the others for `reset_s`, as a probe that hangs does.

While Redis is gone every process has its own breaker, which continues from the cluster's state. When Redis is back, or
has lost its data, the process reports its own state, unless others have reported since. A state that a person has
forced meanwhile is reported in any case.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Literal, Protocol, cast

import msgspec

from interlock.clock import Ids
from interlock.redis.connection import Gone, Link
from interlock.redis.scripts import ABANDON, LOOK, PROBE, SAY

MICRO = 1_000_000

Forced = Literal["open", "closed"]


class ClusterBreaker(msgspec.Struct, frozen=True):
    """The state of a breaker in the cluster."""

    opened: bool
    opens_in_s: float
    """Seconds until probes are admitted."""
    forced: Forced | None
    reason: str
    forced_changed: bool = False
    """Whether a person has forced or released it."""


class Here(Protocol):
    """The breaker of this process."""

    def follow(self, state: ClusterBreaker) -> None:
        """Take over the cluster's state."""
        ...

    def stir(self) -> None:
        """Try to probe: a permit has arrived, or it is time to request one."""
        ...

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        """Return whether it is open, in how many seconds probes are admitted, how it is forced, and why."""
        ...


class SharedBreaker:
    """One breaker of the cluster, as this process knows it. Probes and changes may come from any thread."""

    def __init__(self, link: Link, name: str, here: Here, ids: Ids, *, probes: int, reset_s: float) -> None:
        self._link = link
        self._here = here
        root = link.address.key("breaker", name)
        self._keys = (f"{root}:state", f"{root}:probes")
        self._me = f"{socket.gethostname()}:{os.getpid()}/{ids.text()[:8]}"
        self._probes = probes
        self._reset_s = reset_s
        self._ids = ids
        self._life: str = ""
        self._generation = 0
        self._lock = threading.Lock()
        self._permit: Literal["none", "asked", "here"] = "none"
        self._fresh = False
        """Whether the permit has come since the last beat."""
        self._permits = itertools.count(1)
        self._mine = ""
        """The name of the permit that was requested last."""
        self._used: deque[str] = deque()
        """The permits of the probes under way."""
        self._forced_unsent: tuple[Forced | None, str] | None = None
        """A state that a person has forced here, and Redis has not received yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._reporting = asyncio.Lock()
        link.listen(self)

    @property
    def up(self) -> bool:
        """Whether Redis answers: only then the cluster decides."""
        return self._link.up

    # --- events of this process --------------------------------------------------------------------------------------

    def may_probe(self) -> bool:
        """Use the permit for a probe, if there is one; otherwise request one, and call `stir` when it arrives."""
        with self._lock:
            if not self._link.up:
                return True
            if self._permit == "here":
                self._permit = "none"
                self._used.append(self._mine)
                return True
            if self._permit == "asked":
                return False
            self._permit = "asked"
        if not self._start(self._ask_permit):
            self._permit = "none"
        return False

    def announce(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """Report that it has opened here, or again because a probe has failed; or that a probe has closed it."""
        if opened:
            self._reset_s = reset_s
        self._start(lambda: self._report("open" if opened else "closed", reason))

    def forced(self, forced: Forced | None, reason: str) -> None:
        """Report that a person has forced it, or released it."""
        self._forced_unsent = (forced, reason)
        self._start(self._report_forced)

    def probed(self, *, announced: bool) -> None:
        """End a probe. One that reported nothing gives its permit back."""
        with self._lock:
            used = self._used.popleft() if self._used else ""
        if used and not announced:
            self._start(lambda: self._abandon(used))

    # --- events of the cluster ---------------------------------------------------------------------------------------

    async def returned(self) -> None:
        """Take over the cluster's state after Redis has come back."""
        with self._lock:
            self._permit = "none"
        await self._look()

    async def beat(self) -> None:
        """Read the reports of others, return an unused permit, and stir a probe that is due."""
        await self._look()
        unused = self._unused()
        if unused:
            await self._abandon(unused)
        opened, probes_in_s, forced, _ = self._here.standing()
        if opened and probes_in_s <= 0 and forced is None:
            self._here.stir()  # The process with the permit may have died.

    def _unused(self) -> str:
        """Take back a permit that was not used since the previous beat: others may need it."""
        with self._lock:
            if self._permit != "here":
                return ""
            if self._fresh:
                self._fresh = False
                return ""
            self._permit = "none"
            return self._mine

    async def close(self) -> None:
        """Stop reporting. Reports under way are completed, unless Redis does not answer."""
        self._link.ignore(self)
        if self._permit == "here":
            self._start(lambda: self._abandon(self._mine))
        await asyncio.sleep(0)  # A report of this moment has begun by then.
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _look(self) -> None:
        async with self._reporting:
            # Before reading: an automatic report of others does not undo what a person has forced.
            await self._send_forced()
            opened, forced_there = await self._read_cluster()
            opened_here, opens_in_s, forced, reason = self._here.standing()
            # A difference has come about since: while Redis was gone, or by its loss of data, or in this moment.
            if (forced or "") != forced_there:
                await self._send("force", reason, 0.0, forced)
            elif opened_here and not opened:
                await self._send("open", reason, opens_in_s)
            elif opened and not opened_here:
                await self._send("closed", reason, 0.0)

    async def _read_cluster(self) -> tuple[bool, str]:
        """Take over the cluster's state if it is new; return whether it is open there, and how it is forced."""
        answer = cast("list[str]", await self._link.ask(LOOK, self._keys[:1]))
        generation, state, opens_us, forced_there, reason, by, life = answer
        opened = state == "open"
        if int(generation) > self._generation or (life and life != self._life):
            self._life, self._generation = life, int(generation)
            forced = cast("Forced | None", forced_there or None)
            opened_here, _, forced_here, _ = self._here.standing()
            if by == self._me and (opened, forced) == (opened_here, forced_here):
                return opened, forced_there  # It was reported from here.
            full_reason = reason if by == self._me else f"{reason} (said by {by})"
            with self._lock:
                self._permit = "none"
            self._here.follow(ClusterBreaker(opened, int(opens_us) / MICRO, forced, full_reason, forced != forced_here))
        return opened, forced_there

    async def _report(self, what: str, reason: str) -> None:
        async with self._reporting:
            # Many reports may wait here. When one of them has found Redis gone, the others need not try one by one:
            # this process reports its state when Redis is back.
            if self._link.up:
                await self._send(what, reason, self._reset_s)

    async def _report_forced(self) -> None:
        async with self._reporting:
            if self._link.up:
                await self._send_forced()

    async def _send_forced(self) -> None:
        while (owed := self._forced_unsent) is not None:
            forced, reason = owed
            await self._send("force", reason, 0.0, forced)
            if self._forced_unsent is owed:
                self._forced_unsent = None

    async def _send(self, what: str, reason: str, reset_s: float, forced: Forced | None = None) -> None:
        """Report the state, and read the result: others may have been first."""
        how_long, new = str(round(reset_s * MICRO)), self._ids.text()
        values = (what, str(self._generation), how_long, forced or "", reason, self._me, self._life, new)
        await self._link.ask(SAY, self._keys, *values)
        await self._read_cluster()

    async def _ask_permit(self) -> None:
        self._mine = f"{self._me}/{next(self._permits)}"
        values = (str(self._generation), str(self._probes), self._mine, str(round(self._reset_s * MICRO)))
        granted: object = 0
        try:
            granted = await self._link.call(PROBE, self._keys, *values)
        finally:
            with self._lock:
                here = self._permit == "asked" and bool(granted)
                if self._permit == "asked":
                    self._permit, self._fresh = "here" if granted else "none", True
        if here:
            self._here.stir()

    async def _abandon(self, permit: str) -> None:
        await self._link.call(ABANDON, self._keys[1:], permit)

    def _start(self, work: Callable[[], Coroutine[object, object, None]]) -> bool:
        """Run it in the background, in the event loop of the link; return False when Redis is gone."""
        if self._link.up:
            with contextlib.suppress(RuntimeError):  # The loop may have ended since.
                self._link.loop.call_soon_threadsafe(self._begin, work)
                return True
        return False

    def _begin(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        task = self._link.loop.create_task(self._done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _done(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        with contextlib.suppress(Gone):
            await work()
