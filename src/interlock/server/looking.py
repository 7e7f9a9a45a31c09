"""Handlers of the routes that list workflows and machines.

Listings are `{"items": […], "cursor": …}`; the cursor requests the next page, and is null on the last one. Workflows
that the key may not see are left out.
"""

from enum import Enum

import msgspec

from interlock.core.refusals import suggestion
from interlock.errors import InvalidPayload
from interlock.runtime.bound import Bound
from interlock.server.answers import SVG, Answer, json_answer, listing
from interlock.server.requests import Request, seconds, switch, whole_number
from interlock.server.service import Service
from interlock.server.shapes import shown_view

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
    query = request.query("machine", "state", "cursor", "limit")
    limit = whole_number(query, "limit", default=LIMIT, most=LIMIT_MAX)
    name, cursor = query.get("machine"), query.get("cursor") or None
    await service.permit(request, name, None)
    bounds = [bound for bound in service.chosen(name) if request.identity.allows(bound.name, None)]
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
            service.machine_itself(bound),
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
    query = request.query("machine", "older_than_s", "state", "limit")
    limit = whole_number(query, "limit", default=LIMIT, most=LIMIT_MAX)
    older_than_s = seconds(query, "older_than_s")
    await service.permit(request, query.get("machine"), None)
    bounds = list(service.chosen(query.get("machine")))
    state = query.get("state")
    if state is not None:
        bounds = _with_state(bounds, state)
    items: list[object] = []
    for bound in bounds:
        found = await service.engine.stalled(
            service.machine_itself(bound),
            older_than_s=older_than_s,
            states=None if state is None else [_state(bound, state)],
            limit=STALLED_MAX if request.identity.limited else limit,
        )
        visible = [view for view in found if request.identity.allows(bound.name, view.id)]
        items += [shown_view(bound, view) for view in visible[:limit]]
    return listing(items[:limit])


async def machines(service: Service, request: Request) -> Answer:
    """List the machines, as plain data."""
    request.query()
    return listing(
        [bound.machine.describe() for bound in service.chosen(None) if request.identity.allows(bound.name, None)]
    )


async def machine(service: Service, request: Request) -> Answer:
    """Return one machine with its diagram, optionally with counts; as SVG for a client that accepts only SVG."""
    counts = switch(request.query("counts"), "counts")
    bound = service.machine(request.parts[0])
    await service.permit(request, bound.name, None)
    itself = service.machine_itself(bound)
    # The counts are those of all ids: a key with prefixes must not learn how many other workflows there are.
    living = await service.living(bound.name) if counts and not request.identity.limits.prefixes else None
    if (request.header(b"accept") or "").startswith("image/svg+xml"):
        return Answer(200, itself.svg().encode(), SVG, secured=True)
    described = msgspec.to_builtins(itself.describe())
    found = {**described, "diagram": {"svg": itself.svg(), "mermaid": itself.mermaid()}}
    return json_answer(found if living is None else {**found, "counts": living})


def _with_state(bounds: list[Bound], state: str) -> list[Bound]:
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


def _state(bound: Bound, text: str) -> Enum | None:
    return next((node.state for node in bound.table.nodes.values() if text in {node.name, node.state.name}), None)


def _from(bounds: list[Bound], cursor: str) -> tuple[list[Bound], str | None]:
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
