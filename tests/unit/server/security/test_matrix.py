"""Every route with every scope, with limits and without."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from interlock.errors import NotAuthenticated, NotPermitted
from interlock.server.asgi import authorize
from interlock.server.router import Endpoint
from interlock.server.security.guard import Guard, Identity
from interlock.server.security.keys import LADDER, CreatedKey, Scope
from interlock.server.service import Service
from tests.unit.server.asking import EVERY, named
from tests.unit.server.security.expected import permission
from tests.unit.server.security.gates import Gate
from tests.unit.server.security.homes import bearer

Create = Callable[..., CreatedKey]

GUARDED = [route for route in EVERY if route.scope is not None]

VISIBLE = {"machine": "order", "workflow": "o-1"}
HIDDEN = {"machine": "payroll", "workflow": "p-1"}


def check(
    guard: Guard, headers: Mapping[bytes, bytes], route: Endpoint, value: str = "", *, only: str | None = None
) -> Identity:
    """Authorize a request with this value in its path, at a server that has one machine only, if one is named."""
    service = SimpleNamespace(guard=guard, only=None if only is None else SimpleNamespace(name=only))
    return authorize(cast("Service", service), route, (value,) if "{" in route.path else (), headers)


@pytest.mark.parametrize("scope", LADDER)
@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_the_matrix_of_every_route_and_every_scope(route: Endpoint, scope: Scope, create: Create) -> None:
    """Each scope opens its own routes and those below it, and nothing else; without a key only the open ones."""
    needed, subject = permission(route)
    assert needed is not None
    assert subject is not None

    async def scenario() -> None:
        free, limited = create(scope), create(scope, machines=("order",), prefixes=("o-",))
        async with Gate(free, limited) as gate:
            with pytest.raises(NotAuthenticated):
                check(gate.guard, {}, route)
            visible = VISIBLE.get(subject, "gateway")
            if LADDER.index(scope) < LADDER.index(needed):
                for created in (free, limited):
                    with pytest.raises(NotPermitted, match=f"no scope {needed}"):
                        check(gate.guard, bearer(created), route, visible)
                return
            assert check(gate.guard, bearer(free), route, HIDDEN.get(subject, "gateway")).key == free.record.id
            if subject == "home":
                with pytest.raises(NotPermitted, match="all workflows"):
                    check(gate.guard, bearer(limited), route, visible)
                return
            assert check(gate.guard, bearer(limited), route, visible).key == limited.record.id
            if subject in HIDDEN:
                with pytest.raises(NotPermitted, match="limited to machines order and ids that begin with o-"):
                    check(gate.guard, bearer(limited), route, HIDDEN[subject])
            if subject == "workflow":
                assert check(gate.guard, bearer(limited), route, visible, only="order").limited
                with pytest.raises(NotPermitted, match="limited to machines order and ids that begin with o-"):
                    check(gate.guard, bearer(limited), route, visible, only="payroll")

    asyncio.run(scenario())


@pytest.mark.parametrize("scope", LADDER)
def test_limits_apply_to_a_machine_and_a_workflow_together(scope: Scope, create: Create) -> None:
    async def scenario() -> None:
        limited = create(scope, machines=("order",), prefixes=("o-",))
        async with Gate(limited) as gate:
            assert gate.guard.check(bearer(limited), scope, "order", "o-1").key == limited.record.id
            for machine, workflow in (("payroll", "o-1"), ("order", "p-1"), ("payroll", None), (None, "p-1")):
                with pytest.raises(NotPermitted, match="limited to machines order and ids that begin with o-"):
                    gate.guard.check(bearer(limited), scope, machine, workflow)

    asyncio.run(scenario())
