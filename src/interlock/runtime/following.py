"""An open engine whose workflows are moved goes along, by itself: one switch, whoever notices first.

Whatever a store answers with MovedElsewhere has not happened, and so has a group of a lane that was taken over
(Fenced). So nobody has to be told: what was not decided at the old place is kept in its order and decided at the new
one, callers wait on. Attempts that run are cancelled as when an engine stops. What they report is brought before
anything is claimed or recovered at the new place, where their runs are owed with the same keys and tokens (G5): a
result that is known is applied there, once, unless somebody else has taken the run up.

A switch ends the old inside, opens the new one (which may be of another kind: a lane has one owner, PostgreSQL many),
and hands over: callers, those who wait, leases, limits and figures. It is tried until it works. Callers do not wait
for that longer than `WAITED_S`; then they are told to come back. An engine that does nothing looks at its store now
and then, for whoever waits here for a workflow that others move there.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence

from interlock.catalog.defaults import below
from interlock.catalog.fenced import is_free_again
from interlock.errors import Fenced, InterlockError, LaneOwned, MovedElsewhere, UnavailableError, VersionConflict
from interlock.lanes.objects.addresses import is_bucket
from interlock.redaction import logger_of
from interlock.runtime.effects import EffectDone, EffectFailed
from interlock.runtime.inside import Inside
from interlock.runtime.pipeline import Envelope
from interlock.runtime.points import reach
from interlock.runtime.presence import confirm
from interlock.runtime.reports import Result
from interlock.runtime.sharing.counting import AddCounts
from interlock.runtime.stopping import closed, stopped
from interlock.runtime.trail import Trail
from interlock.seams import Chance, Clock
from interlock.store.memory import MemoryStore
from interlock.store.opening import NAME

log = logger_of("interlock.operators")

WAITED_S = 5.0
"""How long a caller waits for the new place; a client over HTTP waits twice as long for its answer."""

RETAKEN_S = 30.0
"""How long an engine whose lane was taken over waits for the one who did it, who may be moving the workflows."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
"""Between two attempts to open the new place."""

LOOK_S, LOOK_AT_BUCKET_S = 1.0, 10.0
"""How often an engine looks whether its workflows are still there. At a bucket a look may have to renew the lease."""

DEAD_LOOKS = 1.5
"""An engine that did not renew its lease for so many looks is dead."""

PAGE = 1_000


class Follower:
    """Keeps one engine where its workflows are. Lives in one event loop."""

    def __init__(
        self,
        inside: Inside,
        trail: Trail,
        *,
        make: Callable[[Trail], Awaitable[Inside]],
        begin: Callable[[Inside], Awaitable[None]],
        chance: Chance,
        clock: Clock,
    ) -> None:
        self._inside = inside
        self._clock = clock
        self._trail = trail
        self._make = make
        self._begin = begin
        self.entered: list[Callable[[Inside], None]] = []
        """Told of every inside that the engine has from then on."""
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._switching: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._closed = False
        self._taken_over = False
        """The workflows are where they were, in a lane that somebody else has taken meanwhile."""
        self._owned: LaneOwned | None = None
        """Why the new place is not to be had, where that is a lane of somebody else."""
        inside.follow = functools.partial(self.notice, inside)
        if not isinstance(inside.store, MemoryStore):
            self._looking = self._loop.create_task(self._look())

    def notice(self, inside: Inside, error: UnavailableError) -> bool:
        """The store of an inside says that the workflows are elsewhere; whether they are followed. Once is enough."""
        if self._closed:
            return False
        if self._switching is None and inside is self._inside:
            self._inside.pipeline.leave()
            self._switching = self._loop.create_task(self._switch(self._inside, error))
        return True

    async def followed(self, inside: Inside, error: UnavailableError) -> bool:
        """Whether a call that ended like this at that inside is worth repeating. Waits for the switch, but not long."""
        if inside is self._inside and isinstance(error, MovedElsewhere | Fenced):
            self.notice(inside, error)
        switching = self._switching
        if switching is None or self._closed:
            return inside is not self._inside and not self._closed
        if inside.late is not None or not (await asyncio.wait([switching], timeout=WAITED_S))[0]:
            raise inside.late or self._not_reached()
        return inside is not self._inside

    async def close(self) -> None:
        """Close the engine, wherever it is."""
        self._closed = True
        for task in (self._looking, self._switching):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        inside = self._inside
        await inside.close()
        if inside.parted:
            inside.pipeline.refuse(closed())
            inside.waiters.close(closed())
            await inside.leases.close()
            await inside.own_leases.close()
            await inside.alarms.close()

    # --- the switch --------------------------------------------------------------------------------------------------

    async def _switch(self, old: Inside, error: UnavailableError) -> None:
        begun_s, self._taken_over = self._loop.time(), isinstance(error, Fenced)
        log.info("the workflows at %s are elsewhere (%s)", self._trail.shown, error.code)
        late = self._loop.call_later(WAITED_S, self._refuse)
        try:
            if isinstance(error, MovedElsewhere):
                self._trail.follow(error)
            await old.leave()
            new = await self._opened(old, error)
        except Exception as problem:
            log.exception("the workflows cannot be followed, and the engine stops.")
            self._give_up(old, problem)
            return
        finally:
            late.cancel()
        self._hand_over(old, new)
        took_ms = 1_000 * (self._loop.time() - begun_s)
        log.warning(
            "workflows moved to %s, epoch %d, followed in %.0f ms", self._trail.shown, self._trail.epoch, took_ms
        )

    async def _opened(self, old: Inside, error: UnavailableError) -> Inside:
        """The new inside, begun. Tries until it is there, or until somebody says that it never will be."""
        begun_s, pause_s, self._owned = self._loop.time(), PAUSE_S_MIN, None
        while True:
            try:
                if isinstance(error, Fenced):
                    await self._refuse_held(RETAKEN_S - (self._loop.time() - begun_s))
                return await self._opened_once(old)
            except MovedElsewhere as further:
                self._trail.follow(further)
                continue
            except LaneOwned as owned:
                if isinstance(error, Fenced) and self._loop.time() - begun_s > RETAKEN_S:
                    raise error from owned
                self._owned = owned
                if old.late is not None:
                    old.late = self._not_reached()  # Now it is known who has it.
                log.info("the workflows are not to be had at %s yet: %s", self._trail.shown, owned.what)
            except UnavailableError as problem:
                log.info("the workflows are not to be had at %s yet: %s", self._trail.shown, problem.what)
            await asyncio.sleep(pause_s * (0.5 + self._chance.fraction()))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _refuse_held(self, wait_s: float) -> None:
        """Raise LaneOwned while the process that has taken the lane over is alive and has not given it up."""
        url = self._trail.url
        if is_bucket(url) and not await is_free_again(
            below(url, NAME), self._clock, wait_s=wait_s, dead_after_s=DEAD_LOOKS * LOOK_AT_BUCKET_S
        ):
            raise LaneOwned(
                f"another process has taken over the lane of {self._trail.shown}, is alive and has not given it up."
            )

    async def _opened_once(self, old: Inside) -> Inside:
        new = await self._make(self._trail)
        try:
            reach("following.made")
            await self._report(old, new)
            reach("following.reported")
            await self._begin(new)
            await self._trail.arrive()
        except BaseException:
            await new.leave()
            raise
        return new

    async def _report(self, old: Inside, new: Inside) -> None:
        """Bring what attempts of the old inside have said, before anybody takes their runs for ended without a word."""
        left = old.pipeline.left
        assert left is not None
        reports = [each for each in left if each.future is None and _goes_along(each)]
        left[:] = [each for each in left if each.future is not None]
        _unlease(reports, new)
        answers: Sequence[object] = ()
        try:
            answers = await asyncio.gather(*map(new.pipeline.admit, reports), return_exceptions=True)
        finally:
            for report in reports:
                report.future = None
            # One that was not taken is brought again: nobody else knows what it says.
            told = [*answers, *[MovedElsewhere("")] * (len(reports) - len(answers))]
            left[:0] = [
                report
                for report, answer in zip(reports, told, strict=True)
                if isinstance(answer, UnavailableError | VersionConflict)
            ]

    def _hand_over(self, old: Inside, new: Inside) -> None:
        """From here on everything is at the new place. Nothing waits in between, so that nobody is forgotten."""
        left = old.pipeline.left
        assert left is not None
        new.go_along(old)
        new.follow = functools.partial(self.notice, new)
        add = new.pipeline.add
        old.pipeline.heir = lambda envelope: add(envelope) if _goes_along(envelope) else None
        self._inside, self._switching = new, None  # The next move may be noticed at once.
        for tell in self.entered:
            tell(new)
        _unlease(left, new)
        for envelope in left:
            old.pipeline.heir(envelope)
        left.clear()
        new.keep(self._wake(new))
        reach("following.handed_over")

    async def _wake(self, new: Inside) -> None:
        """Those who wait may have missed something that somebody else did at the new place."""
        wanted = new.waiters.workflows
        for begin in range(0, len(wanted), PAGE):
            try:
                rows = await new.store.load(wanted[begin : begin + PAGE])
            except UnavailableError as problem:
                log.info("workflows that are waited for could not be looked at: %s", problem.what)
                return
            for row in rows.values():
                try:
                    new.waiters.moved(new.read(row))
                except InterlockError as problem:
                    log.error("workflow %r is waited for and cannot be read: %s", row.id, problem)  # noqa: TRY400

    # --- what is not possible ----------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        """It takes too long: callers need not wait, for nothing of what they asked has happened."""
        late = self._inside.late = self._not_reached()
        self._inside.pipeline.refuse(late)

    def _not_reached(self) -> MovedElsewhere:
        error = MovedElsewhere(
            f"the workflows are at {self._trail.shown} (epoch {self._trail.epoch}), and could not be had there for "
            f"{WAITED_S:g} s.",
            url=self._trail.url,
            epoch=self._trail.epoch,
        )
        if self._taken_over:
            error.why = "Somebody else has taken the lane over, and this engine opens it again."
        if self._owned is not None:
            error.why = f"A lane has one owner: {self._owned.what}"
        error.fix = "Come back a little later: the engine goes on trying. Nothing of what was asked has happened."
        return error

    def _give_up(self, old: Inside, problem: Exception) -> None:
        old.pipeline.dead = problem
        old.pipeline.refuse(stopped(problem))
        old.pipeline.left = None
        old.waiters.close(stopped(problem))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_BUCKET_S if is_bucket(self._trail.url) else LOOK_S)
            if self._switching is not None:
                continue
            inside = self._inside
            try:
                await confirm(inside.store)
            except (MovedElsewhere, Fenced) as error:
                self.notice(inside, error)
            except InterlockError as error:
                log.debug("the store could not be looked at: %s", error)
            except Exception:
                log.exception("the store could not be looked at; whoever gave up here would never learn of a move.")


def _unlease(envelopes: Sequence[Envelope], new: Inside) -> None:
    """A store with one owner keeps no leases of workflows: there an attempt is told by its key and its own token."""
    for envelope in envelopes:
        if isinstance(envelope, Result) and not new.store.shared:
            envelope.lease = 0


def _goes_along(envelope: Envelope) -> bool:
    """What somebody waits for, and what attempts have said. The rest is found at the new place by itself."""
    return envelope.future is not None or isinstance(envelope, Result | EffectDone | EffectFailed | AddCounts)
