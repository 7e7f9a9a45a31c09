"""Handlers of the workflow routes: start, get, send an event, history and allowed events.

A start is idempotent by its id (B4), an event by its Idempotency-Key (B5). The ETag of a workflow is its version;
If-Match makes an event depend on it.
"""

import msgspec

from interlock.errors import InvalidPayload, VersionConflict
from interlock.runtime.envelopes import check_id
from interlock.server.answers import JSON, Answer, encode, json_answer, listing, tagged
from interlock.server.problems import answer_to
from interlock.server.requests import Request, decoded, switch, whole_number
from interlock.server.service import Service
from interlock.server.shapes import (
    EventBody,
    StartBody,
    shown_allowed,
    shown_move,
    shown_row,
    shown_view,
)

PAGE = 1_000
PAGE_MAX = 10_000

_start = msgspec.json.Decoder(StartBody)
_event = msgspec.json.Decoder(EventBody)


async def start(service: Service, request: Request) -> Answer:
    """Start a workflow: 201, or 200 when it exists with the same input."""
    request.query()
    bound = service.machine(request.parts[0])
    service.refuse_if_full(starts=True)
    body = await request.json(_start)
    check_id(body.id, "the id of a workflow")
    await service.permit(request, bound.name, body.id)
    context = bound.codec.decode_context(bytes(body.context), strict=True)
    view, found = await service.start(bound, body.id, context)
    return json_answer(shown_view(bound, view), status=200 if found else 201, headers=tagged(view.version))


async def get(service: Service, request: Request) -> Answer:
    """Return one workflow, or 304 when the client has this version."""
    request.query()
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    view = await service.engine.get(workflow)
    tag = tagged(view.version)
    if _has(request.headers.get(b"if-none-match"), tag[0][1]):
        return Answer(304, b"", tag)
    return json_answer(shown_view(service.machines[view.machine], view), headers=tag)


def _has(tags: bytes | None, tag: bytes) -> bool:
    """Return whether If-None-Match has the tag. A proxy that compresses makes it weak, which is equivalent here."""
    return tags is not None and any(each.strip().removeprefix(b"W/") in {tag, b"*"} for each in tags.split(b","))


async def send(service: Service, request: Request) -> Answer:
    """Send an event to a workflow."""
    workflow = request.parts[0]
    if_allowed = switch(request.query("if_allowed"), "if_allowed") if request.query_string else False
    service.refuse_if_full()
    body = await request.json(_event)
    check_id(workflow, "the id of a workflow")
    if request.identity.limited:
        await service.permit(request, None, workflow)
    expected = request.expected_version() if b"if-match" in request.headers else None
    event = await service.event_for(workflow, body.event, bytes(body.data))
    try:
        moved = await service.engine.send(
            workflow,
            event,
            key=request.idempotency_key() if body.key is None else body.key,
            if_allowed=if_allowed,
            expect_version=expected,
        )
    except VersionConflict as error:
        if expected == 0:
            error.what = (
                f"If-Match is {request.header(b'if-match')!r:.100}, which is not a version of workflow {workflow!r}."
            )
            error.why = "The ETag of a workflow is its version in quotes, and only the same one matches."
        return answer_to(error, status=409 if expected is None else 412)
    return Answer(200, encode(shown_move(workflow, moved)), JSON + tagged(moved.version))


async def history(service: Service, request: Request) -> Answer:
    """Return the history of a workflow, in the order of versions."""
    workflow = request.parts[0]
    query = request.query("cursor", "limit")
    limit = whole_number(query, "limit", default=PAGE, most=PAGE_MAX)
    after = whole_number(query, "cursor", default=0, most=10**18, least=0)
    await service.permit(request, None, workflow)
    rows = await service.engine.history(workflow, after=after, limit=limit)
    bound = await service.bound_of(workflow)
    cursor = str(rows[-1].version) if len(rows) == limit else None
    return listing([shown_row(bound, row) for row in rows], cursor)


async def allowed(service: Service, request: Request) -> Answer:
    """Return the events that have a transition from the current state; with `event`, also its guard's verdict."""
    workflow = request.parts[0]
    query = request.query("event", "data")
    await service.permit(request, None, workflow)
    event = None
    if "event" in query:
        data = query.get("data", "{}").encode(errors="surrogatepass")
        decoded(data, _anything, "data")
        bound = await service.bound_of(workflow)
        event = bound.codec.decode_event(query["event"], data, strict=True)
    elif "data" in query:
        raise InvalidPayload(
            "data is sent without an event.",
            why="The fields belong to an event.",
            fix="Send event=NAME too.",
        )
    return listing([shown_allowed(each) for each in await service.engine.allowed(workflow, event)])


_anything = msgspec.json.Decoder()
