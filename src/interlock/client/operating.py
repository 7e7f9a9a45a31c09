"""The operator's calls of a client: undos, dead letters, breakers, limits, admission, pruning and contention.

The server logs the identity of the caller. Rulings on dead letters and pruning have no key and are not repeated: when
an answer is lost, the outcome is unknown, and the listing shows it. Limits and admission are those of the process that
answers, as with an engine.
"""

import asyncio
from types import EllipsisType
from typing import Literal, TypeVar

import msgspec

from interlock.client.addresses import escaped, query_of
from interlock.client.reading import Listing, WireHot
from interlock.client.remote import CONTENT, Remote
from interlock.client.verdicts import Call
from interlock.client.writing import encode
from interlock.core.policies import Dependency, TokenRate
from interlock.errors import BadUsage, DefinitionError, TargetNotFound, UnavailableError
from interlock.lanes.contention import HotRow
from interlock.runtime.letters import check_kind
from interlock.runtime.pruning import BATCH, Pruned
from interlock.runtime.resilience.views import Breakers, BreakerView
from interlock.runtime.settings import Admission
from interlock.runtime.views import Compensation, DeadLetter

ItemT = TypeVar("ItemT")

LETTERS_MAX = 10_000


class WirePruned(msgspec.Struct, frozen=True, kw_only=True):
    """The number of workflows and events that one request removed."""

    workflows: int
    events: int
    more: bool = False


class Operating:
    """The calls of a client for operators."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    async def compensations(self) -> list[Compensation]:
        """Return the undos that are pending or being tried, of all workflows that unwind."""
        return await self._list("/v1/compensations", Listing[Compensation])

    async def dead_letters(self, kind: str | None = None, *, limit: int = 1_000) -> list[DeadLetter]:
        """Return the dead letters, oldest first; `kind` is "step", "effect", "undo" or None for all."""
        check_kind(kind)
        query = query_of(kind=kind, limit=max(1, min(limit, LETTERS_MAX)))
        return await self._list(f"/v1/dead-letters{query}", Listing[DeadLetter])

    async def retry_dead_letter(self, letter_id: str) -> None:
        """Retry a dead letter, with the same idempotency key and all its attempts."""
        await self._rule(letter_id, "retry", None)

    async def resolve_dead_letter(self, letter_id: str, *, note: str) -> None:
        """Mark a dead letter as resolved by a person. An unwinding continues; a step's workflow waits for an event."""
        await self._rule(letter_id, "resolve", encode({"note": note}))

    async def breakers(self) -> Breakers:
        """Return the breakers of all dependencies, as the process that answers has them."""
        return Breakers(await self._list("/v1/breakers", Listing[BreakerView]))

    async def force_breaker(self, dependency: str, state: Literal["open", "closed", "auto"]) -> None:
        """Hold a breaker open or closed; "auto" returns it to automatic."""
        if state not in {"open", "closed", "auto"}:
            raise BadUsage(
                f"a breaker cannot be forced to be {state!r}.",
                why="It is forced open, forced closed, or decides by itself.",
                fix='Use "open", "closed" or "auto".',
            )
        try:
            await self._put(f"/v1/breakers/{escaped(dependency)}", {"state": state})
        except TargetNotFound as error:
            raise BadUsage(error.what, why=error.why, fix=error.fix) from error

    async def set_limit(
        self,
        dependency: str,
        *,
        concurrency_max: int | None = None,
        rate_per_s: float | EllipsisType | None = ...,
    ) -> None:
        """Change the limits of a dependency of a running server; a limit that is not passed keeps its value (C8).

        `rate_per_s=None` removes the limit. Only the process that answers is changed, and only until it ends.
        """
        body: dict[str, object] = {} if concurrency_max is None else {"concurrency_max": concurrency_max}
        if not isinstance(rate_per_s, EllipsisType):
            body["rate_per_s"] = rate_per_s
        # Invalid values are refused here, with the engine's own errors.
        rate = None if isinstance(rate_per_s, EllipsisType) else rate_per_s
        Dependency(dependency, 1 if concurrency_max is None else concurrency_max, rate_per_s=rate)
        await self._put(f"/v1/limits/{escaped(dependency)}", body)

    async def set_admission(self, admission: Admission) -> None:
        """Change the admission limits of the process that answers, until it ends (C7)."""
        value: object = admission  # Callers without a type checker may pass anything.
        if not isinstance(value, Admission):
            raise DefinitionError(
                f"{value!r} is not an Admission.",
                why="An engine admits calls by a rate, a burst and a bound on work in flight.",
                fix="Pass Admission(rate_per_s=100, in_flight_max=10_000).",
                rule="policy-out-of-range",
            )
        if admission.rate_per_s is not None:
            burst = max(1.0, admission.rate_per_s) if admission.burst is None else admission.burst
            TokenRate(rate_per_s=admission.rate_per_s, burst=burst)
        await self._put("/v1/admission", msgspec.to_builtins(admission))

    async def prune(
        self,
        *,
        older_than_s: float,
        history_only: bool = False,
        with_owed: bool = False,
        dry_run: bool = False,
        batch: int = BATCH,
        pause_s: float = 0.0,
    ) -> Pruned:
        """Remove workflows of the server's machines that ended `older_than_s` ago, as `Engine.prune` does.

        It makes several requests, each with a bounded piece of work. When an answer is lost, OutcomeUnknown is raised;
        a
        repeated call continues with the rest.
        """
        body: dict[str, object] = {
            "older_than_s": older_than_s,
            "history_only": history_only,
            "with_owed": with_owed,
            "dry_run": dry_run,
            "batch": batch,
        }
        if pause_s > 0:
            body["limit"] = batch  # One request per batch, with the pause in between.
        done = Pruned()
        while True:
            call = Call("POST", "/v1/prune", encode(body), (CONTENT,), repeatable=False, moves=not dry_run)
            pruned = self._remote.read(call, await self._remote.calling.ask(call), WirePruned)
            done = Pruned(workflows=done.workflows + pruned.workflows, events=done.events + pruned.events)
            if not pruned.more:
                return done
            if dry_run:
                raise UnavailableError(
                    f"the server counted {done.workflows:,} workflows, and had no time for the rest.",
                    why="A request works for a bounded time, and a dry run cannot be continued by another request.",
                    fix="Pass a larger older_than_s, or count at the store itself: `interlock prune --dry-run`.",
                )
            await asyncio.sleep(pause_s)

    async def contention(self) -> list[HotRow]:
        """Return the rows and workflows that writers contend for, worst first, as the server has measured them."""
        return [*await self._list("/v1/contention", Listing[WireHot])]

    async def _list(self, target: str, kind: type[Listing[ItemT]]) -> list[ItemT]:
        call = Call("GET", target)
        return [*self._remote.read(call, await self._remote.calling.ask(call), kind).items]

    async def _put(self, target: str, body: dict[str, object]) -> None:
        await self._remote.calling.ask(Call("PUT", target, encode(body), (CONTENT,), moves=True))

    async def _rule(self, letter_id: str, ruling: str, body: bytes | None) -> None:
        target = f"/v1/dead-letters/{escaped(letter_id)}/{ruling}"
        call = Call("POST", target, body or b"", (CONTENT,), repeatable=False, moves=True)
        await self._remote.calling.ask(call)
