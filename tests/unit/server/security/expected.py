"""The permissions of every route, written a second time: scope and subject, independent of the table that is served.

A route that is added, lost, opened or made to look at another subject differs from this list until both are changed.
"""

from typing import NamedTuple

from interlock.server.router import Endpoint
from interlock.server.security.keys import Scope

WRITTEN = """
POST /v1/machines/{machine}/workflows send machine
GET /v1/machines read items
GET /v1/machines/{machine} read machine
GET /v1/workflows read items
GET /v1/workflows/{id} read workflow
GET /v1/workflows/{id}/history read workflow
GET /v1/workflows/{id}/children read workflow
GET /v1/workflows/{id}/attempts read workflow
GET /v1/workflows/{id}/why read workflow
POST /v1/workflows/{id}/fork operate workflow
POST /v1/workflows/{id}/rewind operate workflow
GET /v1/workflows/{id}/allowed read workflow
GET /v1/workflows/{id}/stats read workflow
GET /v1/workflows/{id}/wait read workflow
POST /v1/workflows/{id}/events send workflow
POST /v1/events:batch send items
GET /v1/stalled read items
GET /v1/stream read items
POST /v1/webhooks/{source} - -
GET /v1/compensations read items
GET /v1/whoami read items
GET /v1/dead-letters read items
GET /v1/dead-letters/groups read items
POST /v1/dead-letters/{letter}/retry operate letter
POST /v1/dead-letters/{letter}/resolve operate letter
GET /v1/breakers read home
PUT /v1/breakers/{name} operate home
PUT /v1/limits/{name} operate home
GET /v1/admission read home
PUT /v1/admission operate home
POST /v1/prune admin home
GET /v1/contention read items
GET /v1/charts read items
GET /v1/tasks read items
GET /v1/tasks/{task} read task
POST /v1/tasks/{task}/claim send task
POST /v1/tasks/{task}/release send task
GET /v1/pauses read home
POST /v1/pauses operate home
POST /v1/pauses/resume operate home
GET /v1/bulk read home
GET /v1/bulk/{name} read home
POST /v1/bulk/{name} operate home
DELETE /v1/bulk/{name} operate home
GET /v1/schedules read home
GET /v1/schedules/{name} read home
PUT /v1/schedules/{name} operate home
DELETE /v1/schedules/{name} operate home
POST /v1/schedules/{name}/pause operate home
POST /v1/schedules/{name}/resume operate home
POST /v1/schedules/{name}/trigger operate home
POST /v1/schedules/{name}/backfill operate home
POST /v1/databases/{name}/transactions admin home
GET /metrics read home
GET /healthz - -
GET /readyz - -
GET /docs - -
GET /docs/style.css - -
GET /openapi.json - -
GET / - -
GET /ui/{path} - -
GET /ui/{folder}/{path} - -
"""


class Permission(NamedTuple):
    """Who may use a route: the scope of a key (None: no key is needed), and the subject of its limits."""

    scope: Scope | None
    subject: str | None


def _expected() -> dict[tuple[str, str], Permission]:
    rows = [line.split() for line in WRITTEN.strip().splitlines()]
    return {
        (method, path): Permission(None if scope == "-" else Scope(scope), None if subject == "-" else subject)
        for method, path, scope, subject in rows
    }


EXPECTED = _expected()


def permission(route: Endpoint) -> Permission:
    """What is expected of a served route; a KeyError for a route without an expectation."""
    return EXPECTED[route.method, route.path]
