"""The routes that make a client as complete as an engine: waiting, counts, limits, admission, retention.

A wait is a long poll: it is answered when the workflow is there, and at the latest after a bounded time; a server that
leaves ends its waits at once, so that they go on elsewhere. Retention works for a bounded time per request and says
whether there is more. Whatever changes something is written to the audit log first, with who it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Annotated, TypeVar

import msgspec

from interlock.errors import BadUsage, DefinitionError, InvalidPayload, UnavailableError
from interlock.runtime.bound import Bound
from interlock.runtime.pruning import BATCH, Pruned
from interlock.runtime.resilience.views import BreakerView
from interlock.runtime.settings import Admission
from interlock.runtime.views import Counts
from interlock.server.answers import Answer, Streamed, shown, tagged
from interlock.server.problems import answer_to
from interlock.server.requests import Disconnected, Request, seconds
from interlock.server.routing import Handler, Parameter, Route
from interlock.server.security.scopes import Scope
from interlock.server.served import Served
from interlock.server.service import Service
from interlock.server.shapes import ShownWorkflow, shown_view

ValueT = TypeVar("ValueT")

WAIT_S_MAX = 30.0
"""The longest wait of one request; nothing in between takes a silent connection for dead so soon."""

PRUNE_S = 5.0
"""How long one request goes on pruning; the batch under way is finished."""

PRUNE_WORKFLOWS = 10_000
PRUNE_WORKFLOWS_MAX = 100_000


class LimitBody(msgspec.Struct, forbid_unknown_fields=True):
    """The limits of a dependency. What is left out stays as it is; a rate of null lifts the limit."""

    concurrency_max: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | msgspec.UnsetType | None = msgspec.UNSET


class AdmissionBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the server takes in from now on; what is left out has its default."""

    rate_per_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    burst: Annotated[float, msgspec.Meta(ge=1)] | None = None
    in_flight_max: Annotated[int, msgspec.Meta(ge=1)] = Admission().in_flight_max


class PruneBody(msgspec.Struct, forbid_unknown_fields=True):
    """What may go: workflows that ended so long ago, or only their history."""

    older_than_s: Annotated[float, msgspec.Meta(le=1e10)]
    history_only: bool = False
    with_owed: bool = False
    dry_run: bool = False
    batch: int = BATCH
    limit: Annotated[int, msgspec.Meta(ge=1, le=PRUNE_WORKFLOWS_MAX)] = PRUNE_WORKFLOWS
    """Stop behind the batch that reaches so many; a dry run counts on, as long as there is time."""


class ShownPruned(msgspec.Struct, kw_only=True):
    """How much was removed, or would be, and whether the request ended before everything was looked at."""

    workflows: int
    events: int
    more: bool


_limit = msgspec.json.Decoder(LimitBody)
_admission = msgspec.json.Decoder(AdmissionBody)
_prune = msgspec.json.Decoder(PruneBody)


# --- looking ---------------------------------------------------------------------------------------------------------


async def stats(service: Service, request: Request) -> Answer:
    """What became of the events sent to a workflow (B5)."""
    request.query()
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    return shown(await service.engine.stats(workflow))


async def wait(service: Service, request: Request) -> Answer:
    """The workflow, as soon as it is in one of the states; without any, as soon as it is final or resting."""
    workflow = request.parts[0]
    query = request.query("state", "timeout_s")
    asked_s = seconds(query, "timeout_s")
    await service.permit(request, None, workflow)
    bound = await service.bound_of(workflow)
    states = [] if "state" not in query else _states(bound, query["state"])
    most_s = min(WAIT_S_MAX, request.limits.request_s / 2)
    timeout_s = most_s if asked_s is None else min(asked_s, most_s)
    view = await _while_both_stay(service, request, service.engine.wait(workflow, *states, timeout_s=timeout_s))
    return shown(shown_view(bound, view), headers=tagged(view.version))


def _states(bound: Bound, text: str) -> list[Enum]:
    """The states that are waited for: one, or several with commas between."""
    known = {name: node.state for node in bound.table.nodes.values() for name in (node.state.name, node.name)}
    names = [text] if text in known else text.split(",")
    for name in names:
        if name not in known:
            stored = ", ".join(node.name for node in bound.table.nodes.values())
            raise InvalidPayload(
                f"machine {bound.name!r} has no state {name!r:.100}; it has {stored}.",
                why="It would be waited for in vain.",
                fix="Wait for one of those.",
            )
    return [known[name] for name in names]


async def _while_both_stay(service: Service, request: Request, waiting: Coroutine[object, object, ValueT]) -> ValueT:
    """Wait, unless the client disconnects or the server stops: another one can answer then."""
    loop = asyncio.get_running_loop()
    answer = loop.create_task(waiting)
    gone, stopped = loop.create_task(request.gone()), loop.create_task(service.until_stop())
    try:
        await asyncio.wait({answer, gone, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if stopped.done():
            raise UnavailableError(
                "the server is stopping, and ends its waits.",
                why="A wait may take longer than a server that stops can stay.",
                fix="Ask again: another server answers, or this one when it is back.",
            )
        raise Disconnected
    finally:
        for task in (answer, gone, stopped):
            task.cancel()


# --- operating -------------------------------------------------------------------------------------------------------


async def set_limit(service: Service, request: Request) -> Answer:
    """Change the limits of a dependency while everything runs (C8)."""
    request.query()
    name = request.parts[0]
    body = await request.json(_limit)
    if body.concurrency_max is body.rate_per_s is msgspec.UNSET:
        raise InvalidPayload(
            "no limit was given.",
            why="What is left out stays as it is, so nothing would be changed.",
            fix='Send {"rate_per_s": 50}, {"concurrency_max": 10} or both.',
        )
    before = next((each for each in service.engine.breakers() if each.name == name), None)
    try:
        async with service.acting(request, "limit.set", name, before=before, after=body):
            service.engine.set_limit(
                name,
                concurrency_max=None if isinstance(body.concurrency_max, msgspec.UnsetType) else body.concurrency_max,
                rate_per_s=... if isinstance(body.rate_per_s, msgspec.UnsetType) else body.rate_per_s,
            )
    except BadUsage as error:
        return answer_to(error, status=404)  # Nothing here has that name.
    return shown(service.engine.breakers()[name])


async def admission(service: Service, request: Request) -> Answer:
    """What this process takes in (C7)."""
    request.query()
    return shown(service.admission)


async def set_admission(service: Service, request: Request) -> Answer:
    """Change what this process takes in, until it ends."""
    request.query()
    body = await request.json(_admission)
    try:
        wanted = Admission(rate_per_s=body.rate_per_s, burst=body.burst, in_flight_max=body.in_flight_max)
        async with service.acting(request, "admission.set", "admission", before=service.admission, after=wanted):
            service.engine.set_admission(wanted)
    except DefinitionError as error:
        return answer_to(error, status=400)
    return shown(service.admission)


async def prune(service: Service, request: Request) -> Answer:
    """Remove workflows that ended long ago, or their history; as much as one request may do."""
    request.query()
    body = await request.json(_prune)
    end_s = service.clock.monotonic_s() + PRUNE_S

    def enough(done: Pruned) -> bool:
        return service.clock.monotonic_s() >= end_s or (not body.dry_run and done.workflows >= body.limit)

    async def pruned() -> Answer:
        done, more = await service.prune(
            enough,
            older_than_s=body.older_than_s,
            history_only=body.history_only,
            with_owed=body.with_owed,
            dry_run=body.dry_run,
            batch=body.batch,
        )
        return shown(ShownPruned(workflows=done.workflows, events=done.events, more=more))

    if body.dry_run:
        return await pruned()
    async with service.acting(request, "workflows.prune", "workflows", before=None, after=body):
        return await pruned()


# --- their rows ------------------------------------------------------------------------------------------------------


def _of_service(handler: Callable[[Service, Request], Awaitable[Answer | Streamed]]) -> Handler[Served]:
    def call(served: Served, request: Request) -> Awaitable[Answer | Streamed]:
        return handler(served.service, request)

    return call


_WORKFLOW: dict[str, object] = {
    "id": "o-1",
    "machine": "order",
    "state": "done",
    "context": {"cents": 999},
    "version": 3,
    "created_at": "2026-01-01T12:00:00Z",
    "updated_at": "2026-01-01T12:00:02Z",
    "waiting": None,
}

ADMINISTERING: tuple[Route[Served], ...] = (
    Route(
        method="GET",
        path="/v1/workflows/{id}/stats",
        handler=_of_service(stats),
        scope=Scope.READ,
        about="workflow",
        summary="What became of the events sent to a workflow: applied, duplicate, ignored, refused",
        tag="Workflows",
        answer=Counts,
        answer_example={"applied": 2, "duplicate": 1, "ignored": 0, "refused": 1},
        problems=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/wait",
        handler=_of_service(wait),
        scope=Scope.READ,
        about="workflow",
        summary="Wait until a workflow is in a state; 408 when the time is over, 409 when it can never get there",
        tag="Workflows",
        parameters=(
            Parameter(
                "state",
                "A state, or several with commas between; without any: a final or resting one.",
                {"type": "string"},
                example="done",
            ),
            Parameter(
                "timeout_s",
                f"At most so long; more than {WAIT_S_MAX:g} is {WAIT_S_MAX:g}, and so is nothing.",
                {"type": "number", "minimum": 0, "maximum": 1e10},
                example=10,
            ),
        ),
        answer=ShownWorkflow,
        answer_example=_WORKFLOW,
        problems=(400, 404, 408, 409, 429, 503),
    ),
    Route(
        method="PUT",
        path="/v1/limits/{name}",
        handler=_of_service(set_limit),
        scope=Scope.OPERATE,
        about="home",
        summary="Change the limits of a dependency, in this process and until it ends",
        tag="Operating",
        body=LimitBody,
        body_example={"rate_per_s": 50},
        answer=BreakerView,
        problems=(400, 404, 413, 503),
    ),
    Route(
        method="GET",
        path="/v1/admission",
        handler=_of_service(admission),
        scope=Scope.READ,
        about="home",
        summary="What this process takes in: calls per second, at once, and under way",
        tag="Operating",
        answer=Admission,
        answer_example={"rate_per_s": 10000.0, "burst": 15000.0, "in_flight_max": 100000},
        problems=(400, 503),
    ),
    Route(
        method="PUT",
        path="/v1/admission",
        handler=_of_service(set_admission),
        scope=Scope.OPERATE,
        about="home",
        summary="Change what this process takes in, until it ends",
        tag="Operating",
        body=AdmissionBody,
        body_example={"rate_per_s": 500, "burst": 1000},
        answer=Admission,
        answer_example={"rate_per_s": 500.0, "burst": 1000.0, "in_flight_max": 100000},
        problems=(400, 413, 503),
    ),
    Route(
        method="POST",
        path="/v1/prune",
        handler=_of_service(prune),
        scope=Scope.ADMIN,
        about="home",
        summary="Remove workflows that ended long ago, or their history; `more` says whether to ask again",
        tag="Operating",
        body=PruneBody,
        body_example={"older_than_s": 2592000, "dry_run": True},
        answer=ShownPruned,
        answer_example={"workflows": 12, "events": 60, "more": False},
        problems=(400, 413, 503),
    ),
)
