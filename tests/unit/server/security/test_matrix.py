"""Every route with every scope, with limits and without."""

import asyncio
from collections.abc import Callable

import pytest

from interlock.errors import NotAuthenticated, NotPermitted
from interlock.server.security.guard import ROUTES, Route, Subject
from interlock.server.security.keys import CreatedKey
from interlock.server.security.scopes import LADDER, Scope
from tests.unit.server.security.gates import Gate
from tests.unit.server.security.homes import bearer

Create = Callable[..., CreatedKey]


@pytest.mark.parametrize("scope", LADDER)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_the_matrix_of_every_route_and_every_scope(route: Route, scope: Scope, create: Create) -> None:
    """Each scope opens its own routes and those below it, and nothing else; without a key only the open ones."""

    async def scenario() -> None:
        free, limited = create(scope), create(scope, machines=("order",), prefixes=("o-",))
        async with Gate(free, limited) as gate:
            check = gate.guard.check_route
            if route.scope is None:
                assert check({}, route) is None
                return
            with pytest.raises(NotAuthenticated):
                check({}, route)
            if LADDER.index(scope) < LADDER.index(route.scope):
                for created in (free, limited):
                    with pytest.raises(NotPermitted, match=f"no scope {route.scope}"):
                        check(bearer(created), route, machine="order", workflow="o-1")
                return
            assert check(bearer(free), route, machine="any", workflow="any")
            if route.subject is Subject.HOME:
                with pytest.raises(NotPermitted, match="all workflows"):
                    check(bearer(limited), route)
                return
            assert check(bearer(limited), route, machine="order", workflow="o-1")
            for machine, workflow in (("payroll", "o-1"), ("order", "p-1"), ("payroll", None), (None, "p-1")):
                with pytest.raises(NotPermitted, match="limited to machines order and ids that begin with o-"):
                    check(bearer(limited), route, machine=machine, workflow=workflow)

    asyncio.run(scenario())
