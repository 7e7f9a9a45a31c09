"""Handlers of the routes about workflows and machines: start, get, events, history, listings and descriptions.

A start is idempotent by its id (B4), an event by its Idempotency-Key (B5). The ETag of a workflow is its version;
If-Match makes an event depend on it. Workflows that the key may not see are left out of listings.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from interlock.core.decide import suggestion
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.search import SearchField, where_of
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.path.caller_commands import Beginning, check_id
from interlock.engine.views import Moved, Refused
from interlock.errors import BadUsage, InterlockError, InvalidPayload, VersionConflict
from interlock.server.http_messages import (
    JSON,
    NDJSON,
    SVG,
    Disconnected,
    HttpAnswer,
    Request,
    StreamedAnswer,
    answer_to,
    decode_json,
    etag,
    instant,
    json_answer,
    listing,
    seconds,
    switch,
    too_large,
    whole_number,
)
from interlock.server.problems import problem_of
from interlock.server.service import Service
from interlock.wire import (
    BatchLine,
    EventBody,
    ForkBody,
    Problem,
    RewindBody,
    ShownMove,
    StartBody,
    encode,
    encode_lines,
    shown_allowed,
    shown_move,
    shown_rewind,
    shown_row,
    shown_view,
)

# --- One workflow ----------------------------------------------------------------------------------------------------

PAGE = 1_000
PAGE_MAX = 10_000

_start = msgspec.json.Decoder(StartBody)
_event = msgspec.json.Decoder(EventBody)
_fork = msgspec.json.Decoder(ForkBody)
_rewind = msgspec.json.Decoder(RewindBody)


async def start(service: Service, request: Request) -> HttpAnswer:
    """Start a workflow: 201, or 200 when it exists with the same input."""
    bound = service.machine(request.parts[0])
    service.refuse_if_full(starts=True)
    body = await request.json(_start)
    check_id(body.id, "the id of a workflow")
    await service.permit(request, bound.name, body.id)
    context = bound.codec.decode_context(bytes(body.context), strict=True)
    view, found = await service.start(bound, body.id, context, request.actor)
    return json_answer(shown_view(bound, view), status=200 if found else 201, headers=etag(view.version))


async def get(service: Service, request: Request) -> HttpAnswer:
    """Return one workflow, or 304 when the client has this version."""
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    view = await service.engine.get(workflow)
    tag = etag(view.version)
    if _has(request.headers.get(b"if-none-match"), tag[0][1]):
        return HttpAnswer(304, b"", tag)
    return json_answer(shown_view(service.bound_of(workflow, view.machine), view), headers=tag)


def _has(tags: bytes | None, tag: bytes) -> bool:
    """Return whether If-None-Match has the tag. A proxy that compresses makes it weak, which is equivalent here."""
    return tags is not None and any(each.strip().removeprefix(b"W/") in {tag, b"*"} for each in tags.split(b","))


async def send(service: Service, request: Request) -> HttpAnswer:
    """Send an event to a workflow."""
    workflow = request.parts[0]
    if_allowed = switch(request.query, "if_allowed") if request.query else False
    service.refuse_if_full()
    body = await request.json(_event)
    check_id(workflow, "the id of a workflow")
    if request.identity.limited:
        await service.permit(request, None if body.start is None else body.start.machine, workflow)
    expected = request.expected_version() if b"if-match" in request.headers else None
    begin = None
    if body.start is None:
        event = await service.decode_event(workflow, body.event, bytes(body.data))
    else:
        begin, event = service.decode_start(body.start, body.event, bytes(body.data))
    try:
        moved = await service.engine.send(
            workflow,
            event,
            key=request.idempotency_key() if body.key is None else body.key,
            if_allowed=if_allowed,
            expect_version=expected,
            start=begin,
            by=request.actor,
        )
    except VersionConflict as error:
        return _conflict(request, workflow, expected, error)
    return HttpAnswer(200, encode(shown_move(workflow, moved)), JSON + etag(moved.version))


def _conflict(request: Request, workflow: str, expected: int | None, error: VersionConflict) -> HttpAnswer:
    """Return the answer to a change that found another version: 412 if the request has named one."""
    if expected == 0:
        error.what = (
            f"If-Match is {request.header(b'if-match')!r:.100}, which is not a version of workflow {workflow!r}."
        )
        error.why = "The ETag of a workflow is its version in quotes, and only the same one matches."
    return answer_to(error, status=409 if expected is None else 412)


async def history(service: Service, request: Request) -> HttpAnswer:
    """Return the history of a workflow, in the order of versions."""
    workflow = request.parts[0]
    query = request.query
    limit = whole_number(query, "limit", default=PAGE, most=PAGE_MAX)
    after = whole_number(query, "cursor", default=0, most=10**18, least=0)
    await service.permit(request, None, workflow)
    bound = await service.machine_of(workflow)
    rows = await service.engine.history(workflow, after=after, limit=limit)
    cursor = str(rows[-1].version) if len(rows) == limit else None
    return listing([shown_row(bound, row) for row in rows], cursor)


async def allowed(service: Service, request: Request) -> HttpAnswer:
    """Return the events that have a transition from the current state; with `event`, also its guard's verdict."""
    workflow = request.parts[0]
    query = request.query
    await service.permit(request, None, workflow)
    bound = await service.machine_of(workflow)
    event = None
    if "event" in query:
        data = query.get("data", "{}").encode(errors="surrogatepass")
        decode_json(data, _anything, "data")
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

SEARCHING = ("where", "updated_after", "updated_before", "order")
"""The parameters that search."""

_BETWEEN = "~"
"""Separates a machine's name from its cursor in a listing over all machines. No machine name contains it."""


async def find(service: Service, request: Request) -> HttpAnswer:
    """List the workflows of one machine or of all by creation, those of one state by their entry; or search (F4)."""
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
    if any(each in query for each in SEARCHING) and len(bounds) > 1:
        raise InvalidPayload(
            "a search is about one machine, and the query names none.",
            why="Conditions and orders are about the fields of a machine's context.",
            fix="Send machine=NAME too.",
        )
    items: list[object] = []
    pages = 0
    while bounds and len(items) < limit and pages < PAGES_MAX:
        bound = bounds[0]
        pages += 1
        page = await service.engine.find(
            _machine(bound),
            state=None if state is None else _state(bound, state),
            where=where_of(bound.name, bound.machine.search.fields, request.where),
            updated_after=instant(query, "updated_after"),
            updated_before=instant(query, "updated_before"),
            order=query.get("order") or None,
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


async def children(service: Service, request: Request) -> HttpAnswer:
    """List the children of a workflow, page by page."""
    workflow = request.parts[0]
    limit = whole_number(request.query, "limit", default=LIMIT, most=LIMIT_MAX)
    await service.permit(request, None, workflow)
    await service.machine_of(workflow)  # None of the engine's own workflows.
    page = await service.engine.children(workflow, limit=limit, cursor=request.query.get("cursor") or None)
    items = [
        shown_view(service.bound_of(view.id, view.machine), view)
        for view in page.items
        if request.identity.allows(view.machine, view.id)
    ]
    return listing(items, page.cursor)


async def attempts(service: Service, request: Request) -> HttpAnswer:
    """List the attempts of a workflow's steps, undos and effects, page by page."""
    workflow = request.parts[0]
    query = request.query
    limit = whole_number(query, "limit", default=LIMIT, most=LIMIT_MAX)
    after = whole_number(query, "after", default=0, most=10**18, least=0)
    await service.permit(request, None, workflow)
    await service.machine_of(workflow)  # None of the engine's own workflows.
    page = await service.engine.attempts(workflow, after=after, limit=limit, cursor=query.get("cursor") or None)
    return listing(page.items, page.cursor)


async def fork(service: Service, request: Request) -> HttpAnswer:
    """Start a new workflow from a version of another: 201, also when the same fork is repeated."""
    workflow = request.parts[0]
    service.refuse_if_full(starts=True)
    await service.permit(request, None, workflow)
    bound = await service.machine_of(workflow)
    body = await request.json(_fork)
    check_id(body.id, "the id of a workflow")
    await service.permit(request, bound.name, body.id)
    async with service.audit_action(request, "fork", workflow, before=None, after=body):
        try:
            view = await service.engine.fork(workflow, body.at_version, body.id, by=request.actor)
        except BadUsage as error:
            return answer_to(error, status=409)
    return json_answer(shown_view(bound, view), status=201, headers=etag(view.version))


async def rewind(service: Service, request: Request) -> HttpAnswer:
    """Set a workflow back to an earlier version, or with `dry_run` list what would be undone first."""
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    await service.machine_of(workflow)  # None of the engine's own workflows.
    body = await request.json(_rewind)
    expected = request.expected_version() if b"if-match" in request.headers else None
    call = partial(
        service.engine.rewind,
        workflow,
        body.to_version,
        by=request.actor,
        note=body.note,
        dry_run=body.dry_run,
        key=request.idempotency_key() if body.key is None else body.key,
        expect_version=expected,
    )
    try:
        if body.dry_run:
            found = await call()
        else:
            async with service.audit_action(request, "rewind", workflow, before=None, after=body):
                found = await call()
    except VersionConflict as error:
        return _conflict(request, workflow, expected, error)
    except BadUsage as error:
        return answer_to(error, status=409)
    return json_answer(shown_rewind(found), headers=etag(found.version))


async def why(service: Service, request: Request) -> HttpAnswer:
    """Explain why a workflow is where it is."""
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    await service.machine_of(workflow)  # None of the engine's own workflows.
    return json_answer(await service.engine.why(workflow))


async def stalled(service: Service, request: Request) -> HttpAnswer:
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


async def machines(service: Service, request: Request) -> HttpAnswer:
    """List the machines, as plain data."""
    return listing(
        [_described(bound) for bound in service.select_machines(None) if request.identity.allows(bound.name, None)]
    )


async def machine(service: Service, request: Request) -> HttpAnswer:
    """Return one machine with its diagram, optionally with counts; as SVG for a client that accepts only SVG."""
    counts = switch(request.query, "counts")
    bound = service.machine(request.parts[0])
    await service.permit(request, bound.name, None)
    itself = _machine(bound)
    # The counts are those of all ids: a key with prefixes must not learn how many other workflows there are.
    living = await service.living(bound.name) if counts and not request.identity.limits.prefixes else None
    if (request.header(b"accept") or "").startswith("image/svg+xml"):
        return HttpAnswer(200, itself.svg().encode(), SVG, secured=True)
    found = {**_described(bound), "diagram": {"svg": itself.svg(), "mermaid": itself.mermaid()}}
    return json_answer(found if living is None else {**found, "counts": living})


def _described(bound: BoundMachine) -> dict[str, object]:
    """Return a machine as plain data, with the fields that it declares searchable; null where it declares nothing."""
    described = cast("dict[str, object]", msgspec.to_builtins(bound.machine.describe()))
    fields = bound.machine.search.fields
    return {**described, "search": None if fields is None else [_search_field(field) for field in fields]}


def _search_field(field: SearchField) -> dict[str, object]:
    values = None if field.members is None else [str(each.value) for each in field.members]
    return {"name": field.name, "stored": field.stored, "kind": field.kind, "values": values}


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


# --- Batches of events -----------------------------------------------------------------------------------------------
# One event per line of JSON, and one result or problem per line, in order. Lines are decided in groups: the next group
# is read while the previous one is being written. Most clients send everything before they read anything, so a separate
# task reads. Otherwise both sides would wait for each other. Lines, groups and unread answers are bounded.

GROUPS_MIN = 2
"""Groups of one batch that may be under way concurrently, whatever the number of batches: one written, one read."""

GROUPS_MAX = 8
"""Groups of all batches together, as long as each batch has GROUPS_MIN. More lines than this fill a group of the engine
anyway, and groups that wait in memory slow the others down."""

_line = msgspec.json.Decoder(BatchLine)


async def send_batch(service: Service, request: Request) -> StreamedAnswer:
    """Send the events of a batch, and stream the results."""
    request.check_media()
    return StreamedAnswer(200, _Batch(service, request).answers(), NDJSON)


class _Batch:
    """One batch under way: the reading task decides lines, and the generator of answers waits for results."""

    def __init__(self, service: Service, request: Request) -> None:
        self._service = service
        self._request = request
        self._limits = request.limits
        self._lines = 0
        self._groups: deque[_Group] = deque()
        self._broken: BaseException | None = None
        """An unexpected exception of a group: it ends the batch without an answer."""
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()

    async def answers(self) -> AsyncGenerator[bytes, None]:
        """Yield the answers, group by group."""
        self._service.batches += 1
        reading = asyncio.get_running_loop().create_task(self._read())
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                if self._broken is not None:
                    raise self._broken
                over = reading.done()
                if self._waiting:
                    piece, self._waiting, self._bytes = b"".join(self._waiting), [], 0
                    self._taken.set()
                    yield piece
                if over:
                    break
            if not reading.cancelled() and (error := reading.exception()) is not None:
                raise error
        finally:
            self._service.batches -= 1
            reading.cancel()
            for group in self._groups:
                group.sending.cancel()

    async def _read(self) -> None:
        rest = b""
        try:
            async for piece in self._request.pieces():
                *lines, rest = (rest + piece).split(b"\n")
                await self._decide(lines)
                if len(rest) > self._limits.body_bytes_max:
                    raise too_large(f"line {self._lines + 1}", len(rest), self._limits.body_bytes_max)
            await self._decide([rest])
            await self._finish(0)
        except Disconnected:
            return
        except InterlockError as error:
            await self._finish(0)
            self._answer([problem_of(error)])

    async def _decide(self, lines: list[bytes]) -> None:
        lines = [line for line in lines if line.strip()]
        left = self._limits.batch_lines_max - self._lines
        allowed = lines[:left]
        for at in range(0, len(allowed), self._limits.batch_group_max):
            group = allowed[at : at + self._limits.batch_group_max]
            self._lines += len(group)
            await self._service.guard.revalidate(self._request.identity)  # A batch may take longer than a key lives.
            self._groups.append(await self._begin_group(group))
            await self._finish(max(GROUPS_MIN, GROUPS_MAX // self._service.batches) - 1)
        if len(lines) > left:
            raise _too_many(self._limits.batch_lines_max)

    async def _begin_group(self, lines: list[bytes]) -> "_Group":
        """Decode the lines and start to send their events, after those of all earlier groups."""
        service, limited = self._service, self._request.identity.limited
        answers: list[Problem | str] = []
        events: list[tuple[str, Event, str | None, Beginning | None]] = []
        for number, line in enumerate(lines, self._lines - len(lines) + 1):
            workflow: str | None = None
            try:
                if len(line) > self._limits.body_bytes_max:  # It came in one piece with its end.
                    raise too_large(f"line {number}", len(line), self._limits.body_bytes_max)
                body = decode_json(line, _line, f"line {number}")
                workflow = body.id
                check_id(workflow, "the id of a workflow")
                begin = body.start
                if limited:
                    await service.permit(self._request, None if begin is None else begin.machine, workflow)
                data = bytes(body.data)
                start: Beginning | None = None
                event: Event | None
                if begin is not None:
                    start, event = service.decode_start(begin, body.event, data)
                else:
                    event = service.decode_unique_event(body.event, data)
                    if event is None:
                        event = await service.decode_event(workflow, body.event, data)
            except InterlockError as error:
                answers.append(problem_of(error, workflow=workflow))
                continue
            events.append((workflow, event, body.key, start))
            answers.append(workflow)
        # Tasks begin in the order they are made in, so that no line overtakes another.
        sending = asyncio.get_running_loop().create_task(self._service.engine.send_many(events, by=self._request.actor))
        sending.add_done_callback(self._sent)
        return _Group(answers, sending)

    async def _finish(self, left: int) -> None:
        """Wait until at most `left` groups are under way, and until the client has read enough answers."""
        while len(self._groups) > left and self._broken is None:
            await asyncio.wait([self._groups[0].sending])
            self._answer_done()
        while self._bytes > self._limits.batch_answer_bytes_max:
            self._taken.clear()
            await self._taken.wait()

    def _sent(self, sending: "asyncio.Task[list[Moved[Enum] | Refused]]") -> None:
        if not sending.cancelled():
            self._answer_done()

    def _answer_done(self) -> None:
        """Answer the groups that are done, in order: a client may wait for answers before it sends more."""
        while self._groups and self._groups[0].sending.done():
            group = self._groups.popleft()
            self._broken = group.sending.exception()
            if self._broken is not None:
                self._changed.set()
                return
            moves = iter(group.sending.result())
            self._answer([_result_line(each, next(moves)) if isinstance(each, str) else each for each in group.answers])

    def _answer(self, answers: "list[Problem | ShownMove]") -> None:
        lines = encode_lines(answers)
        self._waiting.append(lines)
        self._bytes += len(lines)
        self._changed.set()


class _Group(NamedTuple):
    """Some lines that are being decided."""

    answers: "list[Problem | str]"
    """Per line its problem, if it could not be decoded; otherwise its workflow, until the result is known."""
    sending: "asyncio.Task[list[Moved[Enum] | Refused]]"


def _result_line(workflow: str, moved: Moved[Enum] | Refused) -> Problem | ShownMove:
    if isinstance(moved, Refused):
        return problem_of(moved.error, workflow=workflow)
    return shown_move(workflow, moved)


def _too_many(most: int) -> InvalidPayload:
    return InvalidPayload(
        f"the batch has more than {most:,} lines; those after them were not read (batch_lines_max).",
        why="Every request has a bound.",
        fix="Send the rest as another batch.",
    )
