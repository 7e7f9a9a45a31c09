"""Health and readiness, which tell the truth: needed by whoever starts, stops and spreads load.

`/healthz` fails when nothing will ever work here again, and a restart helps. `/readyz` fails while requests should go
elsewhere: the server is stopping, or the store does not answer. A Redis that is gone is told, and is no reason to go
elsewhere. Neither needs a key, and neither tells a secret.
"""

from interlock.server.answers import Answer, shown
from interlock.server.requests import Request
from interlock.server.service import Service
from interlock.server.shapes import ShownHealth

ALONE = "Redis cannot be used: leases come from the store, limits and breakers are those of this process, until it can."


async def health(service: Service, request: Request) -> Answer:
    """Whether this process is of any use."""
    del request
    return _told(service.alive())


async def readiness(service: Service, request: Request) -> Answer:
    """Whether requests should come here."""
    del request
    reason = await service.ready()
    if reason is None and service.alone:
        return shown(ShownHealth(status="ok", reason=ALONE))
    return _told(reason)


def _told(reason: str | None) -> Answer:
    if reason is None:
        return shown(ShownHealth(status="ok"))
    return shown(ShownHealth(status="unavailable", reason=reason), status=503, headers=((b"retry-after", b"1"),))
