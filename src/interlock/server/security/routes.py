"""The scope of every route as one table, for readers and for the test that compares it with the served routes.

The test fails for a served route that is not here, or whose scope differs. No route can be opened by mistake.
`subject` says how the limits of a key apply: to the machine or workflow in the path, to each item, or to the whole
home, which a limited key may not use.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from interlock.server.security.scopes import Scope


class Subject(Enum):
    """The subject of a route, which decides how limits apply."""

    NOTHING = "nothing"
    """No data of workflows: a page, a probe, a webhook."""
    MACHINE = "machine"
    """The machine in the path."""
    WORKFLOW = "workflow"
    """The workflow in the path, or that of the dead letter there; its machine is checked too, once it is known."""
    ITEMS = "items"
    """Each item on its own: those outside the limits are left out of a listing, and refused in a batch."""
    HOME = "home"
    """The whole home: not for a key with limits."""


class Route(NamedTuple):
    """One row of the table."""

    method: str
    path: str
    scope: Scope | None
    """None if no key is needed."""
    subject: Subject


_READ, _SEND, _OPERATE, _ADMIN = Scope.READ, Scope.SEND, Scope.OPERATE, Scope.ADMIN

ROUTES: Final[tuple[Route, ...]] = (
    Route("POST", "/v1/machines/{machine}/workflows", _SEND, Subject.MACHINE),
    Route("GET", "/v1/machines", _READ, Subject.ITEMS),
    Route("GET", "/v1/machines/{machine}", _READ, Subject.MACHINE),
    Route("GET", "/v1/workflows", _READ, Subject.ITEMS),
    Route("GET", "/v1/workflows/{id}", _READ, Subject.WORKFLOW),
    Route("GET", "/v1/workflows/{id}/history", _READ, Subject.WORKFLOW),
    Route("GET", "/v1/workflows/{id}/allowed", _READ, Subject.WORKFLOW),
    Route("GET", "/v1/workflows/{id}/stats", _READ, Subject.WORKFLOW),
    Route("GET", "/v1/workflows/{id}/wait", _READ, Subject.WORKFLOW),
    Route("POST", "/v1/workflows/{id}/events", _SEND, Subject.WORKFLOW),
    Route("POST", "/v1/events:batch", _SEND, Subject.ITEMS),
    Route("GET", "/v1/stalled", _READ, Subject.ITEMS),
    Route("GET", "/v1/stream", _READ, Subject.ITEMS),
    # The signature of the source replaces the key, because a source cannot send a bearer token.
    Route("POST", "/v1/webhooks/{source}", None, Subject.NOTHING),
    Route("GET", "/v1/compensations", _READ, Subject.ITEMS),
    Route("GET", "/v1/dead-letters", _READ, Subject.ITEMS),
    Route("POST", "/v1/dead-letters/{letter}/retry", _OPERATE, Subject.WORKFLOW),
    Route("POST", "/v1/dead-letters/{letter}/resolve", _OPERATE, Subject.WORKFLOW),
    Route("GET", "/v1/breakers", _READ, Subject.HOME),
    Route("PUT", "/v1/breakers/{name}", _OPERATE, Subject.HOME),
    Route("PUT", "/v1/limits/{name}", _OPERATE, Subject.HOME),
    Route("GET", "/v1/admission", _READ, Subject.HOME),
    Route("PUT", "/v1/admission", _OPERATE, Subject.HOME),
    Route("POST", "/v1/prune", _ADMIN, Subject.HOME),
    Route("GET", "/v1/contention", _READ, Subject.ITEMS),
    Route("POST", "/v1/databases/{name}/transactions", _ADMIN, Subject.HOME),
    Route("GET", "/metrics", _READ, Subject.HOME),
    # Probes and pages hold no workflow data: a page requests its data with the viewer's key.
    Route("GET", "/healthz", None, Subject.NOTHING),
    Route("GET", "/readyz", None, Subject.NOTHING),
    Route("GET", "/docs", None, Subject.NOTHING),
    Route("GET", "/docs/style.css", None, Subject.NOTHING),
    Route("GET", "/openapi.json", None, Subject.NOTHING),
    Route("GET", "/", None, Subject.NOTHING),
    Route("GET", "/ui/{path}", None, Subject.NOTHING),
    Route("GET", "/ui/{folder}/{path}", None, Subject.NOTHING),
)

_VALUE: Final = re.compile(r"\{[^}]*\}")
_BY_NAME: Final = {(route.method, _VALUE.sub("{}", route.path)): route for route in ROUTES}


def route_for(method: str, path: str) -> Route | None:
    """Return the row of a route by its method and path pattern; the names of values in braces do not matter.

    Returns None for an unknown route, which must not be served.
    """
    return _BY_NAME.get(("GET" if method == "HEAD" else method, _VALUE.sub("{}", path)))
