"""Every route that is served, and a good request for each: made of its own description, so that none is forgotten.

The values in the path are those of a home where something of everything is. The body is the example of the document,
which is thereby tried too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from interlock.server.asgi import DASHBOARD
from interlock.server.openapi import PAGES
from interlock.server.router import Endpoint
from interlock.server.routes import ROUTES

EVERY: tuple[Endpoint, ...] = (*ROUTES, *PAGES, *DASHBOARD)
WITH_BODY = [route for route in ROUTES if route.body is not None]
WITH_VALUES = [route for route in ROUTES if "{" in route.path]

VALUES = {
    "machine": "order",
    "id": "o-1",
    "letter": "none",
    "task": "o-1@1",
    "source": "shop",
    "folder": "views",
    "path": "app.js",
}
NAMES = {"/v1/databases/{name}/transactions": "stock"}
"""What `{name}` is, where it is not the name of a dependency."""

BODIES = {
    "/v1/machines/{machine}/workflows": {"id": "o-1", "context": {}},
    "/v1/databases/{name}/transactions": {"statements": [{"sql": "CREATE TABLE t (n int)"}]},
    "/v1/workflows/{id}/events": {"event": "REMARK", "data": {"note": "x"}},
    "/v1/events:batch": '{"id": "o-1", "event": "REMARK", "data": {"note": "x"}}\n',
}
"""Where the example is about a context or an alphabet that the shop of the tests does not have."""

QUERIES = {"/v1/stream": "kind=none", "/v1/workflows/{id}/wait": "timeout_s=0"}
"""Nobody would end a stream here: whoever may see it is told of the mistake."""


@dataclass
class Asked:
    """A request to a route."""

    method: str
    path: str
    query: str = ""
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def named(route: Endpoint) -> str:
    """The name of a route in a list of tests."""
    return f"{route.method} {route.path}"


def asked(route: Endpoint, body: object = None, **values: str) -> Asked:
    """A good request, with other values in the path or another body where some are given."""
    known: Mapping[str, str] = {"name": NAMES.get(route.path, "gateway"), **VALUES, **values}
    path = re.sub(r"{(\w+)}", lambda found: known[found[1]], route.path)
    found = Asked(route.method, path, QUERIES.get(route.path, ""))
    if route.body is not None:
        given = body if body is not None else BODIES.get(route.path, route.body_example)
        found.content = given.encode() if isinstance(given, str) else msgspec.json.encode(given)
        found.headers = {"content-type": route.body_media}
    return found
