"""The routes of operators: what is owed, what gave up, what is held open, and what is hot.

Whatever changes something is written to the audit log first, with who it was.
"""

import difflib

import msgspec

from interlock.errors import InvalidPayload, WorkflowNotFound
from interlock.runtime.resilience.views import BreakerView
from interlock.server.answers import Answer, listing, shown
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request, whole_number
from interlock.server.service import Service
from interlock.server.shapes import BreakerBody, ResolveBody, ShownRuling

LETTERS = 1_000
LETTERS_MAX = 10_000

_resolve = msgspec.json.Decoder(ResolveBody)
_breaker = msgspec.json.Decoder(BreakerBody)


async def compensations(service: Service, request: Request) -> Answer:
    """The undos that are pending or being tried."""
    request.query()
    owed = await service.engine.compensations()
    return listing([each for each in owed if request.identity.allows(each.machine, each.workflow)])


async def dead_letters(service: Service, request: Request) -> Answer:
    """What gave up and waits for a person, oldest first."""
    query = request.query("kind", "limit")
    limit = whole_number(query, "limit", default=LETTERS, most=LETTERS_MAX)
    limited = request.identity.limited
    # Those of a key with limits may stand behind those of others.
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
        return False  # It was pruned in between, and nobody knows any more whose it was.


async def retry(service: Service, request: Request) -> Answer:
    """Have a dead letter tried again."""
    request.query()
    await request.nothing()
    letter = request.parts[0]
    await _permit_letter(service, request, letter)
    async with service.acting(request, "dead_letter.retry", letter, before="dead", after="retried"):
        await service.engine.retry_dead_letter(letter)
    return shown(ShownRuling(id=letter, ruling="retried"))


async def resolve(service: Service, request: Request) -> Answer:
    """Say that a person has dealt with a dead letter."""
    request.query()
    body = await request.json(_resolve)
    letter = request.parts[0]
    await _permit_letter(service, request, letter)
    async with service.acting(request, "dead_letter.resolve", letter, before="dead", after={"resolved": body.note}):
        await service.engine.resolve_dead_letter(letter, note=body.note)
    return shown(ShownRuling(id=letter, ruling="resolved"))


async def _permit_letter(service: Service, request: Request, letter: str) -> None:
    if request.identity.limited:
        for each in await service.engine.dead_letters(limit=LETTERS_MAX):
            if each.id == letter:
                await service.permit(request, None, each.workflow)
                return
        await service.permit(request, "", "")  # Whoever may not see it may not learn whether it is there either.


async def breakers(service: Service, request: Request) -> Answer:
    """The breakers of everything that the machines call, as this process has them."""
    request.query()
    return listing([*service.engine.breakers()])


async def hold_breaker(service: Service, request: Request) -> Answer:
    """Hold a breaker open or closed, let it decide again, or change the limits of its dependency."""
    request.query()
    name = request.parts[0]
    before = _breaker_of(service, name)
    body = await request.json(_breaker)
    if isinstance(body.state, msgspec.UnsetType) and body.concurrency_max is body.rate_per_s is msgspec.UNSET:
        raise InvalidPayload(
            "nothing was asked of the breaker.",
            why="It is held in a state, or its dependency's limits are changed.",
            fix='Send {"state": "open"}, {"state": "auto"} or {"rate_per_s": 50}.',
        )
    async with service.acting(request, "breaker.force", name, before=before, after=body):
        if not isinstance(body.concurrency_max, msgspec.UnsetType):
            service.engine.set_limit(name, concurrency_max=body.concurrency_max)
        if not isinstance(body.rate_per_s, msgspec.UnsetType):
            service.engine.set_limit(name, rate_per_s=body.rate_per_s)
        if not isinstance(body.state, msgspec.UnsetType):
            service.engine.force_breaker(name, body.state)
    return shown(_breaker_of(service, name))


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
