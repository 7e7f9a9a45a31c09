"""Handlers of bulk actions: a dry run answers when it is done; a run goes on in the background of this process.

The record of a run is in the store, so every process answers for its progress, and any can stop it. A run whose server
stopped or died is interrupted: the same request resumes it. Repeating the request of a run that goes on answers with
its progress.
"""

import asyncio
import logging
from enum import Enum
from typing import Any, cast

import msgspec

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.search import where_of
from interlock.engine.operators.bulk import Bulk, BulkRequest
from interlock.engine.operators.bulk_runs import BulkRun
from interlock.errors import BadUsage, InterlockError, InvalidPayload, LeaseHeld
from interlock.server.handlers.operator_routes import await_connected, named_state
from interlock.server.http_messages import HttpAnswer, Request, answer_to, json_answer, listing, switch, whole_number
from interlock.server.service import Service
from interlock.wire import BulkBody

log = logging.getLogger("interlock.server")

RUNS = 100
RUNS_MAX = 3_000

ACCEPTED = 202

_bulk = msgspec.json.Decoder(BulkBody)

_ONLY_FOR = {
    "event": ("send",), "kind": ("retry",), "letter": ("retry",), "error": ("retry",), "note": ("pause", "resume"),
}  # fmt: skip
"""The members of the body that belong to some actions only."""


async def list_runs(service: Service, request: Request) -> HttpAnswer:
    """List the bulk runs of this home, the newest first."""
    limit = whole_number(request.query, "limit", default=RUNS, most=RUNS_MAX)
    return listing([*await service.engine.bulk_runs.list(limit=limit)])


async def get_run(service: Service, request: Request) -> HttpAnswer:
    """Return one bulk run, with its progress."""
    return json_answer(await service.engine.bulk_runs.get(request.parts[0]))


async def stop_run(service: Service, request: Request) -> HttpAnswer:
    """Stop a bulk run before its next page, in whichever process it is executed."""
    name = request.parts[0]
    before = await service.engine.bulk_runs.get(name)
    async with service.audit_action(request, "bulk.stop", name, before=before, after="interrupted"):
        return json_answer(await service.engine.bulk_runs.stop(name, by=request.actor))


async def run(service: Service, request: Request) -> HttpAnswer:
    """Begin or resume a bulk run; with `dry_run` only return what it would do."""
    name = request.parts[0]
    dry = switch(request.query, "dry_run")
    body = await request.json(_bulk)
    bulk, wanted = _bulk_of(service, body)
    if dry:
        return json_answer(await await_connected(service, request, bulk.dry_run(wanted)))
    plain = msgspec.json.decode(msgspec.json.encode(body))  # Its data is raw JSON.
    async with service.audit_action(request, "bulk.run", name, before=None, after=plain):
        try:
            found = await _begin(service, bulk, wanted, name, request.actor, body.rate_per_s)
        except BadUsage as error:
            return answer_to(error, status=400)
    return json_answer(found, status=ACCEPTED if found.state == "running" else 200)


def _bulk_of(service: Service, body: BulkBody) -> tuple[Bulk[Any], BulkRequest]:
    bound = service.machine(body.machine)
    for name, action in _ONLY_FOR.items():
        if body.action not in action and getattr(body, name):
            raise InvalidPayload(
                f'"{name}" has no meaning for the action "{body.action}".',
                why=f"It belongs to {' and '.join(action)}. An ignored condition would choose other workflows.",
                fix=f'Leave "{name}" out, or choose another action.',
            )
    event: Event | None = None
    if body.action == "send":
        if body.event is None:
            raise InvalidPayload(
                "the body names no event.",
                why='The action "send" sends an event of the machine to each workflow.',
                fix='Add it: {"action": "send", "event": "CANCEL", "data": {}}.',
            )
        event = cast("Event", bound.codec.decode_event(body.event, bytes(body.data), strict=True))
    bulk: Bulk[Any] = service.engine.bulk(
        cast("Machine[Enum, Any, Event]", bound.machine),
        state=None if body.state is None else named_state(bound, body.state),
        where=where_of(bound.name, bound.machine.search.fields, body.where),
        updated_after=body.updated_after,
        updated_before=body.updated_before,
    )
    return bulk, BulkRequest(body.action, event, body.kind, body.letter, body.error, body.note)


async def _begin(
    service: Service, bulk: Bulk[Any], wanted: BulkRequest, name: str, by: str, rate_per_s: float | None
) -> BulkRun:
    """Begin the run in a task of the service; return it as soon as its record is durable, or raise why it is not."""
    begun = asyncio.Event()
    executing = bulk.run(wanted, name=name, by=by, rate_per_s=rate_per_s, begun=begun.set)
    task = service.keep(executing)
    task.add_done_callback(lambda done: _log_failure(name, done))
    beginning = asyncio.ensure_future(begun.wait())
    try:
        await asyncio.wait({task, beginning}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        beginning.cancel()
    if task.done() and not begun.is_set():
        try:
            return task.result()
        except LeaseHeld:
            found = await service.engine.bulk_runs.get(name)
            if found.state == "running":
                return found
            raise
    return await service.engine.bulk_runs.get(name)


def _log_failure(name: str, task: "asyncio.Task[BulkRun]") -> None:
    """Log why a run ended early. Its record says that it is interrupted; the request that began it was answered."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, InterlockError):
        log.warning("bulk run %r does not go on: %s", name, error)
    elif error is not None:
        log.error("bulk run %r does not go on", name, exc_info=error)
