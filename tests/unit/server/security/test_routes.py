"""The table of routes: it is as expected, and nothing is open that should not be."""

import re

from interlock.server.security.keys import Scope
from tests.unit.server.asking import EVERY
from tests.unit.server.security.expected import EXPECTED, Permission


def test_every_route_is_served_with_the_expected_scope_and_subject_and_no_other_route_is() -> None:
    assert {(route.method, route.path): Permission(route.scope, route.about) for route in EVERY} == EXPECTED


def test_no_route_is_there_twice() -> None:
    assert len({(route.method, re.sub(r"{\w+}", "{}", route.path)) for route in EVERY}) == len(EVERY)


def test_only_a_route_without_workflow_data_needs_no_key() -> None:
    """A probe, a page without data, and a webhook, whose signature is its key."""
    assert all((route.scope is None) == (route.about is None) for route in EVERY)


def test_a_key_that_may_only_read_changes_nothing() -> None:
    for route in EVERY:
        if route.scope is Scope.READ:
            assert route.method == "GET", route
        elif route.scope is not None:
            assert route.method != "GET", route


def test_a_route_with_a_machine_or_a_workflow_in_its_path_looks_at_it() -> None:
    for route in EVERY:
        if re.search(r"/machines/\{machine\}", route.path):
            assert route.about == "machine"
        if re.search(r"/workflows/\{id\}", route.path):
            assert route.about == "workflow"
        if re.search(r"/dead-letters/\{letter\}", route.path):
            assert route.about == "letter"
        if re.search(r"/tasks/\{task\}", route.path):
            assert route.about == "task"
