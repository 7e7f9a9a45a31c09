"""Handlers of the routes for operators: undos, letters, tasks, schedules, pauses, breakers, limits, waits, health.

Every change is written to the audit log first, with the identity of the client. Limits and admission are those of the
process that answers. One request works for a bounded time: a wait answers at the latest after WAIT_S_MAX, and pruning
returns whether there is more.

Sections: dead letters, tasks, schedules, breakers, identity, statistics and waits, pauses, limits, health.
"""

import asyncio
import difflib
from collections.abc import Coroutine
from enum import Enum
from typing import TypeVar

import msgspec

from interlock.core.decide import suggestion
from interlock.engine.bound_machine import AnyMachine, BoundMachine
from interlock.engine.dependencies.breakers import BreakerView
from interlock.engine.engine_settings import Admission
from interlock.engine.operators.tasks import TaskFilter, parse_task_id
from interlock.engine.schedules import Schedule, timing_of
from interlock.engine.views import DeadLetter
from interlock.errors import BadUsage, DefinitionError, InvalidPayload, UnavailableError, WorkflowNotFound
from interlock.server.http_messages import (
    Disconnected,
    HttpAnswer,
    Request,
    answer_to,
    etag,
    instant,
    json_answer,
    listing,
    seconds,
    switch,
    whole_number,
)
from interlock.server.problems import HttpProblem
from interlock.server.security.keys import LADDER, Scope
from interlock.server.service import Service
from interlock.wire import (
    AdmissionBody,
    BackfillBody,
    BreakerBody,
    LimitBody,
    PauseBody,
    PruneBody,
    ResolveBody,
    ScheduleBody,
    ShownHealth,
    ShownIdentity,
    ShownLetterGroup,
    ShownResume,
    ShownRuling,
    ShownStarts,
    ShownTask,
    shown_view,
)

LIMIT = 100
LETTERS = 1_000
LETTERS_MAX = 10_000

ValueT = TypeVar("ValueT")

WAIT_S_MAX = 30.0
"""The longest wait of one request, in seconds. Proxies keep a silent connection open for longer than this."""

STEP_S_MAX = 366 * 86_400
"""The longest step of a chart."""

PRUNE_S = 5.0
"""How long one request prunes; the batch under way is finished."""

_resolve = msgspec.json.Decoder(ResolveBody)
_breaker = msgspec.json.Decoder(BreakerBody)
_limit = msgspec.json.Decoder(LimitBody)
_admission = msgspec.json.Decoder(AdmissionBody)
_prune = msgspec.json.Decoder(PruneBody)
_schedule = msgspec.json.Decoder(ScheduleBody)
_backfill = msgspec.json.Decoder(BackfillBody)
_pause = msgspec.json.Decoder(PauseBody)


# --- Dead letters ----------------------------------------------------------------------------------------------------


async def compensations(service: Service, request: Request) -> HttpAnswer:
    """List the undos that are pending or being tried."""
    owed = await service.engine.compensations()
    return listing([each for each in owed if request.identity.allows(each.machine, each.workflow)])


async def dead_letters(service: Service, request: Request) -> HttpAnswer:
    """List the dead letters, which wait for a person, oldest first; with `group` those of one error."""
    query = request.query
    limit = whole_number(query, "limit", default=LETTERS, most=LETTERS_MAX)
    await service.permit(request, query.get("machine"), None)
    if "machine" in query:
        service.machine(query["machine"])  # Raises for an unknown one.
    filtered = request.identity.limited or any(each in query for each in ("machine", "name", "group"))
    letters = await service.engine.dead_letters(
        query.get("kind"), workflow=query.get("workflow"), limit=LETTERS_MAX if filtered else limit
    )
    if filtered:
        # The dead letters that this request is about may come after others.
        letters = [each for each in letters if await _is_wanted(service, request, each)][:limit]
    return listing([*letters])


async def _is_wanted(service: Service, request: Request, letter: DeadLetter) -> bool:
    query = request.query
    named = {"name": letter.name, "group": letter.group}
    if any(query.get(each, value) != value for each, value in named.items()):
        return False
    if "machine" in query and query["machine"] != await _machine_of_letter(service, letter):
        return False
    return not request.identity.limited or await _is_visible(service, request, letter.workflow)


async def dead_letter_groups(service: Service, request: Request) -> HttpAnswer:
    """List the groups of dead letters by machine, step and error, the largest first."""
    groups: dict[tuple[str, str, str, str], list[DeadLetter]] = {}
    for letter in await service.engine.dead_letters(limit=LETTERS_MAX):
        if request.identity.limited and not await _is_visible(service, request, letter.workflow):
            continue
        machine = await _machine_of_letter(service, letter)
        groups.setdefault((machine, letter.kind, letter.name, letter.group), []).append(letter)
    rows = [
        ShownLetterGroup(
            machine=machine,
            kind=kind,
            name=name,
            group=group,
            count=len(letters),
            since=min(each.since for each in letters),
            latest=max(each.since for each in letters),
            example=letters[0].workflow,
        )
        for (machine, kind, name, group), letters in groups.items()
    ]
    rows.sort(key=lambda each: -each.count)
    return listing([*rows])


async def _machine_of_letter(service: Service, letter: DeadLetter) -> str:
    """Return the machine of a letter: mostly only one declares a step or effect of that name, and nothing is read."""
    known = [name for name, bound in service.machines.items() if _declares(bound, letter)]
    if len(known) == 1:
        return known[0]
    try:
        return (await service.machine_of(letter.workflow)).name
    except (WorkflowNotFound, UnavailableError):
        return ""  # It was pruned meanwhile, is one of the engine's own workflows, or its machine is served elsewhere.


def _declares(bound: BoundMachine, letter: DeadLetter) -> bool:
    nodes = bound.table.nodes.values()
    if letter.kind == "effect":
        return any(effect.name == letter.name for node in nodes for effect in node.effects)
    return any(node.step is not None and node.step.name == letter.name for node in nodes)


async def _is_visible(service: Service, request: Request, workflow: str) -> bool:
    if not request.identity.allows(None, workflow):
        return False
    try:
        return request.identity.allows((await service.machine_of(workflow)).name, workflow)
    except (WorkflowNotFound, UnavailableError):
        return False  # It was pruned meanwhile, or its machine is served elsewhere: which one it is, is unknown.


async def retry(service: Service, request: Request) -> HttpAnswer:
    """Retry a dead letter."""
    await request.body()  # It should be empty, and is ignored.
    letter = request.parts[0]
    await _permit_letter(service, request, letter)
    async with service.audit_action(request, "dead_letter.retry", letter, before="dead", after="retried"):
        await service.engine.retry_dead_letter(letter, by=request.actor, workflow=request.query.get("workflow"))
    return json_answer(ShownRuling(id=letter, ruling="retried"))


async def resolve(service: Service, request: Request) -> HttpAnswer:
    """Mark a dead letter as resolved by a person."""
    body = await request.json(_resolve)
    letter = request.parts[0]
    await _permit_letter(service, request, letter)
    async with service.audit_action(
        request, "dead_letter.resolve", letter, before="dead", after={"resolved": body.note}
    ):
        await service.engine.resolve_dead_letter(letter, note=body.note, by=request.actor)
    return json_answer(ShownRuling(id=letter, ruling="resolved"))


async def _permit_letter(service: Service, request: Request, letter: str) -> None:
    if request.identity.limited:
        for each in await service.engine.dead_letters(limit=LETTERS_MAX):
            if each.id == letter:
                await service.permit(request, None, each.workflow)
                return
        # Raises: a key that may not see a letter must not learn whether it exists.
        await service.permit(request, "", "")


# --- Tasks -----------------------------------------------------------------------------------------------------------
# The holder of a claim is the person that the query names, so that a claim does not depend on the key that is used.
# The audit log has the key too.


async def tasks(service: Service, request: Request) -> HttpAnswer:
    """List the tasks that wait for a person, the most urgent first."""
    query = request.query
    limit = whole_number(query, "limit", default=LIMIT, most=LETTERS)
    machine = query.get("machine")
    await service.permit(request, machine, None)
    if machine is not None:
        service.machine(machine)
    sees = request.identity.allows if request.identity.limited else None
    chosen = TaskFilter(query.get("role"), query.get("by"), machine, sees)
    page = await service.tasks(chosen, limit=limit, cursor=query.get("cursor") or None)
    return listing(page.items, page.cursor)


async def task(service: Service, request: Request) -> HttpAnswer:
    """Return one task, with the forms of its events."""
    found = await service.engine.task(await _permit_task(service, request))
    schemas = {each.name: each.schema for each in service.machine(found.machine).machine.describe().events}
    forms = {name: schemas[name] for name in found.events}
    return json_answer(ShownTask(**msgspec.structs.asdict(found), forms=forms))


async def claim_task(service: Service, request: Request) -> HttpAnswer:
    """Claim a task."""
    await request.body()  # It should be empty, and is ignored.
    name = await _permit_task(service, request)
    who = request.person or request.actor
    async with service.audit_action(request, "task.claim", name, before=None, after={"claimed_by": who}):
        return json_answer(await service.engine.claim_task(name, by=who))


async def release_task(service: Service, request: Request) -> HttpAnswer:
    """Release a task, or take it from another person."""
    await request.body()  # It should be empty, and is ignored.
    force = switch(request.query, "force")
    if force:
        request.identity.require(Scope.OPERATE)
    name = await _permit_task(service, request)
    who = request.person or request.actor
    async with service.audit_action(request, "task.release", name, before=None, after={"force": force}):
        return json_answer(await service.engine.release_task(name, by=who, force=force))


async def _permit_task(service: Service, request: Request) -> str:
    """Return the id of the task in the path. Raises 403 or 404 for a workflow that the key may not see."""
    name = request.parts[0]
    workflow, _ = parse_task_id(name)
    await service.permit(request, None, workflow)
    await service.machine_of(workflow)  # None of the engine's own workflows.
    return name


# --- Schedules -------------------------------------------------------------------------------------------------------


async def schedules(service: Service, _request: Request) -> HttpAnswer:
    """List the schedules of this home."""
    return listing([*await service.engine.schedules.list()])


async def schedule(service: Service, request: Request) -> HttpAnswer:
    """Return one schedule."""
    return json_answer(await service.engine.schedules.get(request.parts[0]))


async def put_schedule(service: Service, request: Request) -> HttpAnswer:
    """Store a schedule, or change it."""
    name = request.parts[0]
    body = await request.json(_schedule)
    bound = service.machine(body.machine)
    wanted = Schedule(
        name,
        bound.machine,
        cron=body.cron,
        every=body.every_s,
        timezone=body.timezone,
        context=bound.codec.decode_context(bytes(body.context), strict=True),
        overlap=body.overlap,
        catch_up=body.catch_up,
    )
    try:
        timing_of(wanted)
    except DefinitionError as error:
        return answer_to(error, status=400)
    plain = msgspec.json.decode(msgspec.json.encode(body))  # Its context is raw JSON.
    async with service.audit_action(request, "schedule.put", name, before=None, after=plain):
        return json_answer(await service.engine.schedules.put(wanted, by=request.actor))


async def pause_schedule(service: Service, request: Request) -> HttpAnswer:
    """Start nothing at the due times of a schedule."""
    await request.body()  # It should be empty, and is ignored.
    name = request.parts[0]
    async with service.audit_action(request, "schedule.pause", name, before=None, after="paused"):
        return json_answer(await service.engine.schedules.pause(name, by=request.actor))


async def resume_schedule(service: Service, request: Request) -> HttpAnswer:
    """Start at the due times of a schedule again."""
    await request.body()  # It should be empty, and is ignored.
    name = request.parts[0]
    async with service.audit_action(request, "schedule.resume", name, before="paused", after=None):
        return json_answer(await service.engine.schedules.resume(name, by=request.actor))


async def trigger_schedule(service: Service, request: Request) -> HttpAnswer:
    """Start one workflow of a schedule now."""
    await request.body()  # It should be empty, and is ignored.
    name = request.parts[0]
    async with service.audit_action(request, "schedule.trigger", name, before=None, after="triggered"):
        return json_answer(ShownStarts(name, 1, await service.engine.schedules.trigger(name, by=request.actor)))


async def backfill_schedule(service: Service, request: Request) -> HttpAnswer:
    """Start the workflows of due times in the past."""
    body = await request.json(_backfill)
    name = request.parts[0]
    async with service.audit_action(request, "schedule.backfill", name, before=None, after=body):
        count = await service.engine.schedules.backfill(name, body.since, body.until, by=request.actor)
        return json_answer(ShownStarts(name, count))


async def delete_schedule(service: Service, request: Request) -> HttpAnswer:
    """Delete a schedule; its workflows go on."""
    name = request.parts[0]
    before = await service.engine.schedules.get(name)
    async with service.audit_action(request, "schedule.delete", name, before=before, after=None):
        await service.engine.schedules.delete(name, by=request.actor)
    return json_answer(before)


# --- Breakers --------------------------------------------------------------------------------------------------------


async def breakers(service: Service, _request: Request) -> HttpAnswer:
    """List the breakers of all dependencies, as this process has them."""
    return listing([*service.engine.breakers()])


async def hold_breaker(service: Service, request: Request) -> HttpAnswer:
    """Hold a breaker open or closed, return it to automatic, or change the limits of its dependency."""
    name = request.parts[0]
    before = _breaker_of(service, name)
    body = await request.json(_breaker)
    keeps_limits = body.concurrency_max is body.rate_per_s is msgspec.UNSET
    if isinstance(body.state, msgspec.UnsetType) and keeps_limits:
        raise InvalidPayload(
            "the body asks for no change of the breaker.",
            why="A request holds it in a state, or changes its dependency's limits.",
            fix='Send {"state": "open"}, {"state": "auto"} or {"rate_per_s": 50}.',
        )
    async with service.audit_action(request, "breaker.force", name, before=before, after=body):
        if not keeps_limits:
            _set_limits(service, name, body, request.actor)
        if not isinstance(body.state, msgspec.UnsetType):
            service.engine.force_breaker(name, body.state, by=request.actor)
    return json_answer(_breaker_of(service, name))


def _set_limits(service: Service, name: str, body: BreakerBody | LimitBody, by: str) -> None:
    service.engine.set_limit(
        name,
        concurrency_max=None if isinstance(body.concurrency_max, msgspec.UnsetType) else body.concurrency_max,
        rate_per_s=... if isinstance(body.rate_per_s, msgspec.UnsetType) else body.rate_per_s,
        by=by,
    )


def _breaker_of(service: Service, name: str) -> BreakerView:
    found = service.engine.breakers()
    for breaker in found:
        if breaker.name == name:
            return breaker
    near = difflib.get_close_matches(name, [each.name for each in found], n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise HttpProblem(
        "breaker-not-found",
        f"nothing here calls a dependency {name!r:.300}.{meant}",
        why=f"The machines of this server call {', '.join(repr(each.name) for each in found) or 'none'}.",
        fix="Use one of those names.",
    )


# --- Identity --------------------------------------------------------------------------------------------------------


async def whoami(_service: Service, request: Request) -> HttpAnswer:
    """Return the client of the request and its scopes: a page disables what they do not allow."""
    identity = request.identity
    return json_answer(
        ShownIdentity(
            actor=identity.actor,
            scopes=tuple(scope.value for scope in LADDER if scope in identity.scopes),
            machines=identity.limits.machines,
            prefixes=identity.limits.prefixes,
        )
    )


# --- Statistics and waits --------------------------------------------------------------------------------------------
# A server that stops ends its waits immediately, so that the client continues them on another one.


async def charts(service: Service, request: Request) -> HttpAnswer:
    """Return moves, failures, time in state and backlog over time, of the machines that the key may see (F7)."""
    query, identity = request.query, request.identity
    selected = service.select_machines(query.get("machine"))
    step_s = whole_number(query, "step", default=0, most=STEP_S_MAX) or None
    since, until = instant(query, "since"), instant(query, "until")
    machine = selected[0].machine if "machine" in query else None
    found = await service.engine.charts(machine, since=since, until=until, step_s=step_s)
    # The figures are those of all ids: a key with prefixes must not learn how many other workflows there are.
    by_id = bool(identity.limits.prefixes)
    machines = [each for each in found.machines if not by_id and identity.allows(each.machine, None)]
    return json_answer(msgspec.structs.replace(found, machines=machines))


async def stats(service: Service, request: Request) -> HttpAnswer:
    """Return the outcomes of the events sent to a workflow (B5)."""
    workflow = request.parts[0]
    await service.permit(request, None, workflow)
    return json_answer(await service.engine.stats(workflow))


async def wait(service: Service, request: Request) -> HttpAnswer:
    """Return the workflow when it reaches one of the states; without states, when it is final or resting."""
    workflow = request.parts[0]
    query = request.query
    requested_s = seconds(query, "timeout_s")
    await service.permit(request, None, workflow)
    bound = await service.machine_of(workflow)
    states = [] if "state" not in query else _states(bound, query["state"])
    most_s = min(WAIT_S_MAX, request.limits.request_s / 2)
    timeout_s = most_s if requested_s is None else min(requested_s, most_s)
    view = await await_connected(service, request, service.engine.wait(workflow, *states, timeout_s=timeout_s))
    return json_answer(shown_view(bound, view), headers=etag(view.version))


def _states(bound: BoundMachine, text: str) -> list[Enum]:
    """Return the states named in the query: one, or several separated by commas."""
    known = {name: node.state for node in bound.table.nodes.values() for name in (node.state.name, node.name)}
    names = [text] if text in known else text.split(",")
    for name in names:
        if name not in known:
            stored = ", ".join(node.name for node in bound.table.nodes.values())
            raise InvalidPayload(
                f"machine {bound.name!r} has no state {name!r:.100}; it has {stored}.",
                why="The workflow can never reach it.",
                fix="Wait for one of those.",
            )
    return [known[name] for name in names]


async def await_connected(service: Service, request: Request, waiting: Coroutine[object, object, ValueT]) -> ValueT:
    """Await the coroutine, unless the client disconnects or the server stops: the client then asks another server."""
    loop = asyncio.get_running_loop()
    answer = loop.create_task(waiting)
    disconnected, stopped = loop.create_task(request.disconnected()), loop.create_task(service.until_stop())
    try:
        await asyncio.wait({answer, disconnected, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if stopped.done():
            raise UnavailableError(
                "the server is stopping and ends its waits.",
                why="A wait may take longer than a server that stops can stay.",
                fix="Ask again: another server answers, or this one when it is back.",
            )
        raise Disconnected
    finally:
        for task in (answer, disconnected, stopped):
            task.cancel()


# --- Pauses ----------------------------------------------------------------------------------------------------------


async def pauses(service: Service, _request: Request) -> HttpAnswer:
    """List the active pauses of this home."""
    return listing([*await service.engine.pauses()])


async def pause(service: Service, request: Request) -> HttpAnswer:
    """Begin nothing for a workflow, a machine or a state, until it is resumed (E7)."""
    body = await request.json(_pause)
    machine, state = _pause_scope(service, body)
    person, by = _operator(request, body)
    async with service.audit_action(request, "pause", _named(body), before=None, after=body, by=person):
        try:
            found = await service.engine.pause(id=body.id, machine=machine, state=state, by=by, note=body.note)
        except BadUsage as error:
            return answer_to(error, status=400)
    return json_answer(found)


async def resume(service: Service, request: Request) -> HttpAnswer:
    """Go on with what was paused."""
    body = await request.json(_pause)
    machine, state = _pause_scope(service, body)
    person, by = _operator(request, body)
    async with service.audit_action(request, "resume", _named(body), before="paused", after=body, by=person):
        try:
            resumed = await service.engine.resume(id=body.id, machine=machine, state=state, by=by, note=body.note)
        except BadUsage as error:
            return answer_to(error, status=400)
    return json_answer(ShownResume(resumed))


def _operator(request: Request, body: PauseBody) -> tuple[str, str]:
    """Return the person whom the body or the query names, and the actor: the key with that person."""
    person = body.by or request.person
    return person, request.identity.acting(person)


def _pause_scope(service: Service, body: PauseBody) -> tuple[AnyMachine | None, Enum | None]:
    """Return the machine and state of a pause. Raises 404 for an unknown machine, InvalidPayload for a state."""
    if body.machine is None:
        if body.state is None:
            return None, None
        raise InvalidPayload(
            f"a pause names the state {body.state!r:.100} without its machine.",
            why="A state belongs to a machine; a pause of a workflow concerns all of its states.",
            fix="Add the machine, or leave the state out.",
        )
    bound = service.machine(body.machine)
    return bound.machine, None if body.state is None else named_state(bound, body.state)


def named_state(bound: BoundMachine, text: str) -> Enum:
    """Return the state that is stored under a name. Raises InvalidPayload."""
    node = bound.stored.get(text)
    if node is None:
        raise InvalidPayload(
            f"machine {bound.name!r} has no state {text!r:.100}.{suggestion(text, bound.stored)}",
            why="An action on a machine concerns all of it, or a state that it declares.",
            fix="Write a state as it is stored.",
        )
    return node.state


def _named(body: PauseBody) -> str:
    return "/".join(filter(None, (body.id, body.machine, body.state)))


# --- Limits, admission and retention ---------------------------------------------------------------------------------


async def set_limit(service: Service, request: Request) -> HttpAnswer:
    """Change the limits of a dependency while everything runs (C8)."""
    name = request.parts[0]
    body = await request.json(_limit)
    if body.concurrency_max is body.rate_per_s is msgspec.UNSET:
        raise InvalidPayload(
            "the body names no limit.",
            why="A limit that is left out keeps its value, so nothing would change.",
            fix='Send {"rate_per_s": 50}, {"concurrency_max": 10} or both.',
        )
    before = next((each for each in service.engine.breakers() if each.name == name), None)
    try:
        async with service.audit_action(request, "limit.set", name, before=before, after=body):
            _set_limits(service, name, body, request.actor)
    except BadUsage as error:
        return answer_to(error, status=404)  # No dependency has this name.
    return json_answer(service.engine.breakers()[name])


async def admission(service: Service, _request: Request) -> HttpAnswer:
    """Return the admission limits of this process (C7)."""
    return json_answer(service.admission)


async def set_admission(service: Service, request: Request) -> HttpAnswer:
    """Change the admission limits of this process, until it ends."""
    body = await request.json(_admission)
    try:
        wanted = Admission(rate_per_s=body.rate_per_s, burst=body.burst, in_flight_max=body.in_flight_max)
        async with service.audit_action(request, "admission.set", "admission", before=service.admission, after=wanted):
            service.engine.set_admission(wanted, by=request.actor)
    except DefinitionError as error:
        return answer_to(error, status=400)
    return json_answer(service.admission)


async def prune(service: Service, request: Request) -> HttpAnswer:
    """Remove workflows that ended long ago, or their history, within the time of one request."""
    body = await request.json(_prune)
    if body.dry_run:
        return json_answer(await service.prune(body, within_s=PRUNE_S))
    async with service.audit_action(request, "workflows.prune", "workflows", before=None, after=body):
        return json_answer(await service.prune(body, within_s=PRUNE_S))


# --- Health and metrics ----------------------------------------------------------------------------------------------
# `/healthz` fails when this process cannot recover and needs a restart. `/readyz` fails while requests should go to
# another server: this one is stopping, or its store does not answer. Without Redis it stays ready, and reports the
# reason. Neither needs a key, and neither shows a secret.

ALONE = "Redis cannot be used: leases come from the store, limits and breakers are those of this process, until it can."


async def health(service: Service, _request: Request) -> HttpAnswer:
    """Report whether this process can still work."""
    return _health_answer(service.alive())


async def readiness(service: Service, _request: Request) -> HttpAnswer:
    """Report whether requests should be sent to this process."""
    reason = await service.ready()
    if reason is None and service.without_redis:
        return json_answer(ShownHealth(status="ok", reason=ALONE))
    return _health_answer(reason)


def _health_answer(reason: str | None) -> HttpAnswer:
    if reason is None:
        return json_answer(ShownHealth(status="ok"))
    return json_answer(ShownHealth(status="unavailable", reason=reason), status=503, headers=((b"retry-after", b"1"),))


async def metrics(service: Service, _request: Request) -> HttpAnswer:
    """Return all metrics as text."""
    scraped = await service.render_metrics()
    if scraped is None:
        raise HttpProblem(
            "no-metrics",
            "this engine has no Prometheus exporter.",
            why="It was opened without the observer, or prometheus-client is not installed.",
            fix="Install it: pip install 'interlock[otel]'. Then `interlock serve` has it; an engine of your own is "
            'opened with observers=["prometheus"].',
        )
    content_type, body = scraped
    return HttpAnswer(200, body, ((b"content-type", content_type.encode()),))
