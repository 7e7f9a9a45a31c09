"""The door: a request that the engine would not take in is refused by its head alone (C7).

Under overload most of what comes is refused, and whatever a refusal costs is taken from those that were let in: so
there is no task for it, nothing is waited for, and its body is not looked at. The answer is the one that the route
itself would give; whatever else may be wrong with a request, or has to be waited for, is left to the route.

Requests come in crowds, and none of a crowd has taken its token before all of their heads are read: so those that were
let in during one turn of the event loop are counted as if they had.
"""

import asyncio
from collections.abc import Mapping, Sequence

from interlock.errors import InterlockError
from interlock.server.answers import Answer
from interlock.server.problems import answer_to
from interlock.server.requests import AsgiScope, headers_of
from interlock.server.routing import Route, Router, ServedT
from interlock.server.security.identity import Identity
from interlock.server.service import Service

CROWD = 256
"""With more room than this nobody is looked at: so many do not come in one turn."""


class Door:
    """The door of one app."""

    def __init__(self, service: Service, router: Router[ServedT]) -> None:
        self._service = service
        self._find = router.find
        self._let_in = 0
        """In this turn of the event loop."""

    def refusal(self, scope: AsgiScope) -> Answer | None:
        """The answer to a request that is refused at once; None for all others."""
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
            return None  # Which is told by the route, in its own order.
        refused = service.overloaded(self._let_in, starts=starts) if room < 1 + self._let_in else None
        if refused is not None:
            return answer_to(refused)
        if not self._let_in:
            asyncio.get_running_loop().call_soon(self._turned)
        self._let_in += 1
        return None

    def _turned(self) -> None:
        self._let_in = 0


def permitted(
    service: Service, route: Route[ServedT], parts: Sequence[str], headers: Mapping[bytes, bytes]
) -> Identity:
    """Ask the guard, with whatever the head of a request tells. Raises 401 and 403."""
    identity = service.guard.identify(headers)
    assert route.scope is not None
    first = parts[0] if parts else None
    only = service.only if route.about == "workflow" else None
    machine = first if route.about == "machine" else None if only is None else only.name
    workflow = first if route.about == "workflow" else None
    identity.require(route.scope, machine=machine, workflow=workflow, whole=route.about == "home")
    return identity
