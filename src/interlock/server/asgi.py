"""`interlock.asgi(engine)`: the ASGI app that serves an engine over HTTP.

    app.mount("/interlock", interlock.asgi(engine))

It is written against ASGI itself, without a framework: a request costs some microseconds besides the engine's work.
Every error is answered as a problem document; no exception reaches the server that runs the app. The dashboard's files
need no key: they request their data from `/v1` with the viewer's key.
"""

import asyncio
from collections.abc import Mapping, Sequence

from interlock.clock import Clock
from interlock.database.database import Database
from interlock.engine.engine import Engine
from interlock.errors import InterlockError, OutcomeUnknown, Overloaded
from interlock.server.app_declaration import Limits, Webhook
from interlock.server.http_messages import (
    API_HEADERS,
    CLOSE,
    AsgiScope,
    Disconnected,
    HttpAnswer,
    Receive,
    Request,
    Send,
    StreamedAnswer,
    answer_to,
    headers_of,
    slow_body,
)
from interlock.server.openapi import PAGES
from interlock.server.problems import HttpProblem, log_unexpected
from interlock.server.router import Endpoint, Router
from interlock.server.routes import ROUTES
from interlock.server.security.guard import Audit, Guard, Identity
from interlock.server.service import Service
from interlock.ui import PAGE, PREFIX, answer, assets

RETRY_S = 1.0

CROWD = 256
"""With more room than this no head is refused: fewer heads than this arrive in one turn of the event loop."""


async def asset(_service: Service, request: Request) -> HttpAnswer:
    """Return one file of the dashboard, or 304 when the browser has it. A path is never joined to a folder."""
    path = PREFIX + "/".join(request.parts) if request.parts else PAGE
    known = request.headers.get(b"if-none-match")
    found = answer(path, None if known is None else known.decode("latin-1"))
    if found is None:
        raise HttpProblem(
            "not-found",
            f"the dashboard has no file {path!r:.300}.",
            why="It has only the files that are installed with Interlock.",
            fix="Load the page again: after an upgrade it names other files.",
        )
    headers = tuple((name.encode(), value.encode()) for name, value in found.headers)
    return HttpAnswer(found.status, found.body, headers, secured=True)


def _depths() -> list[str]:
    depths = {path.removeprefix(PREFIX).count("/") + 1 for path in assets() if path != PAGE}
    return [PREFIX + "/".join(["{folder}"] * (depth - 1) + ["{path}"]) for depth in sorted(depths)]


DASHBOARD: tuple[Endpoint, ...] = tuple(
    Endpoint("GET", None, path, asset, ignores_query=True) for path in (PAGE, *_depths())
)


class AsgiApp:
    """An ASGI app that serves one engine. Make one with `interlock.asgi`."""

    def __init__(self, service: Service, routes: Sequence[Endpoint] = ()) -> None:
        self.service = service
        self._router = Router((*ROUTES, *PAGES, *DASHBOARD, *routes))
        self._admitted = 0
        """Requests admitted by `refusal` in this turn of the event loop."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or handle the lifespan protocol."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003, "reason": "WebSockets are not supported."})

    def refusal(self, scope: AsgiScope) -> HttpAnswer | None:
        """Return the answer to a request that is refused by its head alone under overload (C7); None for all others.

        Most requests are refused then, and the cost of a refusal slows admitted requests down. A refusal therefore
        creates no task, awaits nothing, and does not read the body. The answer is the one that the route would give.
        Any other problem of a request is left to the route.

        Many heads may be read in one turn of the event loop, before any of their requests has taken its token.
        Requests admitted in this turn are therefore counted as if they had taken theirs.
        """
        service = self.service
        room = service.room
        if room > CROWD or service.under_way >= service.limits.requests_max or scope["query_string"]:
            return None
        try:
            route, parts = self._router.find(scope["method"], scope)
            if route.enters is None or not service.guard.is_fresh:
                return None
            starts = route.enters == "start"
            if starts:
                service.machine(parts[0])
            authorize(service, route, parts, headers_of(scope["headers"]))
        except InterlockError:
            return None  # The route raises it again, in its own order.
        refused = service.overloaded(self._admitted, starts=starts) if room < 1 + self._admitted else None
        if refused is not None:
            return answer_to(refused)
        if not self._admitted:
            asyncio.get_running_loop().call_soon(self._reset_turn)
        self._admitted += 1
        return None

    def _reset_turn(self) -> None:
        self._admitted = 0

    def leave(self) -> None:
        """Announce that the server is about to stop: `/readyz` fails from now on, and streams end."""
        self.service.leave()

    async def close(self) -> None:
        """End the streams and close the databases that the app opened. The caller closes the engine."""
        await self.service.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        service = self.service
        request = Request(scope, receive, service.limits)
        service.under_way += 1
        try:
            answer = await self._answer(scope, request)
            if isinstance(answer, HttpAnswer):
                body = answer.body
                length = (b"content-length", b"%d" % len(body))
                headers = [*answer.headers, length, *(() if answer.secured else API_HEADERS)]
                if request.read_bytes is not None and CLOSE[0] not in headers and request.ends_connection():
                    headers += CLOSE
                await send({"type": "http.response.start", "status": answer.status, "headers": headers})
                await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})
            else:
                await _stream(answer, request, send)
        except Disconnected:
            return
        finally:
            service.under_way -= 1

    async def _answer(self, scope: AsgiScope, request: Request) -> HttpAnswer | StreamedAnswer:
        try:
            if self.service.under_way > self.service.limits.requests_max:
                raise Overloaded(RETRY_S, f"{self.service.under_way:,} requests are under way already.")  # noqa: TRY301
            route, request.parts = self._router.find(request.method, scope)
            if route.scope is not None:
                await self._check(route, request)
            if request.query_string and not route.ignores_query:
                request.parse_query(route.query_names)
            async with asyncio.timeout(request.limits.request_s):
                if self.service.carried is None:
                    return await route.handler(self.service, request)
                with self.service.carried(request.header(b"traceparent") or ""):
                    return await route.handler(self.service, request)
        except InterlockError as error:
            return answer_to(error)
        except TimeoutError:
            return answer_to(_too_long(request))
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 -- every bug is answered with 500 and logged.
            return answer_to(log_unexpected(error, f"{request.method} {scope['path']!r:.200}"))

    async def _check(self, route: Endpoint, request: Request) -> None:
        """Authorize the request by its route and path. Raises 401 and 403."""
        await self.service.guard.fresh()
        request.identity = authorize(self.service, route, request.parts, request.headers)


def authorize(service: Service, route: Endpoint, parts: Sequence[str], headers: Mapping[bytes, bytes]) -> Identity:
    """Authorize a request by its head. Raises 401 and 403."""
    identity = service.guard.identify(headers)
    assert route.scope is not None
    first = parts[0] if parts else None
    only = service.only if route.about == "workflow" else None
    machine = first if route.about == "machine" else None if only is None else only.name
    workflow = first if route.about == "workflow" else None
    identity.require(route.scope, machine=machine, workflow=workflow, whole=route.about == "home")
    return identity


async def _stream(answer: StreamedAnswer, request: Request, send: Send) -> None:
    """Send the pieces as they are produced, until the last one or until the client disconnects."""
    await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, *API_HEADERS]})
    if request.method == "HEAD":
        await answer.pieces.aclose()
        await send({"type": "http.response.body", "body": b""})
        return
    try:
        async for piece in answer.pieces:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        await answer.pieces.aclose()
    await send({"type": "http.response.body", "body": b""})


def _too_long(request: Request) -> InterlockError:
    if request.reads:
        return slow_body(f"the body of the request was not complete after {request.limits.request_s:g} s (request_s).")
    what = f"the request took longer than {request.limits.request_s:g} s."
    if request.method in {"GET", "HEAD"}:
        return Overloaded(RETRY_S, what)
    return OutcomeUnknown(what, why="The engine completes it, but the server no longer waits for its result.")


def asgi(
    engine: Engine,
    *,
    home: str | None = None,
    databases: Mapping[str, Database] | None = None,
    webhooks: Sequence[Webhook] = (),
    guard: Guard | None = None,
    audit: Audit | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
) -> AsgiApp:
    """Return an ASGI app that serves an open engine.

    `home` makes its databases reachable; `databases` passes open ones by name. Without a `guard` every client may do
    everything: mount the app where another layer authorizes requests, or serve it on loopback.
    """
    return AsgiApp(
        Service(
            engine,
            guard=guard,
            audit=audit,
            limits=limits,
            clock=clock,
            home=home,
            databases=databases,
            webhooks=webhooks,
        )
    )
