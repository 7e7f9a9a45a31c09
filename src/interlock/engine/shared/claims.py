"""Claims: find due work that no worker holds, and renew the leases of this worker (B6).

A worker asks the store when the next work is due: it reads the heads of two indexes every `poll_s`, sooner when this
process knows of earlier work, and immediately after a hint. Then it claims as much as it has room for. Polling alone is
correct; hints and memory only make it quick.

While the store cannot be reached, the leases of all workers run out although they are alive. So after an outage a
worker leaves the others time to renew their leases before it claims again.

Sections: claims; renewal of leases; signs of life.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

from interlock.clock import Chance
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.path.commit_pipeline import CommitPipeline
from interlock.engine.recovery import ALIVE
from interlock.engine.steps.runner import Runner
from interlock.errors import InterlockError, MovedElsewhere, OutcomeUnknown, UnavailableError
from interlock.redaction import logger_of
from interlock.store.protocol import SharedStore, Stored
from interlock.store.records import Row

log = logger_of("interlock.steps")

CLAIMED_MAX = 500
"""Workflows that one claim takes at most."""

WAITING_MAX = 100
"""Workflows that may be claimed beyond the slots that are free, so that timers fire although all slots are taken."""

TIMERS_MAX = 100
"""Timers that a worker without room claims together."""

GATHER_S = 0.005
"""Seconds for which free slots are gathered before more is claimed."""

GIVE_BACK_S = 5.0
"""Seconds for which a stopping worker tries to give back claims that have not begun. After that its leases run out."""

GIVE_BACK_PAUSE_S = 0.05
"""Seconds between two attempts to give them back."""


class Claiming:
    """The claims of one worker."""

    def __init__(
        self,
        store: SharedStore,
        machines: Mapping[str, BoundMachine],
        pipeline: CommitPipeline,
        runner: Runner,
        *,
        poll_s: float,
        chance: Chance,
    ) -> None:
        self._store = store
        self._machines = list(machines)
        self._bound = machines
        self._unwinding = {name: bound.unwinding() for name, bound in machines.items()}
        self._pipeline = pipeline
        self._runner = runner
        self._owner = pipeline.means.owner
        self._poll_s = poll_s
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._hungry = False
        """Whether something is due for which there was no room."""
        self.looking = False
        self._reached_s = self._loop.time()
        """When the store last answered."""
        self._failed = False
        """Whether it has not answered since."""
        self._quiet_s = self._reached_s
        """Until when nothing is claimed, because the others renew their leases."""
        self._stopped = False
        self._kept_back = False
        """Whether claims could not be given back."""
        self._untaken: dict[str, int] = {}
        """Leases of claimed workflows that cannot be taken up here, until they are given back."""
        self._taking: set[asyncio.Task[int]] = set()
        """Claims on their way to the store, which completes them even if the engine stops meanwhile."""

    left: Callable[[], None]
    """Callback: a workflow may have left the state of an attempt that runs here."""
    elsewhere: Callable[[UnavailableError], bool]
    """Callback: the workflows are at another place."""

    def due(self, time_us: int) -> None:
        """Wake up at that time, or now if it has passed."""
        wait_s = (time_us - self._store.now_us()) / 1_000_000
        if wait_s < self._poll_s:  # The store is asked again before that.
            self._wake_in(wait_s)

    def freed(self) -> None:
        """Wake up soon if work waits for room."""
        if self._hungry or (self._runner.parking and self._runner.parking.ready):
            self._wake_in(GATHER_S)

    async def run(self) -> None:
        """Claim until the engine closes."""
        listening = self._loop.create_task(self._listen())
        try:
            while True:
                self._wake.clear()
                wait_s = self._poll_s * (0.9 + 0.2 * self._chance.fraction())
                self.looking = True
                try:
                    wait_s = min(wait_s, await self._poll())
                    self._reached_s = self._loop.time()
                except (UnavailableError, OutcomeUnknown) as error:
                    log.info("work could not be claimed: %s", error)
                    self._failed = True
                    if isinstance(error, MovedElsewhere):
                        self.elsewhere(error)
                except Exception:
                    log.exception("work could not be claimed; a worker that gave up here would look alive and be dead.")
                self.looking = False
                self._wake_in(wait_s)
                await self._wake.wait()
        finally:
            listening.cancel()
            if self._timer is not None:
                self._timer.cancel()

    async def _poll(self) -> float:
        """Claim due work within the room; return the seconds until the next poll."""
        if self._untaken:
            await self._give_back_untaken()
        pauses = self._pipeline.means.pauses
        if pauses.is_old and await pauses.read(self._store):
            self._runner.requeue()
        due = await self._store.due(self._machines)
        now_s = self._loop.time()
        if self._failed:
            self._failed = False
            if now_s - self._reached_s > self._store.lease_s / 2:
                # Leases may be over: all workers renew theirs before any worker claims.
                self._quiet_s = now_s + self._store.lease_s / 2
        if now_s < self._quiet_s:
            return self._quiet_s - now_s
        self._hungry = False
        await self._claim_parked()
        for machine in self._turn():
            if due.machines.get(machine, due.now_us + 1) > due.now_us or pauses.pauses_machine(machine):
                continue
            room = self._room()
            # Without room only timers are claimed, which need none.
            limit = room if room > 0 else TIMERS_MAX
            claimed = await self._complete(self._take(machine, limit, timers=room <= 0))
            self._hungry = self._hungry or claimed >= room
            if room <= 0:
                await self._claim_undos(machine)
        effects = self._runner.effect_slots
        if due.effects_us is not None and due.effects_us <= due.now_us:
            room = effects.free - len(effects)
            if room > 0:
                room -= await self._complete(self._take_effects(room))
            self._hungry = self._hungry or room <= 0
        if self._hungry and self._room() > 0 and effects.free > len(effects):
            return 0.0
        ahead = [time_us for time_us in (*due.machines.values(), due.effects_us) if time_us and time_us > due.now_us]
        return max(0.0, (min(ahead) - due.now_us) / 1_000_000) if ahead else self._poll_s

    def _turn(self) -> list[str]:
        """Return the machines; each poll begins with another one, so that none takes all the room for ever."""
        self._machines.append(self._machines.pop(0))
        return list(self._machines)

    async def _claim_parked(self) -> None:
        """Take up parked workflows whose dependency can be called."""
        for machine, ids in self._runner.parking.taken():
            await self._complete(self._take(machine, len(ids), ids=ids))

    async def _claim_undos(self, machine: str) -> None:
        """Claim undos while steps take all the room: undos have slots of their own and do not wait for steps (C9)."""
        undos, states = self._runner.places.undos, self._unwinding[machine]
        if states and undos.free > 0:
            await self._complete(self._take(machine, undos.free, states=states))

    async def _take(
        self, machine: str, limit: int, *, timers: bool = False, states: Sequence[str] = (), ids: Sequence[str] = ()
    ) -> int:
        rows = await self._store.claim(
            machine,
            owner=self._owner,
            limit=limit,
            lease_s=self._store.lease_s,
            timers=timers,
            states=states,
            ids=ids,
            refused=self._refused(machine),
        )
        await self._take_up(rows, timers=timers)
        return len(rows)

    async def _take_effects(self, limit: int) -> int:
        claimed = await self._store.claim_effects(
            self._machines,
            owner=self._owner,
            limit=limit,
            lease_s=self._store.lease_s,
            refused=list({each: None for name in self._machines for each in self._refused(name)}),
        )
        for effect in claimed:
            if self._stopped:
                self._runner.unbegun[effect.id] = effect
            else:
                self._runner.take_up_effect(effect)
        return len(claimed)

    async def _complete(self, claim: Coroutine[object, object, int]) -> int:
        """Complete the claim even if the engine stops meanwhile: it has to give it back."""
        taking = self._loop.create_task(claim)
        self._taking.add(taking)
        taking.add_done_callback(self._on_taken)
        return await asyncio.shield(taking)

    def _on_taken(self, taking: asyncio.Task[int]) -> None:
        self._taking.discard(taking)
        error = None if taking.cancelled() else taking.exception()
        if self._stopped and isinstance(error, OutcomeUnknown):
            log.warning("what was claimed while the worker stopped may stay held until its lease ends: %s", error)

    def stop(self) -> None:
        """Begin no more claims, and no attempt of the last ones."""
        self._stopped = True

    async def give_back(self) -> None:
        """Give back claims that have not begun, when the worker stops. Log a warning if `GIVE_BACK_S` is too short.

        It runs before the worker waits for its attempts, and again for what was decided meanwhile.
        """
        if not self._stopped or self._kept_back:
            return
        limit_s = min(GIVE_BACK_S, self._store.lease_s)
        try:
            async with asyncio.timeout(limit_s):
                if self._taking:
                    await asyncio.wait(self._taking)
                self._runner.claimed.update(self._untaken)
                self._untaken.clear()
                if self._runner.unbegun:
                    await self._retry(self._give_back_effects)
                if self._runner.claimed:
                    await self._retry(self._give_back_workflows)
        except TimeoutError:
            self._kept_back = True
            log.warning(
                "%d workflows and %d effects that this worker has claimed and not begun could not be given back in "
                "%g s; other workers take them up when their leases end, in at most %g s.",
                len(self._runner.claimed),
                len(self._runner.unbegun),
                limit_s,
                self._store.lease_s,
            )

    async def _retry(self, give_back: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await give_back()
            except MovedElsewhere:
                return  # Leases of workflows do not go along.
            except InterlockError as error:
                log.info("claims could not be given back, and that is tried again: %s", error)
            else:
                return
            await asyncio.sleep(GIVE_BACK_PAUSE_S)

    async def _give_back_effects(self) -> None:
        await self._store.release_effects(list(self._runner.unbegun), owner=self._owner)
        self._runner.unbegun.clear()

    async def _give_back_workflows(self) -> None:
        """Give back until the store returns none as ours: it skips a row that is being written just then."""
        claimed = self._runner.claimed
        _ = await self._store.release(claimed, owner=self._owner)
        while True:
            for workflow in await self._store.release(claimed, owner=self._owner):
                claimed.pop(workflow, None)  # A renewal may have found out first.
            if not claimed:
                return
            await asyncio.sleep(GIVE_BACK_PAUSE_S)

    async def _give_back_untaken(self) -> None:
        untaken = dict(self._untaken)
        await self._store.release(untaken, owner=self._owner)
        for workflow, lease in untaken.items():
            if self._untaken.get(workflow) == lease:
                del self._untaken[workflow]
            if self._runner.claimed.get(workflow) == lease:
                del self._runner.claimed[workflow]

    def _room(self) -> int:
        # Workflows that wait for a dependency are bounded by its queue, and take no room from others (C8).
        waiting = max(0, len(self._runner.claimed) - sum(map(len, self._runner.places.lines.values())))
        return min(CLAIMED_MAX, max(0, self._runner.slots.free) + WAITING_MAX - waiting)

    def _refused(self, machine: str) -> list[Stored]:
        """Return the versions and states that are left to processes of another version, and what is paused."""
        verdicts = self._bound[machine].verdicts
        left = [Stored(machine, version, state) for (version, state), why in verdicts.items() if why]
        return left + self._pipeline.means.pauses.refused()

    async def _take_up(self, rows: Sequence[Row], *, timers: bool) -> None:
        try:
            await self._pipeline.compare(rows)
        except BaseException:
            # The store keeps them for this worker, which does not know yet whether it may decide on them.
            self._untaken.update({row.id: row.lease for row in rows if self._runner.keep(row)})
            raise
        refused: dict[str, int] = {}
        for row in rows:
            if self._bound[row.machine].refuses(row):
                refused[row.id] = row.lease  # The first of its version and state; from now on they are not claimed.
                continue
            try:
                if self._stopped:
                    self._runner.keep(row)
                    continue
                self._pipeline.learn(row)
                self._runner.take_up(row, timers=timers)
            except Exception as error:  # noqa: BLE001 -- whatever is wrong with one, the others are taken up.
                log.error("workflow %r cannot be taken up, and is left as it is: %s", row.id, error)  # noqa: TRY400
        if refused:
            self._untaken.update(refused)
            await self._give_back_untaken()
            await self._store.hint()

    async def _listen(self) -> None:
        while True:
            try:
                if await self._store.hinted():
                    self.left()
            except Exception:
                log.exception("hints cannot be heard; work is found by looking, and listening is tried again.")
                await asyncio.sleep(self._poll_s)
            self._wake.set()

    def _wake_in(self, wait_s: float) -> None:
        if wait_s <= 0:
            self._wake.set()
            return
        when_s = self._loop.time() + wait_s
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._woken)

    def _woken(self) -> None:
        self._timer = None  # The time does not say whether it has fired: event loops may call a little early.
        self._wake.set()


class LeaseRenewal:
    """Renews this worker's leases when a third of their time is over."""

    def __init__(self, store: SharedStore, pipeline: CommitPipeline, runner: Runner) -> None:
        self._store = store
        self._pipeline = pipeline
        self._runner = runner
        self._owner = pipeline.means.owner
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._hurry = False
        self._giving: set[asyncio.Task[None]] = set()

    def soon(self) -> None:
        """Renew soon: a workflow may have moved on whose attempt runs here."""
        self._hurry = True
        self._wake.set()

    def give_up(self, workflow: str, lease: int) -> None:
        """Release the workflow to others."""
        self._start(self._give_up(workflow, lease))

    def check(self, workflow: str) -> None:
        """Check a workflow after a late result: if it unwinds and waits for this attempt's end, release it."""
        self._start(self._check([workflow]))

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)

    async def _check(self, workflows: Collection[str]) -> None:
        with contextlib.suppress(UnavailableError):
            for row in (await self._store.load(list(workflows))).values():
                if row.holder == self._owner and not self._runner.holds(row.id, row.lease):
                    self._runner.unwinds(row.id, row.lease)

    async def _give_up(self, workflow: str, lease: int) -> None:
        with contextlib.suppress(UnavailableError, OutcomeUnknown):  # The lease ends by itself, a little later.
            await self._store.release({workflow: lease}, owner=self._owner)
            await self._store.hint()

    async def ended(self) -> None:
        """Wait until the pending releases have ended."""
        if self._giving:
            _ = await asyncio.wait(self._giving, timeout=GIVE_BACK_S)

    async def run(self) -> None:
        """Renew until the engine closes."""
        while True:
            timer = self._loop.call_later(self._store.lease_s / 3, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._wake.clear()
            try:
                hurry, self._hurry = self._hurry, False
                await self._renew(self._loop.time() - (0.0 if hurry else self._store.lease_s / 4))
            except (UnavailableError, OutcomeUnknown) as error:
                log.debug("leases could not be renewed: %s", error)
            except Exception:
                log.exception("leases could not be renewed; others may take the work over.")

    async def _renew(self, since_s: float) -> None:
        leases = self._runner.leases_to_renew(since_s)
        if leases:
            lost = await self._store.renew(leases, owner=self._owner, lease_s=self._store.lease_s)
            self._pipeline.forget(lost)
            for workflow in lost:
                self._runner.lose(workflow, leases[workflow])
            if lost:
                await self._check(lost)
        effects = self._runner.effects_to_renew(since_s)
        if effects:
            await self._store.renew_effects(effects, owner=self._owner, lease_s=self._store.lease_s)


# --- Signs of life of workers in the store, which the policies of timers depend on (B9) ------------------------------
# "remaining" does not count the time without a worker, and "restart" begins anew after it. With several workers that
# is the time between the last sign of life of any of them and the first worker that comes back. The sign is one
# small note per machine, written by every worker of a machine that has such timers. A worker that opens and finds a
# fresh sign waits until it changes: then another worker is alive. If it grows older than `SILENT_S`, none is.

SIGN_S = 0.4
"""Seconds between two signs of a worker."""

SILENT_S = 1.6
"""Seconds of silence after which no worker is alive."""

LOOK_S = 0.1


def sign_of(machine: str) -> str:
    """Return the name of the note with a machine's signs of life."""
    return f"{ALIVE}/{machine}"


def gap_sensitive(machines: dict[str, BoundMachine]) -> list[str]:
    """Return the machines with a timer for which the time without a worker matters."""
    return [name for name, bound in machines.items() if any(timer.policy != "deadline" for timer in bound.timers)]


async def gap_begun_us(store: SharedStore, machine: str) -> int | None:
    """Return when a machine's last worker was alive; None if one is alive now."""
    sign = sign_of(machine)
    notes = await store.notes()
    first = notes.get(sign, "0")
    left_s = SILENT_S - (store.now_us() - int(first)) / 1_000_000
    while left_s > 0:
        await asyncio.sleep(LOOK_S)
        left_s -= LOOK_S
        if (await store.notes()).get(sign, "0") != first:
            return None
    # A store that was moved here has the mark of its only engine there.
    return max(int(first), int(notes.get(ALIVE, "0")))


async def show_sign(store: SharedStore, machines: Iterable[str]) -> None:
    """Write the sign of life of this worker for these machines."""
    for machine in machines:
        try:
            await store.note(sign_of(machine), str(store.now_us()))
        except (UnavailableError, OutcomeUnknown) as error:
            log.debug("this worker could not show that it is alive: %s", error)
        except Exception:
            log.exception("this worker could not show that it is alive; it is tried again.")


async def show_signs(store: SharedStore, machines: Sequence[str], every_s: float) -> None:
    """Write the sign of life repeatedly, until the engine closes."""
    while True:
        await show_sign(store, machines)
        await asyncio.sleep(min(SIGN_S, every_s))
