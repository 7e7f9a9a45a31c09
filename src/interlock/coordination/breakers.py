"""What a cluster knows of a breaker (C4): open for one is open for all, and the probes are those of all together.

Failures are counted by each process for itself. What follows from them is said to Redis, with the generation that was
known: of two who say something about one generation the first is heard, and the other learns with the next beat what
has become of it. A probe needs a permit. Permits are fetched beside everything else, so a process that wants to probe
waits for one round trip more; one that dies with its permit holds up others for `reset_s`, as a probe that hangs does.

While Redis is gone every process has its own breaker, which goes on from where the cluster's was. When it is back, or
has forgotten everything, what is so here is said to it, unless others have said something since. What a person has said
meanwhile is said to it in any case.
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

from interlock.coordination.link import Gone, Link
from interlock.coordination.scripts import ABANDON, LOOK, PROBE, SAY
from interlock.seams import Ids

MICRO = 1_000_000

Forced = Literal["open", "closed"]


class Heard(msgspec.Struct, frozen=True):
    """A breaker as the cluster has it."""

    opened: bool
    opens_in_s: float
    """When probes are admitted."""
    forced: Forced | None
    reason: str
    forced_changed: bool = False
    """A person has said something about it."""


class Here(Protocol):
    """The breaker of this process."""

    def follow(self, heard: Heard) -> None:
        """Be as the cluster's is."""
        ...

    def stir(self) -> None:
        """There is a permit for a probe, or it is time to ask for one."""
        ...

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        """Whether it is open, when probes are admitted, how it is forced, and why."""
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
        """It has come since the last beat."""
        self._permits = itertools.count(1)
        self._mine = ""
        """The name of the permit that was asked for last."""
        self._used: deque[str] = deque()
        """Those of the probes that are under way."""
        self._owed: tuple[Forced | None, str] | None = None
        """What a person has said here, and Redis has not heard yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._saying = asyncio.Lock()
        link.listen(self)

    @property
    def up(self) -> bool:
        """Whether the cluster is asked at all."""
        return self._link.up

    # --- what happens here -------------------------------------------------------------------------------------------

    def may_probe(self) -> bool:
        """Use the permit for a probe, if there is one; otherwise one is asked for, and `stir` says when it is here."""
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

    def opened(self, reset_s: float, reason: str) -> None:
        """It has opened here, or again because a probe has failed."""
        self._reset_s = reset_s
        self._start(lambda: self._say("open", reason))

    def closed(self, reason: str) -> None:
        """A probe has worked here."""
        self._start(lambda: self._say("closed", reason))

    def forced(self, forced: Forced | None, reason: str) -> None:
        """A person holds it, or lets go."""
        self._owed = (forced, reason)
        self._start(self._say_owed)

    def probed(self, *, said: bool) -> None:
        """A probe has ended. One that said nothing gives its permit back."""
        with self._lock:
            used = self._used.popleft() if self._used else ""
        if used and not said:
            self._start(lambda: self._abandon(used))

    # --- what happens elsewhere --------------------------------------------------------------------------------------

    async def returned(self) -> None:
        """Redis is there: be as the cluster is."""
        with self._lock:
            self._permit = "none"
        await self._look()

    async def beat(self) -> None:
        """See what others have said."""
        await self._look()
        unused = self._unused()
        if unused:
            await self._abandon(unused)
        opened, probes_in_s, forced, _ = self._here.standing()
        if opened and probes_in_s <= 0 and forced is None:
            self._here.stir()  # Whoever had the permit may have died with it.

    def _unused(self) -> str:
        """A permit of which nobody has made use since the beat before: others may need it."""
        with self._lock:
            if self._permit != "here":
                return ""
            if self._fresh:
                self._fresh = False
                return ""
            self._permit = "none"
            return self._mine

    async def close(self) -> None:
        """Say nothing more. What was said is said to its end, unless Redis does not answer."""
        self._link.ignore(self)
        if self._permit == "here":
            self._start(lambda: self._abandon(self._mine))
        await asyncio.sleep(0)  # What was said in this moment has begun by then.
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _look(self) -> None:
        async with self._saying:
            # Before anything is heard: what others have said by themselves does not undo what a person has.
            await self._send_owed()
            opened, held = await self._hear()
            opened_here, opens_in_s, forced, reason = self._here.standing()
            # What is so here has come about since: while Redis was gone, or it has forgotten, or in this moment.
            if (forced or "") != held:
                await self._send("force", reason, 0.0, forced)
            elif opened_here and not opened:
                await self._send("open", reason, opens_in_s)
            elif opened and not opened_here:
                await self._send("closed", reason, 0.0)

    async def _hear(self) -> tuple[bool, str]:
        """Be as the cluster is, if there is news; returns whether it is open there, and how it is forced."""
        answer = cast("list[str]", await self._link.ask(LOOK, self._keys[:1]))
        generation, state, opens_us, held, reason, by, life = answer
        opened = state == "open"
        if int(generation) > self._generation or (life and life != self._life):
            self._life, self._generation = life, int(generation)
            forced = cast("Forced | None", held or None)
            opened_here, _, forced_here, _ = self._here.standing()
            if by == self._me and (opened, forced) == (opened_here, forced_here):
                return opened, held  # It was said here.
            told = reason if by == self._me else f"{reason} (said by {by})"
            with self._lock:
                self._permit = "none"
            self._here.follow(Heard(opened, int(opens_us) / MICRO, forced, told, forced != forced_here))
        return opened, held

    async def _say(self, what: str, reason: str) -> None:
        async with self._saying:
            # Many may wait here. When one of them has found Redis gone, the others need not find out one by one: what
            # is so here is said when it is back.
            if self._link.up:
                await self._send(what, reason, self._reset_s)

    async def _say_owed(self) -> None:
        async with self._saying:
            if self._link.up:
                await self._send_owed()

    async def _send_owed(self) -> None:
        while (owed := self._owed) is not None:
            forced, reason = owed
            await self._send("force", reason, 0.0, forced)
            if self._owed is owed:
                self._owed = None

    async def _send(self, what: str, reason: str, reset_s: float, forced: Forced | None = None) -> None:
        """Say it, and hear what has become of it: others may have been first."""
        how_long, new = str(round(reset_s * MICRO)), self._ids.text()
        said = (what, str(self._generation), how_long, forced or "", reason, self._me, self._life, new)
        await self._link.ask(SAY, self._keys, *said)
        await self._hear()

    async def _ask_permit(self) -> None:
        self._mine = f"{self._me}/{next(self._permits)}"
        values = (str(self._generation), str(self._probes), self._mine, str(round(self._reset_s * MICRO)))
        given: object = 0
        try:
            given = await self._link.call(PROBE, self._keys, *values)
        finally:
            with self._lock:
                here = self._permit == "asked" and bool(given)
                if self._permit == "asked":
                    self._permit, self._fresh = "here" if given else "none", True
        if here:
            self._here.stir()

    async def _abandon(self, permit: str) -> None:
        await self._link.call(ABANDON, self._keys[1:], permit)

    def _start(self, work: Callable[[], Coroutine[object, object, None]]) -> bool:
        """Do it beside everything else, in the event loop of the link; False when there is nobody to be told."""
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
