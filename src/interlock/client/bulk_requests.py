"""Bulk actions at a server: the calls of `engine.bulk` and `engine.bulk_runs` (F5).

The server executes a run in the background; the client looks at its progress until it is done. Both can be lost: the
record is in the store. A repeated request resumes a run that was interrupted, and returns the progress of one that
goes on.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from interlock.client.retries import HttpCall
from interlock.client.workflow_requests import CONTENT, Remote, event_of
from interlock.clock import RandomIds
from interlock.core.events import Event
from interlock.engine.operators.bulk import BulkRequest, check_rate
from interlock.engine.operators.bulk_runs import BulkPlan, BulkRun, run_id
from interlock.engine.path.caller_commands import check_kind
from interlock.urls import escaped, query_of
from interlock.wire import BulkBody, Listing, encode

LOOK_FIRST_S, LOOK_FACTOR, LOOK_MAX_S = 0.05, 1.5, 2.0
"""Intervals at which the client looks whether a run is done."""

EventT = TypeVar("EventT", bound=Event)


class ClientBulkRuns:
    """The bulk runs of a server's home. A client has them as `client.bulk_runs`."""

    def __init__(self, remote: Remote) -> None:
        self._transport = remote.transport

    async def list(self, *, limit: int = 100) -> list[BulkRun]:
        """Return the last runs, the newest first."""
        call = HttpCall("GET", "/v1/bulk" + query_of(limit=limit))
        return [*(await self._transport.fetch(call, Listing[BulkRun])).items]

    async def get(self, name: str) -> BulkRun:
        """Return a run. Raises WorkflowNotFound."""
        return await self._transport.fetch(HttpCall("GET", _path(name)), BulkRun)

    async def stop(self, name: str, *, by: str | None = None) -> BulkRun:
        """Stop a run before its next page. Repeating it resumes it."""
        return await self._transport.fetch(HttpCall("DELETE", _path(name) + query_of(by=by), moves=True), BulkRun)


class ClientBulk(Generic[EventT]):
    """The workflows of a filter at a server. Made by `client.bulk(machine, …)`; the calls are those of `Bulk`."""

    def __init__(
        self,
        remote: Remote,
        machine: str,
        *,
        state: str | None,
        where: Sequence[str],
        updated_after: datetime | None,
        updated_before: datetime | None,
    ) -> None:
        self._remote = remote
        self._machine = machine
        self._state = state
        self._where = where
        self._times = (updated_after, updated_before)

    async def dry_run(self, event: EventT | str | BulkRequest, *, data: Mapping[str, object] | None = None) -> BulkPlan:
        """Return what `send` would do now: how many workflows match, and how many are refused for which reason.

        The event is one of the machine, or its wire name with `data`. Another action is a `BulkRequest`.
        """
        request = event if isinstance(event, BulkRequest) else BulkRequest("send")
        body = self._body(request, None if isinstance(event, BulkRequest) else event, data, None)
        call = HttpCall("POST", "/v1/bulk/dry-run" + query_of(dry_run="true"), body, (CONTENT,))
        return await self._remote.transport.fetch(call, BulkPlan)

    async def send(
        self,
        event: EventT | str,
        *,
        data: Mapping[str, object] | None = None,
        name: str,
        by: str | None = None,
        rate_per_s: float | None = None,
    ) -> BulkRun:
        """Send the event to every workflow of the filter, each once under this name; return the result.

        Cancelling the call leaves the run going: `client.bulk_runs.stop(name)` ends it.
        """
        return await self._run(name, self._body(BulkRequest("send"), event, data, rate_per_s), by)

    async def retry_dead_letters(
        self,
        *,
        kind: str | None = None,
        letter: str | None = None,
        error: str | None = None,
        name: str | None = None,
        by: str | None = None,
        rate_per_s: float | None = None,
    ) -> BulkRun:
        """Retry the dead letters of these workflows that are there now."""
        request = BulkRequest("retry", kind=kind, letter=letter, error=error)
        return await self.run(request, name=name, by=by, rate_per_s=rate_per_s)

    async def pause(
        self, *, by: str | None = None, note: str = "", name: str | None = None, rate_per_s: float | None = None
    ) -> BulkRun:
        """Pause each of these workflows by itself."""
        return await self.run(BulkRequest("pause", note=note), name=name, by=by, rate_per_s=rate_per_s)

    async def resume(
        self, *, by: str | None = None, note: str = "", name: str | None = None, rate_per_s: float | None = None
    ) -> BulkRun:
        """Resume each of these workflows that is paused by itself."""
        return await self.run(BulkRequest("resume", note=note), name=name, by=by, rate_per_s=rate_per_s)

    async def run(
        self,
        request: BulkRequest,
        *,
        name: str | None = None,
        by: str | None = None,
        rate_per_s: float | None = None,
    ) -> BulkRun:
        """Carry out a request, from where the run of that name is."""
        chosen = name or f"{request.action} {self._machine:.80} {RandomIds().text()[:8]}"
        return await self._run(chosen, self._body(request, request.event, None, rate_per_s), by)

    async def _run(self, name: str, body: bytes, by: str | None) -> BulkRun:
        _ = run_id(name)  # Raises for a name that cannot be one.
        call = HttpCall("POST", _path(name) + query_of(by=by), body, (CONTENT,), moves=True)
        run = await self._remote.transport.fetch(call, BulkRun)
        pause_s = LOOK_FIRST_S
        while run.state == "running":
            await asyncio.sleep(pause_s)
            pause_s = min(LOOK_MAX_S, pause_s * LOOK_FACTOR)
            run = await self._remote.transport.fetch(HttpCall("GET", _path(name)), BulkRun)
        return run

    def _body(
        self,
        request: BulkRequest,
        event: Event | str | None,
        data: Mapping[str, object] | None,
        rate_per_s: float | None,
    ) -> bytes:
        check_rate(rate_per_s)  # JSON has no NaN: the server would receive none.
        check_kind(request.kind)
        wire_name, payload = (None, msgspec.Raw(b"{}")) if event is None else event_of(event, data)
        return encode(
            BulkBody(
                self._machine,
                request.action,
                self._state,
                [*self._where],
                *self._times,
                wire_name,
                payload,
                request.kind,  # type: ignore[arg-type]  # The server refuses another one.
                request.letter,
                request.error,
                request.note,
                rate_per_s,
            )
        )


def _path(name: str) -> str:
    return f"/v1/bulk/{escaped(name)}"
