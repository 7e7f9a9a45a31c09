"""The outlet of a dependency: its breaker, permits, rate and retry budget, shared by the whole process.

There is one outlet per name and process, whichever engines and workflows call through it (C4: never one per request).
Engines may live in different threads, so it has a lock; each user is notified in its own event loop. Virtual clocks
have outlets of their own: a simulation does not open the breakers of the real world.

An outlet without users keeps whether it is open, and forgets failures that had not opened it. In a cluster it asks
`ClusterPeers`, which `engine.shared.shared_redis` implements with Redis; it still decides by itself.
"""

import os
import re
import threading
from collections.abc import Callable
from typing import Literal, Protocol, cast

import msgspec

from interlock.clock import Clock, SystemClock
from interlock.core.policies import (
    CLOSED,
    FIRST_WAVE,
    Breaker,
    Budget,
    Circuit,
    Dependency,
    Phase,
    TokenBucket,
    TokenRate,
    Verdict,
)
from interlock.engine.dependencies.fair_queue import KeyLimits, SharedRate

# --- Retry budget ----------------------------------------------------------------------------------------------------

PARTS = 10
"""The window moves in tenths, so that it is one small list whatever the traffic is."""


class RetryBudget:
    """Counts of calls and retries in one moving window, and whether one more retry is within the budget (C5)."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._width_s = budget.window_s / PARTS
        self._parts = [(0, 0)] * PARTS
        self._at = 0
        self.calls = self.retries = 0

    def allows(self, now_s: float) -> bool:
        """Whether one more retry is within the budget."""
        self._move(now_s)
        return self.budget.allows(calls=self.calls, retries=self.retries)

    def spend(self, now_s: float, *, retry: bool) -> None:
        """Count a call."""
        self._move(now_s)
        at = self._at % PARTS
        calls, retries = self._parts[at]
        self._parts[at] = (calls + 1, retries + retry)
        self.calls += 1
        self.retries += retry

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the window moves: earlier the budget grows only if others call."""
        return self._width_s - now_s % self._width_s

    def _move(self, now_s: float) -> None:
        at = int(now_s / self._width_s)
        if at == self._at:
            return
        for part in range(max(self._at + 1, at - PARTS + 1), at + 1):
            calls, retries = self._parts[part % PARTS]
            self.calls -= calls
            self.retries -= retries
            self._parts[part % PARTS] = (0, 0)
        self._at = max(at, self._at)


# --- Protocol of a cluster -------------------------------------------------------------------------------------------

Forced = Literal["open", "closed"]


class ClusterPeers(Protocol):
    """The other processes that call one dependency. An outlet without a cluster has none."""

    @property
    def up(self) -> bool:
        """Whether the other processes can be reached."""
        ...

    def may_probe(self) -> bool:
        """Whether a probe may be made here; if not, the users are stirred when one may."""
        ...

    def announce(self, *, opened: bool, reset_s: float, reason: str) -> None:
        """Announce that the breaker has opened here, or was closed by a probe."""
        ...

    def probed(self, *, announced: bool) -> None:
        """End a probe; `announced`: its result was sent with `announce`."""
        ...

    def forced(self, forced: Forced | None, reason: str) -> None:
        """Announce that a person has forced the breaker here, or released it."""
        ...

    def token(self, now_s: float, *, take: bool) -> float | None:
        """Return 0.0 for a call within the shared rate, else the seconds to wait; None: there is no shared rate."""
        ...

    def key_token(self, key: str, *, take: bool) -> float | None:
        """Return the same for the rate of a key (E8)."""
        ...

    def return_key_token(self, key: str) -> None:
        """Take back the token of a call that was not made."""
        ...


# --- Reasons of a breaker's changes ----------------------------------------------------------------------------------
# A reason is part of the breaker's view, of the alert, and of the note for the next process. A waiting workflow
# shows only `fact_of` it: a key that may see one workflow may not read the errors of others.

Outcome = Literal["done", "failed", "refused", "abandoned"]

_QUOTED = re.compile(r"(?s)([^:]*, the last|its probe failed): (?:([\w.-]{1,60})(?=:|$))?.*")

WHY_CHARACTERS_MAX = 200
"""Characters kept of the error that opened a breaker."""


def why_changed(breaker: Breaker, circuit: Circuit, admitted: Verdict, outcome: Outcome, why: str) -> str:
    """Return why the breaker changed to this circuit."""
    if not circuit.opened:
        return "a probe has worked"
    by_business = breaker.business_failures is not None and circuit.business >= breaker.business_failures
    if admitted != "call":
        answered = outcome == "done" or (outcome == "refused" and not by_business)
        return "its probe was too slow" if answered else f"its probe failed: {why}"
    if by_business:
        return f"{_in_a_row(circuit.business, 'business error')}, the last: {why}"
    if outcome != "failed":
        return "calls are too slow"
    if breaker.failure_rate is not None:
        return f"at least {breaker.failure_rate:.0%} of the last calls failed, the last: {why}"
    return f"{_in_a_row(circuit.failures, 'failure')}, the last: {why}"


def fact_of(reason: str) -> str:
    """Return the reason up to the class of the error. Its text may contain another customer's data."""
    found = _QUOTED.match(reason)
    return reason if found is None else f"{found[1]}: {found[2]}" if found[2] else found[1]


def brief(why: str) -> str:
    """Return the text in one line, shortened and printable: every waiting workflow shows it."""
    text = " ".join(why.split())
    text = text if len(text) <= WHY_CHARACTERS_MAX else text[: WHY_CHARACTERS_MAX - 1] + "…"
    return "".join(each if each.isprintable() else "�" for each in text)


def _in_a_row(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s in a row"


# --- Outlet ----------------------------------------------------------------------------------------------------------

Kind = Literal["first", "retry", "undo"]

BURST_S = 0.1
"""The seconds of a rate that may come as one burst."""

PERMIT_S = 0.5
"""The seconds after which a probe asks the cluster again for its permit, without a notification."""

UNDO_SHARE = 5
"""Undos have permits of their own: one for this number of permits for calls, at least one (C9)."""


class BreakerTransition(msgspec.Struct, frozen=True):
    """A change of a breaker."""

    dependency: str
    before: Phase
    after: Phase
    reason: str
    forced: Forced | None
    by_hand: bool = False
    """Whether a person forced the change."""


class User(Protocol):
    """An engine that uses an outlet."""

    def stir(self) -> None:
        """Try again what was refused. Called from any thread."""
        ...

    def changed(self, change: BreakerTransition) -> None:
        """Handle a change of the breaker. Called from any thread."""
        ...

    def freed(self, key: str) -> None:
        """Call what waits for a call of this key to end. Called from any thread."""
        ...


class Outlet:
    """One dependency, as this process uses it."""

    def __init__(self, dependency: Dependency, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._users: list[User] = []
        self.circuit: Circuit = CLOSED
        self.forced: Forced | None = None
        self.reason = ""
        """Why the breaker is in its phase, for people."""
        self.since_s = clock.wall_s()
        """When the phase began, in wall-clock seconds."""
        self.under_way = self.undos_under_way = 0
        self._last_phase: Phase = "closed"
        self.keys = KeyLimits(None, None)
        """The calls and limits of each key of a `per=` (E8)."""
        self.used = False
        self.others: ClusterPeers | None = None
        self.declared = dependency
        self._declare(dependency)

    def _declare(self, dependency: Dependency) -> None:
        self.declared = dependency
        self.concurrency_max = dependency.concurrency_max
        self.breaker = dependency.breaker
        self._spending = RetryBudget(Budget(share=dependency.budget))
        self._limit_rate(dependency.rate_per_s)
        keys = KeyLimits(dependency.per_concurrency_max, dependency.per_rate_per_s)
        keys.go_along(self.keys)
        self.keys = keys

    def declare(self, dependency: Dependency) -> None:
        """Apply another engine's declaration of the dependency: the last one counts."""
        with self._lock:
            if dependency != self.declared:
                self._declare(dependency)
        self.stir()

    def _limit_rate(self, rate_per_s: float | None) -> None:
        self.rate: TokenRate | None = None
        self._bucket = TokenBucket(0.0, 0.0)
        if rate_per_s is not None:
            self.rate = TokenRate(rate_per_s=rate_per_s, burst=max(1.0, rate_per_s * BURST_S))
            self._bucket = self.rate.full(self._clock.monotonic_s())

    # --- calls -------------------------------------------------------------------------------------------------------

    def ask(self, kind: Kind) -> Verdict:
        """Decide whether a call may be made now. Give back anything but "wait" with `leave`."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            circuit, verdict = self._preview(kind, now_s)
            if verdict == "wait" or (verdict == "probe" and self.others is not None and not self.others.may_probe()):
                return "wait"
            if not self._token(now_s):
                if verdict == "probe" and self.others is not None:
                    self.others.probed(announced=False)  # Others may use its permit.
                return "wait"
            self.circuit = circuit
            if kind == "undo":
                self.undos_under_way += 1
            else:
                self.under_way += 1
            self.used = True
            self._spending.spend(now_s, retry=kind == "retry")
        if verdict == "probe":
            self._publish("a probe is made")
        return verdict

    def leave(
        self,
        kind: Kind,
        admitted: Verdict,
        outcome: Outcome,
        took_s: float = 0.0,
        why: str = "",
        *,
        reached: bool = True,
        stays: bool = False,
    ) -> None:
        """End a call. One that `stays` is counted as under way until `vacate`, because its thread goes on.

        Without having `reached` the dependency, neither success nor refusal is its answer.
        """
        if not reached and (outcome == "done" or (outcome == "refused" and self.breaker.business_failures is None)):
            outcome = "abandoned"
        now_s = self._clock.monotonic_s()
        with self._lock:
            if stays:
                pass
            elif kind == "undo":
                self.undos_under_way -= 1
            else:
                self.under_way -= 1
            breaker, circuit = self.breaker, self.circuit
            if outcome == "done":
                after = breaker.succeeded(circuit, now_s, took_s=took_s, admitted=admitted)
            elif outcome == "failed":
                after = breaker.failed(circuit, now_s, took_s=took_s, admitted=admitted)
            elif outcome == "refused":
                after = breaker.refused(circuit, now_s, took_s=took_s, admitted=admitted)
            else:
                after = breaker.abandoned(circuit, admitted=admitted)
            if after.wave >= self.concurrency_max:
                after = msgspec.structs.replace(after, wave=0)
            self.circuit = after
        changed = after.opened != circuit.opened or after.retry_at_s != circuit.retry_at_s
        if changed:
            reason = why_changed(breaker, after, admitted, outcome, brief(why))
            if self.others is not None:
                self.others.announce(opened=after.opened, reset_s=breaker.reset_s, reason=reason)
            self._publish(reason)
        if admitted == "probe" and self.others is not None:
            self.others.probed(announced=changed)
        self.stir()

    def key_wait_s(self, key: str) -> float:
        """Return 0.0 if the limits of the key admit a call, else the seconds until they do, or infinity (E8)."""
        with self._lock:
            return self.keys.wait_s(key, self._clock.monotonic_s(), self._shared_rate)

    def take_key(self, key: str) -> bool:
        """Count a call of this key; return False if a limit of the key forbids it. Give it back with `give_key`."""
        with self._lock:
            return self.keys.take(key, self._clock.monotonic_s(), self._shared_rate)

    def give_key(self, key: str, *, unused: bool = False) -> None:
        """End a call of this key, or give back one that was not made."""
        with self._lock:
            self.keys.give_back(key, unused=unused)
            if unused and self.others is not None and self.keys.rate is not None:
                self.others.return_key_token(key)
        self.free_key(key)

    def free_key(self, key: str) -> None:
        """Notify all users that a call of this key may be admitted now."""
        for user in self._users:
            user.freed(key)

    @property
    def _shared_rate(self) -> SharedRate | None:
        return None if self.others is None else self.others.key_token

    def vacate(self, kind: Kind) -> None:
        """The thread of a call that stayed has ended. From any thread."""
        with self._lock:
            if kind == "undo":
                self.undos_under_way -= 1
            else:
                self.under_way -= 1
        self.stir()

    def _preview(self, kind: Kind, now_s: float) -> tuple[Circuit, Verdict]:
        """Return the circuit and the verdict of a call made now. Takes neither permit nor token."""
        undo = kind == "undo"
        waits: tuple[Circuit, Verdict] = (self.circuit, "wait")
        if self.forced == "open" or not self._room(undo=undo):
            return waits
        if kind == "retry" and not self._spending.allows(now_s):
            return waits
        circuit = self.circuit
        verdict: Verdict = "call"
        if self.forced is None:
            under_way = self._wave_calls(undo=undo)
            circuit, verdict = self.breaker.admit(circuit, now_s, under_way=under_way, undo=undo)
        # A call that the breaker stops takes no token, and the other way round.
        if verdict != "wait" and self._token_in_s(now_s):
            return waits
        return circuit, verdict

    def _wave_calls(self, *, undo: bool) -> int:
        """Count the calls of a wave. Undos have permits of their own: they do not wait for calls that hang."""
        return self.undos_under_way if undo else self.under_way + self.undos_under_way

    def _room(self, *, undo: bool) -> bool:
        return self.undos_under_way < self._undos_max if undo else self.under_way < self.concurrency_max

    @property
    def _undos_max(self) -> int:
        return max(1, self.concurrency_max // UNDO_SHARE)

    def _token(self, now_s: float) -> bool:
        if self.rate is None:
            return True
        wait_s = None if self.others is None else self.others.token(now_s, take=True)
        if wait_s is None:
            self._bucket, wait_s = self.rate.take(self._bucket, now_s)
        return not wait_s

    def _token_in_s(self, now_s: float) -> float:
        """Return the seconds that the rate alone would make a call wait."""
        if self.rate is None:
            return 0.0
        wait_s = None if self.others is None else self.others.token(now_s, take=False)
        return self.rate.take(self._bucket, now_s)[1] if wait_s is None else wait_s

    # --- phase, reasons and limits -----------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """The state of the breaker now."""
        return self.forced or self.circuit.phase(self._clock.monotonic_s())

    @property
    def minds_the_time(self) -> bool:
        """Whether time alone may admit a waiting call."""
        return self.rate is not None or self.circuit.opened

    def spent(self, kind: Kind) -> bool:
        """Whether the retry budget refuses a call of this kind."""
        if kind != "retry":
            return False
        with self._lock:
            return not self._spending.allows(self._clock.monotonic_s())

    def retry_in_s(self, kind: Kind) -> float | None:
        """Return the seconds until time alone may admit a refused call; None: another call must end first.

        Returns 0.0 if its time has come since it was refused: nothing else would wake it.
        """
        now_s = self._clock.monotonic_s()
        waits = list[float]()
        if self.forced is None and self.circuit.opened and self.circuit.retry_at_s > now_s:
            waits.append(self.circuit.retry_at_s - now_s)
        elif self.forced is None and self.circuit.opened and self.circuit.probes >= self.breaker.probes:
            waits.append(max(0.0, self.breaker.probes_again_s(self.circuit) - now_s))
        with self._lock:
            wait_s = self._token_in_s(now_s)
            verdict = self._preview(kind, now_s)[1]
        if verdict == "probe" and self.others is not None and self.others.up:
            # The cluster's permit stirs a probe that has asked; its time may have come since.
            waits.append(PERMIT_S)
        elif verdict != "wait":
            return 0.0
        if wait_s:
            waits.append(wait_s)
        if self.spent(kind):
            waits.append(self._spending.left_s(now_s))
        return max(waits) if waits else None

    def why(self, kind: Kind) -> str | None:
        """Return why a call of this kind would wait now, for people; None if it would not."""
        name = self.declared.name
        if self.forced == "open":
            return f"the breaker of {name!r} was opened by hand"
        now_s = self._clock.monotonic_s()
        phase = "closed" if self.forced else self.circuit.phase(now_s)
        if phase == "open":
            fact, left_s = fact_of(self.reason), self.circuit.retry_at_s - now_s
            return f"the breaker of {name!r} is open ({fact}); probes in {left_s:.1f} s"
        if phase == "half_open":
            return f"the breaker of {name!r} is half-open and waits for its probe"
        return self._why_limited(kind, now_s)

    def _why_limited(self, kind: Kind, now_s: float) -> str | None:
        name = self.declared.name
        if self.forced is None and 0 < self.circuit.wave <= self._wave_calls(undo=kind == "undo"):
            return f"{name!r} has just recovered, and calls come back in waves ({self.circuit.wave} concurrently)"
        if not self._room(undo=kind == "undo"):
            places = f"{self._undos_max} places for undos" if kind == "undo" else f"{self.concurrency_max} places"
            return f"all {places} of {name!r} are taken (concurrency_max)"
        if self.rate is not None and self._token_in_s(now_s):
            return f"{name!r} is called at most {self.rate.rate_per_s:g} times per second (rate_per_s)"
        return f"the retry budget of {name!r} is spent" if self.spent(kind) else None

    def force(self, forced: Forced | None, reason: str) -> None:
        """Hold the breaker open or closed; None lets it decide by itself again, from closed.

        Calls that waited while it was held open come back in waves, as after a probe.
        """
        with self._lock:
            if forced is None and self.forced is not None:
                self.circuit = Circuit(wave=FIRST_WAVE) if self.forced == "open" else CLOSED
            self.forced = forced
        if self.others is not None:
            self.others.forced(forced, reason)
        self._publish(reason, by_hand=True)
        self.stir()

    def follow(
        self, turned: Callable[[Circuit], Circuit], forced: Forced | None, reason: str, *, by_hand: bool
    ) -> None:
        """Adopt the state of the cluster's breaker."""
        with self._lock:
            self.circuit, self.forced = turned(self.circuit), forced
        self._publish(reason, by_hand=by_hand)
        self.stir()

    def limit(self, *, concurrency_max: int, rate_per_s: float | None) -> None:
        """Replace the limits."""
        with self._lock:
            self.concurrency_max = concurrency_max
            if rate_per_s != (None if self.rate is None else self.rate.rate_per_s):
                self._limit_rate(rate_per_s)
        self.stir()

    def remember(self, phase: str, forced: Forced | None, reason: str, since_s: float | None = None) -> bool:
        """Restore the note of an earlier process. An open breaker is probed before all waiting calls start.

        Returns False and changes nothing if this process already has newer knowledge.
        """
        with self._lock:
            if self.used or self.forced is not None or self.circuit is not CLOSED:
                return False
            self.forced = forced
            if phase != "closed":
                self.circuit = Circuit(opened=True, retry_at_s=self._clock.monotonic_s())
            self.reason = reason
            if since_s is not None:
                self.since_s = since_s
            self._last_phase = self.phase
            return True

    # --- users -------------------------------------------------------------------------------------------------------

    def join(self, user: User) -> None:
        """Register an engine as a user."""
        with self._lock:
            self._users = [*self._users, user]

    def part(self, user: User) -> None:
        """Remove a user. Without users, failures that did not open the breaker are forgotten."""
        with self._lock:
            self._users = [each for each in self._users if each is not user]
            if not self._users and not self.circuit.opened:
                self.circuit = CLOSED

    @property
    def unused(self) -> bool:
        """Whether no engine uses it."""
        return not self._users

    def stir(self) -> None:
        """Notify all users that a refused call may be admitted now."""
        with self._lock:
            users = self._users
            if len(users) > 1:
                self._users = [*users[1:], users[0]]  # Each is the first in its turn.
        for user in users:
            user.stir()

    def _publish(self, reason: str, *, by_hand: bool = False) -> None:
        before, after = self._last_phase, self.phase
        if before == after and not by_hand:
            return
        self._last_phase, self.reason, self.since_s = after, reason, self._clock.wall_s()
        change = BreakerTransition(self.declared.name, before, after, reason, self.forced, by_hand)
        for user in self._users:
            user.changed(change)


_PROCESS: dict[str, Outlet] = {}
_OWN = "_interlock_outlets"
"""The attribute of a virtual clock that holds its outlets: they live as long as the clock."""
_registry = threading.Lock()


def outlet_of(name: str, clock: Clock, declared: Dependency | None = None) -> Outlet:
    """Return the outlet of that name.

    `declared` describes the dependency. Without it, the declaration of its other users counts, or the defaults.
    """
    with _registry:
        outlets = _outlets_of(clock)
        outlet = outlets.get(name)
        if outlet is None:
            outlet = outlets[name] = Outlet(declared or Dependency(name), clock)
            return outlet
    if declared is not None or outlet.unused:
        outlet.declare(declared or Dependency(name))
    return outlet


def _outlets_of(clock: Clock) -> dict[str, Outlet]:
    carried = cast("dict[str, object] | None", getattr(clock, "__dict__", None))
    if isinstance(clock, SystemClock) or carried is None:
        return _PROCESS  # A clock that cannot carry anything is taken for the real one.
    return cast("dict[str, Outlet]", carried.setdefault(_OWN, {}))


def forget_outlets(clock: Clock | None = None) -> None:
    """Drop all outlets of the process, or of that clock: every breaker begins closed.

    For tests, and for simulations in which a process dies. Open engines keep their outlets.
    """
    with _registry:
        (_PROCESS if clock is None else _outlets_of(clock)).clear()


os.register_at_fork(after_in_child=_PROCESS.clear)
