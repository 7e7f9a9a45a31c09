"""Handlers of the operators' routes: pending undos, dead letters and breakers.

Every change is written to the audit log first, with the identity of the client.
"""

import difflib

import msgspec

from interlock.errors import InvalidPayload, WorkflowNotFound
from interlock.runtime.resilience.views import BreakerView
from interlock.server.answers import Answer, json_answer, listing
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request, whole_number
from interlock.server.service import Service
from interlock.server.shapes import BreakerBody, ResolveBody, ShownRuling

LETTERS = 1_000
LETTERS_MAX = 10_000

_resolve = msgspec.json.Decoder(ResolveBody)
_breaker = msgspec.json.Decoder(BreakerBody)


async def compensations(service: Service, request: Request) -> Answer:
    """List the undos that are pending or being tried."""
    request.query()
    owed = await service.engine.compensations()
    return listing([each for each in owed if request.identity.allows(each.machine, each.workflow)])


async def dead_letters(service: Service, request: Request) -> Answer:
    """List the dead letters, which wait for a person, oldest first."""
    query = request.query("kind", "limit")
    limit = whole_number(query, "limit", default=LETTERS, most=LETTERS_MAX)
    limited = request.identity.limited
    # The dead letters that this key may see may come after those of other keys.
    letters = await service.engine.dead_letters(query.get("kind"), limit=LETTERS_MAX if limited else limit)
    if limited:
        letters = [each for each in letters if await _is_visible(service, request, each.workflow)][:limit]
    return listing([*letters])


async def _is_visible(service: Service, request: Request, workflow: str) -> bool:
    if not request.identity.allows(None, workflow):
        return False
    try:
        return request.identity.allows((await service.bound_of(workflow)).name, workflow)
    except WorkflowNotFound:
        return False  # It was pruned meanwhile, and its machine is unknown.


async def retry(service: Service, request: Request) -> Answer:
    """Retry a dead letter."""
    request.query()
    await request.nothing()
    letter = request.parts[0]
    await _permit_letter(service, request, letter)
    async with service.acting(request, "dead_letter.retry", letter, before="dead", after="retried"):
        await service.engine.retry_dead_letter(letter)
    return json_answer(ShownRuling(id=letter, ruling="retried"))


async def resolve(service: Service, request: Request) -> Answer:
    """Mark a dead letter as resolved by a person."""
    request.query()
    body = await request.json(_resolve)
    letter = request.parts[0]
    await _permit_letter(service, request, letter)
    async with service.acting(request, "dead_letter.resolve", letter, before="dead", after={"resolved": body.note}):
        await service.engine.resolve_dead_letter(letter, note=body.note)
    return json_answer(ShownRuling(id=letter, ruling="resolved"))


async def _permit_letter(service: Service, request: Request, letter: str) -> None:
    if request.identity.limited:
        for each in await service.engine.dead_letters(limit=LETTERS_MAX):
            if each.id == letter:
                await service.permit(request, None, each.workflow)
                return
        await service.permit(
            request, "", ""
        )  # Raises: a key that may not see a letter must not learn whether it exists.


async def breakers(service: Service, request: Request) -> Answer:
    """List the breakers of all dependencies, as this process has them."""
    request.query()
    return listing([*service.engine.breakers()])


async def hold_breaker(service: Service, request: Request) -> Answer:
    """Hold a breaker open or closed, return it to automatic, or change the limits of its dependency."""
    request.query()
    name = request.parts[0]
    before = _breaker_of(service, name)
    body = await request.json(_breaker)
    if isinstance(body.state, msgspec.UnsetType) and body.concurrency_max is body.rate_per_s is msgspec.UNSET:
        raise InvalidPayload(
            "the body asks for no change of the breaker.",
            why="A request holds it in a state, or changes its dependency's limits.",
            fix='Send {"state": "open"}, {"state": "auto"} or {"rate_per_s": 50}.',
        )
    async with service.acting(request, "breaker.force", name, before=before, after=body):
        if not isinstance(body.concurrency_max, msgspec.UnsetType):
            service.engine.set_limit(name, concurrency_max=body.concurrency_max)
        if not isinstance(body.rate_per_s, msgspec.UnsetType):
            service.engine.set_limit(name, rate_per_s=body.rate_per_s)
        if not isinstance(body.state, msgspec.UnsetType):
            service.engine.force_breaker(name, body.state)
    return json_answer(_breaker_of(service, name))


def _breaker_of(service: Service, name: str) -> BreakerView:
    found = service.engine.breakers()
    for breaker in found:
        if breaker.name == name:
            return breaker
    near = difflib.get_close_matches(name, [each.name for each in found], n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise HttpProblem(
        404,
        f"nothing here calls a dependency {name!r:.300}.{meant}",
        code="breaker-not-found",
        why=f"The machines of this server call {', '.join(repr(each.name) for each in found) or 'none'}.",
        fix="Use one of those names.",
    )
