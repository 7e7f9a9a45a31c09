"""Refusal of requests under overload by their head alone (C7).

Under overload most requests are refused, and the cost of a refusal slows admitted requests down. A refusal therefore
creates no task, awaits nothing, and does not read the body. The answer is the one that the route would give. Any
other problem of a request is left to the route.

Many heads may be read in one turn of the event loop, before any of their requests has taken its token. Requests
admitted in this turn are therefore counted as if they had taken theirs.
"""

import asyncio
from collections.abc import Mapping, Sequence

from interlock.errors import InterlockError
from interlock.server.problems import answer_to
from interlock.server.request import AsgiScope, headers_of
from interlock.server.response import Answer
from interlock.server.routing import Route, Router, ServedT
from interlock.server.security.scopes import Identity
from interlock.server.service import Service

CROWD = 256
"""With more room than this a request is not checked: fewer heads than this arrive in one turn of the event loop."""


class OverloadCheck:
    """The overload check of one app."""

    def __init__(self, service: Service, router: Router[ServedT]) -> None:
        self._service = service
        self._find = router.find
        self._admitted = 0
        """Requests admitted in this turn of the event loop."""

    def refusal(self, scope: AsgiScope) -> Answer | None:
        """Return the answer to a request that is refused immediately; None for all others."""
        service = self._service
        room = service.room
        if room > CROWD or service.under_way >= service.limits.requests_max or scope["query_string"]:
            return None
        try:
            route, parts = self._find(scope["method"], scope)
            if route.enters is None or not service.guard.is_fresh:
                return None
            starts = route.enters == "start"
            if starts:
                service.machine(parts[0])
            permitted(service, route, parts, headers_of(scope["headers"]))
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


def permitted(
    service: Service, route: Route[ServedT], parts: Sequence[str], headers: Mapping[bytes, bytes]
) -> Identity:
    """Authorize a request by its head. Raises 401 and 403."""
    identity = service.guard.identify(headers)
    assert route.scope is not None
    first = parts[0] if parts else None
    only = service.only if route.about == "workflow" else None
    machine = first if route.about == "machine" else None if only is None else only.name
    workflow = first if route.about == "workflow" else None
    identity.require(route.scope, machine=machine, workflow=workflow, whole=route.about == "home")
    return identity
