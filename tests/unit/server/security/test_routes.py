"""The table of routes: all of them are in it, and nothing is open that should not be."""

import re

import pytest

from interlock.server.security.guard import ROUTES, Subject, route_for
from interlock.server.security.scopes import Scope

PUBLISHED = """
POST /v1/machines/{machine}/workflows
GET /v1/workflows/{id}
POST /v1/workflows/{id}/events
POST /v1/events:batch
GET /v1/workflows/{id}/history
GET /v1/workflows/{id}/allowed
GET /v1/workflows
GET /v1/stalled
GET /v1/machines
GET /v1/machines/{machine}
GET /v1/stream
POST /v1/webhooks/{source}
GET /v1/compensations
GET /v1/dead-letters
POST /v1/dead-letters/{id}/retry
POST /v1/dead-letters/{id}/resolve
GET /v1/breakers
PUT /v1/breakers/{name}
GET /v1/contention
POST /v1/databases/{name}/transactions
GET /healthz
GET /readyz
GET /metrics
GET /docs
GET /
"""
"""The published surface, written a second time: a route that is lost from the table is missed here."""

OPEN = {
    "POST /v1/webhooks/{source}",
    "GET /healthz",
    "GET /readyz",
    "GET /docs",
    "GET /docs/style.css",
    "GET /openapi.json",
    "GET /",
    "GET /ui/{path}",
    "GET /ui/{folder}/{path}",
}


def test_every_published_route_is_in_the_table() -> None:
    for line in PUBLISHED.strip().splitlines():
        method, path = line.split()
        assert route_for(method, path), line


def test_no_route_is_there_twice() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_only_these_need_no_key() -> None:
    """A probe, a page without data, and a webhook, whose signature is its key."""
    assert {f"{route.method} {route.path}" for route in ROUTES if route.scope is None} == OPEN
    assert all(route.subject is Subject.NOTHING for route in ROUTES if route.scope is None)


def test_whoever_may_only_read_changes_nothing() -> None:
    for route in ROUTES:
        if route.scope is Scope.READ:
            assert route.method == "GET", route
        elif route.scope is not None:
            assert route.method != "GET", route


def test_a_route_with_a_machine_or_a_workflow_in_its_path_looks_at_it() -> None:
    for route in ROUTES:
        if re.search(r"/machines/\{machine\}", route.path):
            assert route.subject is Subject.MACHINE
        if re.search(r"/workflows/\{id\}|/dead-letters/\{letter\}", route.path):
            assert route.subject is Subject.WORKFLOW


def test_sql_is_for_administrators() -> None:
    found = route_for("POST", "/v1/databases/{name}/transactions")
    assert found
    assert (found.scope, found.subject) == (Scope.ADMIN, Subject.HOME)


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/workflows"), ("GET", "/v1/keys"), ("OPTIONS", "/")])
def test_an_unknown_route_is_not_found(method: str, path: str) -> None:
    assert route_for(method, path) is None


def test_head_is_as_get_and_values_may_have_any_name() -> None:
    assert route_for("GET", "/v1/workflows/{workflow:str}") is route_for("GET", "/v1/workflows/{id}")
    assert route_for("HEAD", "/v1/workflows") is route_for("GET", "/v1/workflows")
