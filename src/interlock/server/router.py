"""The router: which endpoint a request is for, and the values in its path.

It is a tree of path segments; a literal segment takes precedence over a variable. Values are taken from the path as it
was sent: an encoded slash stays in its id, which is refused as invalid, instead of selecting another route.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal
from urllib.parse import quote, unquote

import msgspec

from interlock.engine.path.caller_commands import DOT_SEGMENTS
from interlock.errors import InvalidPayload
from interlock.server.http_messages import AsgiScope, HttpAnswer, Request, StreamedAnswer
from interlock.server.problems import HttpProblem
from interlock.server.security.keys import Scope
from interlock.server.service import Service

Handler = Callable[[Service, Request], Awaitable[HttpAnswer | StreamedAnswer]]

SEGMENTS_MAX = 20


class RouteParameter(msgspec.Struct, frozen=True):
    """A query parameter or a header, as OpenAPI describes it."""

    name: str
    description: str
    schema: dict[str, object]
    place: Literal["query", "header"] = "query"
    example: object = None


class Endpoint(msgspec.Struct, frozen=True):
    """One route: its path, handler and scope, and its description for OpenAPI."""

    method: str
    scope: Scope | None
    """The scope that a key must have; None if no key is needed."""
    path: str
    handler: Handler
    about: Literal["workflow", "machine", "letter", "task", "items", "home"] | None = None
    """How the limits of a key apply: to the workflow, machine, dead letter or task in the path, to each item by itself
    (left out of a listing, refused in a batch), or to the whole home, which a key with limits may not use. None without
    workflow data.
    """
    summary: str = ""
    """Empty for a page, which the document leaves out."""
    enters: Literal["start", "event"] | None = None
    """The kind of call that the engine's admission may refuse."""
    tag: str = ""
    parameters: tuple[RouteParameter, ...] = ()
    ignores_query: bool = False
    """Whether a query may have any parameters; other routes refuse those that they do not declare."""
    body: type | None = None
    body_example: object = None
    body_media: str = "application/json"
    answer: type | None = None
    dry_answer: type | None = None
    """The answer of a dry run, if it is another one."""
    answers: tuple[int, ...] = (200,)
    answer_example: object = None
    answer_media: str = "application/json"
    lists: bool = False
    """The answer is a listing of `answer`."""
    also: tuple[int, ...] = ()
    """Statuses of its problems, besides those of every route with a key."""

    @property
    def query_names(self) -> list[str]:
        """The names of its query parameters."""
        return [each.name for each in self.parameters if each.place == "query"]

    @property
    def problems(self) -> list[int]:
        """The statuses of its problems."""
        if self.scope is None:
            return sorted(self.also)
        named = {404} if "{" in self.path else set[int]()
        # A batch is read in pieces, and a line that is too large is answered by itself.
        bounded = {413} if self.method != "GET" and self.body_media == "application/json" else set[int]()
        return sorted({400, 503, *self.also} | named | bounded)


class _Node:
    __slots__ = ("methods", "parts", "value")

    def __init__(self) -> None:
        self.parts: dict[str, _Node] = {}
        self.value: _Node | None = None
        self.methods: dict[str, Endpoint] = {}


class Router:
    """The routes of an app."""

    def __init__(self, routes: Sequence[Endpoint]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.path.split("/")[1:]:
                if part.startswith("{"):
                    node.value = node.value or _Node()
                    node = node.value
                else:
                    node = node.parts.setdefault(part, _Node())
            assert route.method not in node.methods, route.path
            node.methods[route.method] = route

    def find(self, method: str, scope: AsgiScope) -> tuple[Endpoint, tuple[str, ...]]:
        """Return the route of a request, and the values in its path. Raises 404 and 405."""
        node = self._root
        values: list[str] = []
        for part in segments(scope):
            known = node.parts.get(part)
            if known is None:
                known = node.value
                if part in DOT_SEGMENTS:
                    raise _dot_segment(part)
                values.append(part)
            if known is None:
                raise _no_path(scope)
            node = known
        route = node.methods.get(method)
        if route is None and method == "HEAD":
            route = node.methods.get("GET")
        if route is None:
            if not node.methods:
                raise _no_path(scope)
            raise _no_method(method, list(node.methods))
        return route, tuple(values)


def segments(scope: AsgiScope) -> list[str]:
    """Return the segments of the path below the app's mount point, each decoded by itself."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(root.rstrip("/") + "/")):
        path = path[len(root.rstrip("/")) :]
    sent = (scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    # Some frameworks that mount the app append a slash to the path, which the client did not send.
    bare = path.removesuffix("/") if sent and not sent.endswith("/") else path
    if "%" not in sent:
        return _split(bare)
    try:
        # The app may be mounted anywhere; a framework shortens the path, but not always the raw path.
        at = 0
        while at >= 0:
            if unquote(sent[at:], errors="strict") == bare:
                return [unquote(part, errors="strict") for part in _split(sent[at:])]
            at = sent.find("/", at + 1)
    except UnicodeDecodeError as error:
        raise InvalidPayload(
            f"the path {sent!r:.100} is not UTF-8: {error.reason}.",
            why="Ids are text, and an address carries text as percent-encoded UTF-8.",
            fix="Encode the id as UTF-8, then percent-encode it.",
        ) from error
    return _split(bare)


def mounted_at(scope: AsgiScope, path: str) -> str:
    """Return the app's mount point, from the scope of a request for `path` below it; empty if it is not mounted."""
    root: str = scope.get("root_path", "")
    if not root:  # Some frameworks do not set root_path; the raw path still shows it.
        sent = unquote((scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1"))
        root = sent.removesuffix(path) if sent.endswith(path) else ""
    return quote(root.rstrip("/"))


def _split(path: str) -> list[str]:
    return path.split("/", SEGMENTS_MAX)[1:] or [""]


def _dot_segment(part: str) -> InvalidPayload:
    return InvalidPayload(
        f"{part!r} is not an id or a name in an address.",
        why="Clients and proxies remove such a part from an address, so the request may be meant for another one.",
        fix="Use an id of 1 to 200 printable characters without a slash, other than . and ..",
    )


def _no_path(scope: AsgiScope) -> HttpProblem:
    return HttpProblem(
        "not-found",
        f"there is nothing at {scope['path']!r:.300}.",
        why="No route has this path.",
        fix="The page /docs shows every path.",
    )


def _no_method(method: str, allowed: list[str]) -> HttpProblem:
    known = ", ".join(sorted(allowed))
    return HttpProblem(
        "method-not-allowed",
        f"{method[:20]} is not allowed here; {known} is.",
        why="The path has no route for this method.",
        fix=f"Use {known}. The page /docs shows every path with its methods.",
        headers=((b"allow", known.encode()),),
    )
