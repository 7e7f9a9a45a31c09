"""Switch of a running engine to the new store after its workflows were moved.

The first task that gets MovedElsewhere, or Fenced from a lane that was taken over, starts the switch; it happens once.
Neither error leaves anything applied: undecided envelopes are kept in order and decided at the new place, while callers
wait. Running attempts are cancelled as when an engine stops. Their reports are applied at the new place before anything
is claimed or recovered there; their runs are owed with the same keys and tokens (G5). A known result is applied once,
unless another worker has taken up the run.

A switch closes the old `EngineParts` and opens new ones, which may be of another kind: a lane has one owner, PostgreSQL
many. It hands over callers, waiters, leases, limits and gauges. The switch is retried until it succeeds. Callers wait
for it at most `WAITED_S`; then they get MovedElsewhere. An idle engine polls its store, so that its waiters learn of a
move.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from interlock.catalog.catalog import ALL, Catalog, workflows_at
from interlock.catalog.catalog_entries import below
from interlock.catalog.open_lane import is_free_again
from interlock.clock import Chance, Clock
from interlock.engine.internals import EngineParts
from interlock.engine.path.commit_pipeline import closed, confirm, stopped
from interlock.engine.path.engine_commands import EffectDone, EffectFailed, Result
from interlock.engine.path.staged_group import Envelope
from interlock.engine.shared.shared_reads import AddCounts
from interlock.errors import (
    CorruptionError,
    Fenced,
    InterlockError,
    LaneOwned,
    MovedElsewhere,
    UnavailableError,
    VersionConflict,
)
from interlock.faultpoints import reach
from interlock.redaction import logger_of
from interlock.store.memory import MemoryStore
from interlock.store.open_store import NAME
from interlock.urls import is_bucket_url, is_lane_url, is_postgres_url, redact_secrets, with_secrets

# --- Route from a home to its workflows ------------------------------------------------------------------------------
# The catalog is a shortcut, and may be outdated: opening a place that was left raises MovedElsewhere with the next
# one. Epochs only grow, also when workflows move back to an earlier place. A chain whose epochs do not grow is
# corrupt: following it could loop, or end at a place that was left.

HOPS_MAX = 32
"""G6: moves followed in a row."""

OpenT = TypeVar("OpenT")


class StoreRoute:
    """The places on the route, up to the last known one: the catalog's entry, then the chain of tombstones."""

    def __init__(self, home: str, machines: Sequence[str] = ()) -> None:
        self._home = home
        self._machines = machines
        self._places = [home]
        self._hops = 0
        self.epoch = 0
        """Epoch of the move that ended at this place; 0 if none is known."""

    @property
    def url(self) -> str:
        """The current place."""
        return self._places[-1]

    @property
    def seen_epoch(self) -> int | None:
        """Epoch of the tombstone that led here, which permits finishing its move; None without one."""
        return self.epoch or None

    @property
    def masked_url(self) -> str:
        """The current place, with secrets masked."""
        return redact_secrets(self.url)

    async def begin(self) -> None:
        """Read the catalog of the home. Raises BadUsage for machines that do not live together."""
        if self._is_home():
            self._places = [self._home, await workflows_at(self._home, self._machines)]

    async def open(self, opens: "Callable[[StoreRoute], Awaitable[OpenT]]") -> OpenT:
        """Open the place, or follow its tombstones. Raises CorruptionError for a chain that does not end."""
        while True:
            try:
                opened = await opens(self)
            except MovedElsewhere as moved:
                self.follow(moved)
            else:
                await self.arrive()
                return opened

    def follow(self, moved: MovedElsewhere) -> None:
        """Go to the tombstone's target. Raises CorruptionError if its epoch is not higher or the chain is too long."""
        self._hops += 1
        if not moved.url or moved.epoch <= self.epoch or self._hops > HOPS_MAX:
            raise CorruptionError(
                f"the workflows at {self.masked_url} (epoch {self.epoch}) are said to have moved to "
                f"{redact_secrets(moved.url) or 'nowhere'} (epoch {moved.epoch}), after {self._hops} moves.",
                why=f"Every move has a higher epoch than the one before, and at most {HOPS_MAX} are followed in a row; "
                "a file or a table may have been put back from a copy that was made before a move.",
                fix="Put the copy that is too old away, and open the workflows at the last of these addresses.",
            ) from moved
        self._places.append(with_secrets(moved.url, *reversed(self._places)))
        self.epoch = moved.epoch

    async def arrive(self) -> None:
        """Reset the count of moves after the place is open, and update the catalog if possible."""
        if self._hops and self._is_home():
            with contextlib.suppress(InterlockError):
                catalog = Catalog(self._home)
                known = await catalog.names("workflows")
                for name in {name if name in known else ALL for name in self._machines or (ALL,)}:
                    await catalog.enter(name, self.url, self.epoch, kind="workflows")
        self._hops = 0
        self._places = self._places[:1] + self._places[-1:]

    def _is_home(self) -> bool:
        return is_lane_url(self._home) or is_bucket_url(self._home) or is_postgres_url(self._home)


# --- Switch ----------------------------------------------------------------------------------------------------------

log = logger_of("interlock.operators")

WAITED_S = 5.0
"""How long a caller waits for the new place. An HTTP client waits twice as long for its answer."""

RETAKEN_S = 30.0
"""How long an engine whose lane was taken over waits for the new owner, which may be a mover."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
"""Pause between two attempts to open the new place."""

LOOK_S, LOOK_AT_BUCKET_S = 1.0, 10.0
"""Seconds between two checks that the workflows are still there. At a bucket a check may have to renew the lease."""

DEAD_LOOKS = 1.5
"""An engine that did not renew its lease for this number of checks is dead."""

PAGE = 1_000


class Follower:
    """Switches one engine to the store that has its workflows. Lives in one event loop."""

    def __init__(
        self,
        parts: EngineParts,
        route: StoreRoute,
        *,
        make: Callable[[StoreRoute], Awaitable[EngineParts]],
        begin: Callable[[EngineParts], Awaitable[None]],
        chance: Chance,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._route = route
        self._make = make
        self._begin = begin
        self.entered: list[Callable[[EngineParts], None]] = []
        """Called with the new parts of the engine after every switch."""
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._switching: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._closed = False
        self._taken_over = False
        """Whether the workflows were not moved, but another process has taken over their lane."""
        self._refusal = ""
        """Why the new place could not be opened, of the latest try."""
        parts.follow = functools.partial(self.notice, parts)
        if not isinstance(parts.store, MemoryStore):
            self._polling = self._loop.create_task(self._poll_store())

    def notice(self, parts: EngineParts, error: UnavailableError) -> bool:
        """Start a switch if these parts are the current ones and none runs; return whether the engine follows."""
        if self._closed:
            return False
        if self._switching is None and parts is self._parts:
            self._parts.pipeline.leave()
            self._switching = self._loop.create_task(self._switch(self._parts, error))
        return True

    async def followed(self, parts: EngineParts, error: UnavailableError) -> bool:
        """Return whether a call that failed at those parts can be repeated. Wait at most `WAITED_S` for a switch."""
        if parts is self._parts and isinstance(error, MovedElsewhere | Fenced):
            self.notice(parts, error)
        switching = self._switching
        if switching is None or self._closed:
            return parts is not self._parts and not self._closed
        if parts.late is not None or not (await asyncio.wait([switching], timeout=WAITED_S))[0]:
            raise parts.late or self._unreached_error()
        return parts is not self._parts

    async def close(self) -> None:
        """Close the engine, also during a switch."""
        self._closed = True
        for task in (self._polling, self._switching):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        parts = self._parts
        await parts.close()
        if parts.parted:
            parts.pipeline.refuse(closed())
            parts.waiters.close(closed())
            await parts.leases.close()
            await parts.own_leases.close()
            await parts.alarms.close()

    # --- the switch --------------------------------------------------------------------------------------------------

    async def _switch(self, old: EngineParts, error: UnavailableError) -> None:
        begun_s, self._taken_over = self._loop.time(), isinstance(error, Fenced)
        log.info("the workflows at %s are elsewhere (%s)", self._route.masked_url, error.code)
        late = self._loop.call_later(WAITED_S, self._fail_callers)
        try:
            if isinstance(error, MovedElsewhere):
                self._route.follow(error)
            await old.leave()
            new = await self._open_new(old, error)
        except Exception as problem:
            log.exception("the workflows cannot be followed, and the engine stops.")
            self._give_up(old, problem)
            return
        finally:
            late.cancel()
        self._hand_over(old, new)
        took_ms = 1_000 * (self._loop.time() - begun_s)
        log.warning(
            "workflows moved to %s, epoch %d, followed in %.0f ms", self._route.masked_url, self._route.epoch, took_ms
        )

    async def _open_new(self, old: EngineParts, error: UnavailableError) -> EngineParts:
        """Open and begin the new parts. Retry until it succeeds or fails with a permanent error."""
        begun_s, pause_s, self._refusal = self._loop.time(), PAUSE_S_MIN, ""
        while True:
            try:
                if isinstance(error, Fenced):
                    await self._check_lane_free(RETAKEN_S - (self._loop.time() - begun_s))
                return await self._open_once(old)
            except MovedElsewhere as further:
                self._route.follow(further)
                continue
            except LaneOwned as owned:
                if isinstance(error, Fenced) and self._loop.time() - begun_s > RETAKEN_S:
                    raise error from owned
                self._note_refusal(old, f"A lane has one owner: {owned.what}")
            except UnavailableError as problem:
                self._note_refusal(old, f"The last try: {problem.what}")
            await asyncio.sleep(pause_s * (0.5 + self._chance.fraction()))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _note_refusal(self, old: EngineParts, why: str) -> None:
        self._refusal = why
        if old.late is not None:
            old.late = self._unreached_error()
        log.info("the workflows cannot be opened at %s yet. %s", self._route.masked_url, why)

    async def _check_lane_free(self, wait_s: float) -> None:
        """Raise LaneOwned while the process that has taken the lane over is alive and has not released it."""
        url = self._route.url
        if is_bucket_url(url) and not await is_free_again(
            below(url, NAME), self._clock, wait_s=wait_s, dead_after_s=DEAD_LOOKS * LOOK_AT_BUCKET_S
        ):
            raise LaneOwned(
                f"another process has taken over the lane of {self._route.masked_url}, "
                "is alive and has not released it."
            )

    async def _open_once(self, old: EngineParts) -> EngineParts:
        new = await self._make(self._route)
        try:
            reach("following.made")
            await self._report(old, new)
            reach("following.reported")
            await self._begin(new)
            await self._route.arrive()
        except BaseException:
            await new.leave()
            raise
        return new

    async def _report(self, old: EngineParts, new: EngineParts) -> None:
        """Apply the reports of the old parts' attempts, before a recovery takes their runs for lost."""
        left = old.pipeline.left
        assert left is not None
        reports = [each for each in left if each.future is None and _is_handed_over(each)]
        left[:] = [each for each in left if each.future is not None]
        _unlease(reports, new)
        answers: Sequence[object] = ()
        try:
            answers = await asyncio.gather(*map(new.pipeline.admit, reports), return_exceptions=True)
        finally:
            for report in reports:
                report.future = None
            # A report that was not applied is sent again: it is the only copy.
            results = [*answers, *[MovedElsewhere("")] * (len(reports) - len(answers))]
            left[:0] = [
                report
                for report, answer in zip(reports, results, strict=True)
                if isinstance(answer, UnavailableError | VersionConflict)
            ]

    def _hand_over(self, old: EngineParts, new: EngineParts) -> None:
        """Hand everything over to the new parts. Nothing awaits here, so no caller is lost between the two."""
        left = old.pipeline.left
        assert left is not None
        new.go_along(old)
        new.follow = functools.partial(self.notice, new)
        add = new.pipeline.add
        old.pipeline.heir = lambda envelope: add(envelope) if _is_handed_over(envelope) else None
        self._parts, self._switching = new, None  # The next move may be noticed immediately.
        for callback in self.entered:
            callback(new)
        _unlease(left, new)
        for envelope in left:
            old.pipeline.heir(envelope)
        left.clear()
        new.keep(self._wake_waiters(new))
        reach("following.handed_over")

    async def _wake_waiters(self, new: EngineParts) -> None:
        """Update the waiters with changes that other engines made at the new place."""
        wanted = list(new.waiters.by_workflow)
        for begin in range(0, len(wanted), PAGE):
            try:
                rows = await new.store.load(wanted[begin : begin + PAGE])
            except UnavailableError as problem:
                log.info("workflows that callers wait for could not be loaded: %s", problem.what)
                return
            for row in rows.values():
                try:
                    new.waiters.moved(new.read(row))
                except InterlockError as problem:
                    log.error("workflow %r, which a caller waits for, cannot be read: %s", row.id, problem)  # noqa: TRY400

    # --- failures ----------------------------------------------------------------------------------------------------

    def _fail_callers(self) -> None:
        """Fail the callers of a switch that takes too long. Nothing of what they asked was applied."""
        late = self._parts.late = self._unreached_error()
        self._parts.pipeline.refuse(late)

    def _unreached_error(self) -> MovedElsewhere:
        error = MovedElsewhere(
            f"the workflows are at {self._route.masked_url} (epoch {self._route.epoch}), "
            f"and could not be opened there for {WAITED_S:g} s.",
            url=self._route.url,
            epoch=self._route.epoch,
        )
        if self._taken_over:
            error.why = "Another process has taken over the lane, and this engine opens it again."
        if self._refusal:
            error.why = f"{error.why} {self._refusal}"
        error.fix = "Retry a little later: the engine keeps trying. Nothing of the request was applied."
        return error

    def _give_up(self, old: EngineParts, problem: Exception) -> None:
        old.pipeline.dead = problem
        old.pipeline.refuse(stopped(problem))
        old.pipeline.left = None
        old.waiters.close(stopped(problem))

    async def _poll_store(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_BUCKET_S if is_bucket_url(self._route.url) else LOOK_S)
            if self._switching is not None:
                continue
            parts = self._parts
            try:
                await confirm(parts.store)
            except (MovedElsewhere, Fenced) as error:
                self.notice(parts, error)
            except InterlockError as error:
                log.debug("the store could not be checked for a move: %s", error)
            except Exception:
                log.exception("the store could not be checked for a move; the engine goes on checking.")


def _unlease(envelopes: Sequence[Envelope], new: EngineParts) -> None:
    """Remove the leases of results for a store with one owner, which identifies attempts by key and token."""
    for envelope in envelopes:
        if isinstance(envelope, Result) and not new.store.shared:
            envelope.lease = 0


def _is_handed_over(envelope: Envelope) -> bool:
    """Return whether an envelope must be handed over. Only awaited calls and reports are; recovery finds the rest."""
    return envelope.future is not None or isinstance(envelope, Result | EffectDone | EffectFailed | AddCounts)
