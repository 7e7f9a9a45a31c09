"""Workers of `interlock chaos` that are broken on purpose, each in one way. The command must say in which.

A worker loads one of these by its name: INTERLOCK_CHAOS_SABOTAGE=tests.chaos.command.sabotage:no_fencing.
"""

from interlock.core.policies import Breaker, Circuit, Verdict
from interlock.engine.dependencies.outlet import Outlet
from interlock.engine.path.engine_commands import Late, Returned
from interlock.engine.path.staged_group import Group
from interlock.errors import UnavailableError
from interlock.redis.shared_leases import SharedLeases
from interlock.store.protocol import Granted, Held


def no_fencing() -> None:
    """A result is applied to whatever step runs now, also when it is of a lease that was lost."""

    def decide(self: Returned, group: Group) -> object:
        found = group.stage(self.workflow)
        if found is None or found.live.owed.run is None:
            return Late(self.workflow, self.run.key)
        return self.apply(found, group)

    Returned.decide = decide  # type: ignore[method-assign, assignment]


def breaker_never_closes() -> None:
    """A probe that works says nothing to a breaker that is open."""
    succeeded = Breaker.succeeded

    def deaf(self: Breaker, circuit: Circuit, now_s: float, *, took_s: float = 0.0, admitted: Verdict) -> Circuit:
        if circuit.opened:
            return self.abandoned(circuit, admitted=admitted)
        return succeeded(self, circuit, now_s, took_s=took_s, admitted=admitted)

    Breaker.succeeded = deaf  # type: ignore[method-assign, assignment]


def no_fallback() -> None:
    """Without Redis there are no leases, but for those by which a store is opened."""
    acquired = SharedLeases._acquire_local

    async def refused(self: SharedLeases, name: str, owner: str, lease_s: float) -> Granted | Held:
        if name.startswith("interlock."):
            return await acquired(self, name, owner, lease_s)
        raise UnavailableError(f"lease {name!r} cannot be acquired: Redis does not answer.")

    SharedLeases._acquire_local = refused  # type: ignore[method-assign]


def compensation_on_main_pool() -> None:
    """Undos wait for the places of the calls."""

    def room(self: Outlet, *, undo: bool) -> bool:
        return self.under_way + self.undos_under_way < self.concurrency_max

    Outlet._room = room  # type: ignore[method-assign]
