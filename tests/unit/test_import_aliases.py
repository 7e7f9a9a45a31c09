"""Documented imports of the first preview still work, and give the modules of today."""

import functools
import importlib
from collections.abc import Callable

import pytest

import interlock
from interlock.clock import SystemClock
from interlock.database.call_digest import digest_of
from interlock.hotrow import stock
from interlock.import_aliases import MOVED_PATHS
from interlock.server.handlers.sql import run_statements


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new in MOVED_PATHS.items() if new is not None])
def test_an_old_path_is_the_module_of_today(old: str, new: str) -> None:
    assert importlib.import_module(old) is importlib.import_module(new)


def test_a_class_has_one_identity_under_both_paths() -> None:
    from interlock.seams import SystemClock  # type: ignore[import-not-found] # noqa: PLC0415

    assert SystemClock is importlib.import_module("interlock.clock").SystemClock


def test_other_old_paths_are_not_found() -> None:
    assert interlock.__name__ == "interlock"
    with pytest.raises(ModuleNotFoundError, match=r"interlock\.runtime\.inside"):
        importlib.import_module("interlock.runtime.inside")


def test_a_module_below_a_renamed_package_is_no_second_copy() -> None:
    assert importlib.import_module("interlock.runtime.alerts.receivers").PagerDuty is interlock.PagerDuty
    assert importlib.import_module("interlock.testing.engines.run") is importlib.import_module(
        "interlock.testing.engine_simulation.simulate_engine"
    )


async def buy(tx: object, clock: object) -> None:
    """A function of a program."""


buy.__module__, buy.__qualname__ = "shop", "buy"


@pytest.mark.parametrize(
    ("function", "args", "digest"),
    [
        (run_statements, (1,), "e85af5183e5885473ab439f438ac20fc"),
        (functools.partial(buy, clock=SystemClock), (), "5ae932cf267d44ad0d37a1cf9e770377"),
        (functools.partial(buy, clock=interlock.Engine), (), "e77f945301d7c5b54c34cd0e81e44988"),
        (stock._give_back, ("a", 1), "a34e14c956ffc47b1e23c7ad282ef800"),
    ],
)
def test_a_call_that_the_first_preview_stored_is_known_by_its_key(
    function: Callable[..., object], args: tuple[object, ...], digest: str
) -> None:
    """Digests that were computed before the modules moved: a repeated key must find its result, not be refused."""
    assert digest_of("transact", function, args).hex() == digest
