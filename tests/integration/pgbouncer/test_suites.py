"""The suites of stores, of claims, of traps and of migrations, unchanged, through a real PgBouncer (C15).

They are taken over whole: what is added to them is tried here too. Where one looks at the tables as a user would, it
does so past the pooler, because it sets a search path for a session of its own.
"""

import inspect
from collections.abc import Callable
from types import FunctionType, ModuleType

import pytest

from interlock.clock import Clock
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from tests.conformance.store import test_commit, test_lives, test_reads
from tests.conformance.store.places import Place
from tests.integration.postgres import stores, test_claims, test_concurrency, test_migrations, test_traps

SUITES = (test_commit, test_lives, test_reads, test_claims, test_concurrency, test_migrations, test_traps)

OTHERS = ("test_a_user_who_may_not_make_tables_is_told_and_nothing_is_left",)
"""This pooler has one user, whoever comes."""


@pytest.fixture
def place(postgres_url: str) -> Place:
    """A store behind the pooler."""

    async def open_it(clock: Clock) -> Store:
        return await open_store(postgres_url, clock=clock, settings={})

    return Place(open_it)


@pytest.fixture(autouse=True)
def _past_the_pooler(monkeypatch: pytest.MonkeyPatch, direct_url: str) -> None:
    somebody = stores.somebody
    for suite in SUITES:
        if hasattr(suite, "somebody"):
            monkeypatch.setattr(suite, "somebody", lambda _url: somebody(direct_url))


def taken_over(suite: ModuleType) -> dict[str, Callable[..., None]]:
    """The tests of a suite that open a store in PostgreSQL, wherever else they would run."""
    taken: dict[str, Callable[..., None]] = {}
    for name, test in vars(suite).items():
        if not name.startswith("test_") or not isinstance(test, FunctionType) or name in OTHERS:
            continue
        marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
        places = [mark for mark in marks if mark.name == "parametrize" and mark.args[0] == "place"]
        if not inspect.signature(test).parameters.keys() & {"place", "postgres_url"}:
            continue
        if any("postgres" not in mark.args[1] for mark in places):
            continue
        copy = FunctionType(test.__code__, test.__globals__, name, test.__defaults__, test.__closure__)
        copy.__doc__ = test.__doc__
        vars(copy)["pytestmark"] = [mark for mark in marks if mark not in places]
        taken[name] = copy
    return taken


for _suite in SUITES:
    _taken = taken_over(_suite)
    assert _taken
    assert not _taken.keys() & globals().keys()
    globals().update(_taken)
