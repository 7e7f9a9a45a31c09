"""Health and readiness checks, for process supervisors and load balancers.

`/healthz` fails when this process cannot recover and needs a restart. `/readyz` fails while requests should go to
another server: this one is stopping, or its store does not answer. Without Redis it stays ready, and reports the
reason. Neither needs a key, and neither shows a secret.
"""

from interlock.server.answers import Answer, json_answer
from interlock.server.requests import Request
from interlock.server.service import Service
from interlock.server.shapes import ShownHealth

ALONE = "Redis cannot be used: leases come from the store, limits and breakers are those of this process, until it can."


async def health(service: Service, request: Request) -> Answer:
    """Report whether this process can still work."""
    del request
    return _health_answer(service.alive())


async def readiness(service: Service, request: Request) -> Answer:
    """Report whether requests should be sent to this process."""
    del request
    reason = await service.ready()
    if reason is None and service.alone:
        return json_answer(ShownHealth(status="ok", reason=ALONE))
    return _health_answer(reason)


def _health_answer(reason: str | None) -> Answer:
    if reason is None:
        return json_answer(ShownHealth(status="ok"))
    return json_answer(ShownHealth(status="unavailable", reason=reason), status=503, headers=((b"retry-after", b"1"),))
