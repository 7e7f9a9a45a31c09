"""Documented imports of the first preview still work, and give the modules of today."""

import importlib

import pytest

import interlock
from interlock.moved_paths import MOVED_PATHS


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
