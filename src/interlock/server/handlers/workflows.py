"""Handlers of the routes about workflows and machines: start, get, events, history, listings and descriptions.

A start is idempotent by its id (B4), an event by its Idempotency-Key (B5). The ETag of a workflow is its version;
If-Match makes an event depend on it. Workflows that the key may not see are left out of listings.
"""

from enum import Enum
from typing import Any, cast

import msgspec

from interlock.core.decide import suggestion
from interlock.core.machine import Machine
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.path.caller_commands import check_id
from interlock.errors import InvalidPayload, VersionConflict
from interlock.server.http_messages import (
    JSON,
    SVG,
    Answer,
    Request,
    answer_to,
    decode_json,
    etag,
    json_answer,
    listing,
    seconds,
    switch,
    whole_number,
)
from interlock.server.service import Service
from interlock.wire import EventBody, StartBody, encode, shown_allowed, shown_move, shown_row, shown_view

# --- One workflow ----------------------------------------------------------------------------------------------------

PAGE = 1_000
PAGE_MAX = 10_000

_start = msgspec.json.Decoder(StartBody)
_event = msgspec.json.Decoder(EventBody)


async def start(service: Service, request: Request) -> Answer:
    """Start a workflow: 201, or 200 when it exists with the same input."""
    bound = service.machine(request.parts[0])
    service.refuse_if_full(starts=True)
    body = await request.json(_start)
    check_id(body.id, "the id of a workflow")
    await service.permit(request, bound.name, body.id)
    context = bound.codec.decode_context(bytes(body.context), strict=True)
    view, found = await service.start(bound, body.id, context)
    return json_answer(shown_view(bound, view), status=200 if found else 201, headers=etag(view.version))


async def get(service: Service, request: Request) -> Answer:
    """Return one workflow, or 304 when the client has this version."""
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    view = await service.engine.get(workflow)
    tag = etag(view.version)
    if _has(request.headers.get(b"if-none-match"), tag[0][1]):
        return Answer(304, b"", tag)
    return json_answer(shown_view(service.machines[view.machine], view), headers=tag)


def _has(tags: bytes | None, tag: bytes) -> bool:
    """Return whether If-None-Match has the tag. A proxy that compresses makes it weak, which is equivalent here."""
    return tags is not None and any(each.strip().removeprefix(b"W/") in {tag, b"*"} for each in tags.split(b","))


async def send(service: Service, request: Request) -> Answer:
    """Send an event to a workflow."""
    workflow = request.parts[0]
    if_allowed = switch(request.query, "if_allowed") if request.query else False
    service.refuse_if_full()
    body = await request.json(_event)
    check_id(workflow, "the id of a workflow")
    if request.identity.limited:
        await service.permit(request, None, workflow)
    expected = request.expected_version() if b"if-match" in request.headers else None
    event = await service.decode_event(workflow, body.event, bytes(body.data))
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
    return Answer(200, encode(shown_move(workflow, moved)), JSON + etag(moved.version))


async def history(service: Service, request: Request) -> Answer:
    """Return the history of a workflow, in the order of versions."""
    workflow = request.parts[0]
    query = request.query
    limit = whole_number(query, "limit", default=PAGE, most=PAGE_MAX)
    after = whole_number(query, "cursor", default=0, most=10**18, least=0)
    await service.permit(request, None, workflow)
    rows = await service.engine.history(workflow, after=after, limit=limit)
    bound = await service.machine_of(workflow)
    cursor = str(rows[-1].version) if len(rows) == limit else None
    return listing([shown_row(bound, row) for row in rows], cursor)


async def allowed(service: Service, request: Request) -> Answer:
    """Return the events that have a transition from the current state; with `event`, also its guard's verdict."""
    workflow = request.parts[0]
    query = request.query
    await service.permit(request, None, workflow)
    event = None
    if "event" in query:
        data = query.get("data", "{}").encode(errors="surrogatepass")
        decode_json(data, _anything, "data")
        bound = await service.machine_of(workflow)
        event = bound.codec.decode_event(query["event"], data, strict=True)
    elif "data" in query:
        raise InvalidPayload(
            "data is sent without an event.", why="The fields belong to an event.", fix="Send event=NAME too."
        )
    return listing([shown_allowed(each) for each in await service.engine.allowed(workflow, event)])


_anything = msgspec.json.Decoder()


# --- Listings --------------------------------------------------------------------------------------------------------
# Listings are `{"items": […], "cursor": …}`; the cursor requests the next page, and is null on the last one.

LIMIT = 100
LIMIT_MAX = 1_000

PAGES_MAX = 100
"""Pages of the store that are read for one page of a key with limits, which may see few of the rows."""

STALLED_MAX = 10_000
"""Workflows that are read for a key with limits: its own may come after those of other keys."""

_BETWEEN = "~"
"""Separates a machine's name from its cursor in a listing over all machines. No machine name contains it."""


async def find(service: Service, request: Request) -> Answer:
    """List the workflows of one machine or of all by creation; those of one state by their entry into it."""
    query = request.query
    limit = whole_number(query, "limit", default=LIMIT, most=LIMIT_MAX)
    name, cursor = query.get("machine"), query.get("cursor") or None
    await service.permit(request, name, None)
    bounds = [bound for bound in service.select_machines(name) if request.identity.allows(bound.name, None)]
    state = query.get("state")
    if state is not None:
        bounds = _with_state(bounds, state)
    if name is None and len(service.machines) > 1 and cursor is not None:
        bounds, cursor = _from(bounds, cursor)
    items: list[object] = []
    pages = 0
    while bounds and len(items) < limit and pages < PAGES_MAX:
        bound = bounds[0]
        pages += 1
        page = await service.engine.find(
            _machine(bound),
            state=None if state is None else _state(bound, state),
            limit=limit - len(items),
            cursor=cursor,
        )
        items += [shown_view(bound, view) for view in page.items if request.identity.allows(bound.name, view.id)]
        cursor = page.cursor
        if cursor is None:
            bounds.pop(0)
    if name is not None or len(service.machines) == 1:
        return listing(items, cursor)
    return listing(items, f"{bounds[0].name}{_BETWEEN}{cursor or ''}" if bounds else None)


async def stalled(service: Service, request: Request) -> Answer:
    """List active workflows that have been in their state for too long."""
    query = request.query
    limit = whole_number(query, "limit", default=LIMIT, most=LIMIT_MAX)
    older_than_s = seconds(query, "older_than_s")
    await service.permit(request, query.get("machine"), None)
    bounds = list(service.select_machines(query.get("machine")))
    state = query.get("state")
    if state is not None:
        bounds = _with_state(bounds, state)
    items: list[object] = []
    for bound in bounds:
        found = await service.engine.stalled(
            _machine(bound),
            older_than_s=older_than_s,
            states=None if state is None else [_state(bound, state)],
            limit=STALLED_MAX if request.identity.limited else limit,
        )
        visible = [view for view in found if request.identity.allows(bound.name, view.id)]
        items += [shown_view(bound, view) for view in visible[:limit]]
    return listing(items[:limit])


async def machines(service: Service, request: Request) -> Answer:
    """List the machines, as plain data."""
    return listing(
        [
            bound.machine.describe()
            for bound in service.select_machines(None)
            if request.identity.allows(bound.name, None)
        ]
    )


async def machine(service: Service, request: Request) -> Answer:
    """Return one machine with its diagram, optionally with counts; as SVG for a client that accepts only SVG."""
    counts = switch(request.query, "counts")
    bound = service.machine(request.parts[0])
    await service.permit(request, bound.name, None)
    itself = _machine(bound)
    # The counts are those of all ids: a key with prefixes must not learn how many other workflows there are.
    living = await service.living(bound.name) if counts and not request.identity.limits.prefixes else None
    if (request.header(b"accept") or "").startswith("image/svg+xml"):
        return Answer(200, itself.svg().encode(), SVG, secured=True)
    described = msgspec.to_builtins(itself.describe())
    found = {**described, "diagram": {"svg": itself.svg(), "mermaid": itself.mermaid()}}
    return json_answer(found if living is None else {**found, "counts": living})


def _machine(bound: BoundMachine) -> Machine[Any, Any, Any]:
    return cast("Machine[Any, Any, Any]", bound.machine)


def _with_state(bounds: list[BoundMachine], state: str) -> list[BoundMachine]:
    """Return the machines that have a state of that name. Raises InvalidPayload when there is no such machine."""
    found = [bound for bound in bounds if _state(bound, state) is not None]
    if not found:
        known = [node.name for bound in bounds for node in bound.table.nodes.values()]
        raise InvalidPayload(
            f"there is no state {state!r:.100}; there is {', '.join(known)}.{suggestion(state.lower(), known)}",
            why="A machine has only the states that it declares.",
            fix="Write a state as it is stored.",
        )
    return found


def _state(bound: BoundMachine, text: str) -> Enum | None:
    return next((node.state for node in bound.table.nodes.values() if text in {node.name, node.state.name}), None)


def _from(bounds: list[BoundMachine], cursor: str) -> tuple[list[BoundMachine], str | None]:
    """Return the remaining machines of a listing over all machines, and the cursor within the first."""
    name, between, rest = cursor.partition(_BETWEEN)
    left = [bound for bound in bounds if bound.name >= name]
    if not between or not left or left[0].name != name:
        raise InvalidPayload(
            f"{cursor!r:.100} is not a cursor of this listing.",
            why="A cursor comes from the previous page of the same listing.",
            fix="Send the cursor unchanged, with the same machine and state.",
        )
    return left, rest or None
