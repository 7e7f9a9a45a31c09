"""The page on the errors of steps tells what the code does (C3)."""

import builtins
import pkgutil
import re
import sqlite3
from pathlib import Path

import psycopg
import pytest

from interlock.engine.dependencies import classify_errors
from interlock.engine.dependencies.classify_errors import Kind
from interlock.engine.steps.attempt import DELAY_S_MAX

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors-of-steps.md").read_text()


def rows(heading: str) -> list[tuple[str, Kind]]:
    """The rows of the table under such a head, each with its kind."""
    [table] = re.findall(rf"^\| {heading} \| kind \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [(cell, Kind(kind)) for cell, kind in re.findall(r"^\| (.+) \| (\w+) \|$", table, re.MULTILINE)]


def named(cell: str) -> list[type[BaseException]]:
    """The classes that a row names; those of a library that is not installed here are stood in for."""
    library = re.match(r"(\w+)'s ", cell)
    names = re.findall(r"`([\w.]+)`", cell)
    if library is not None:
        return [type(name, (Exception,), {"__module__": library[1]}) for name in names]
    return [getattr(builtins, name, None) or pkgutil.resolve_name(name) for name in names]


CLASSES = [(cls, kind) for cell, kind in rows("errors") for cls in named(cell)]


@pytest.mark.parametrize(("cls", "kind"), CLASSES, ids=lambda each: getattr(each, "__name__", None))
def test_a_class_on_the_page_is_of_that_kind(cls: type[BaseException], kind: Kind) -> None:
    rule = classify_errors._rule_of(cls)
    assert (rule(cls.__new__(cls)) if callable(rule) else rule)[0] is kind


def test_every_class_with_a_rule_is_on_the_page() -> None:
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", PAGE))))
    read = {"Exception", "BaseExceptionGroup", "StatementError"}  # Those are told in words.
    assert not {name for _, name in classify_errors._RULES} - told - read


def test_the_statuses_on_the_page_are_those_of_the_code() -> None:
    told: dict[int, Kind] = {}
    for cell, kind in rows("status"):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", cell):
            for status in range(int(first), int(last or first) + 1):
                told.setdefault(status, kind)
    assert told == {status: (classify_errors._of_status(status, None) or (None,))[0] for status in range(100, 600)}


def test_the_classes_of_sqlstate_on_the_page_are_those_of_the_code() -> None:
    told = {each: kind for cell, kind in rows("class") for each in cell.split(", ")}
    assert told == classify_errors.SQLSTATES


@pytest.mark.parametrize("driver", [sqlite3, psycopg])
def test_the_classes_of_drivers_on_the_page_are_of_that_kind(driver: object) -> None:
    for cell, kind in rows("class of the driver"):
        for name in re.findall(r"`(\w+)`", cell):
            assert classify_errors.kind_of(getattr(driver, name)("x"))[0] is kind


def test_the_longest_wait_is_told() -> None:
    assert f"more than {DELAY_S_MAX / 86_400:g} days" in " ".join(PAGE.split())
