"""Classes are whole, and names are used once.

A number here may only fall. Lower it when the test prints a smaller one.
"""

import pytest

import interlock
from tests.tidy import classes, packages
from tests.tidy.source import Source, report, sources

LONELY_BASES = {
    "_Named": "`kw_only` of msgspec applies to all fields of a class, and the name of a Tool is positional",
    "Lane": "its subclass is the simulation's, whose threads take turns",
    "Readers": "its subclass is the simulation's, which reads without threads",
    "Life": "the harness kills engines by it; its subclass is the simulation's, which adds faults",
}
"""Base classes with one subclass, each with its reason. A new one needs a reason that is as good."""
REPEATED_CLASSES_MAX = 24
"""Uses of a public class name beyond the first one."""


def known_modules() -> dict[str, Source]:
    return packages.modules(sources("src"))


@pytest.mark.slow
def test_no_base_class_has_one_subclass() -> None:
    offences = classes.lonely_bases(classes.classes(known_modules()), public=interlock.__all__)
    assert {offence.what.split()[0] for offence in offences} == set(LONELY_BASES), report(offences)


@pytest.mark.slow
def test_repeated_names_of_classes_only_fall() -> None:
    # PEP 249 names the classes of a DB-API module: Connection, Cursor, InternalError.
    known = {name: source for name, source in known_modules().items() if not name.startswith("interlock.dbapi.")}
    offences = classes.repeated_classes(classes.classes(known))
    assert len(offences) <= REPEATED_CLASSES_MAX, report(offences)


def test_no_two_modules_have_one_base_name() -> None:
    offences = classes.repeated_modules(known_modules())
    assert not offences, report(offences)


def test_no_module_is_named_by_an_activity() -> None:
    offences = classes.gerunds(known_modules())
    assert not offences, report(offences)


def sample(**texts: str) -> dict[str, Source]:
    return {f"p.{name}": Source(f"src/p/{name}.py", text) for name, text in texts.items()}


def lonely(**texts: str) -> list[str]:
    found = classes.lonely_bases(classes.classes(sample(**texts)), public=["Exported"])
    return [offence.what.split()[0] for offence in found]


@pytest.mark.parametrize(
    ("base", "derived"),
    [
        ("class Half: ...", "from p.base import Half\nclass Whole(Half): ..."),
        ("class Half: ...", "from p.base import Half as Other\nclass Whole(Other): ..."),
        ("class Half: ...", "from p import base\nclass Whole(base.Half): ..."),
        ("class Half(Generic[T]): ...", "from p.base import Half\nclass Whole(Half[int]): ..."),
        ("class Half: ...\nclass Whole(Half): ...", ""),
    ],
)
def test_a_base_class_with_one_subclass_is_caught(base: str, derived: str) -> None:
    assert lonely(base=base, derived=derived) == ["Half"]


@pytest.mark.parametrize(
    "text",
    [
        "class Base: ...\nclass A(Base): ...\nclass B(Base): ...",
        "class Shape(Protocol): ...\nclass A(Shape): ...",
        "class Shape(typing.Protocol): ...\nclass A(Shape): ...",
        "class Bad(ValueError): ...\nclass Worse(Bad): ...",
        "class Bad(Exception): ...\nclass Worse(Bad): ...\nclass Worst(Worse): ...",
        "class Exported: ...\nclass A(Exported): ...",
        "class Alone: ...",
    ],
)
def test_other_classes_are_fine(text: str) -> None:
    assert not lonely(one=text)


def test_a_base_of_the_same_name_in_another_module_is_another_class() -> None:
    assert lonely(a="class Base: ...\nclass A(Base): ...\nclass B(Base): ...", b="class Base: ...") == []


def test_a_name_that_two_public_classes_have_is_caught() -> None:
    found = classes.classes(sample(a="class Answer: ...\nclass _Own: ...", b="class Answer: ...\nclass _Own: ..."))
    [offence] = classes.repeated_classes(found)
    assert str(offence) == "src/p/b.py:1: the name Answer is used in src/p/a.py already"


def test_a_name_that_two_modules_have_is_caught() -> None:
    paths = ["src/p/__init__.py", "src/p/a/__init__.py", "src/p/a/log.py", "src/p/b/log.py", "src/p/b/lane.py"]
    [offence] = classes.repeated_modules(packages.modules(Source(path, "") for path in paths))
    assert offence.path == "src/p/b/log.py"


def test_a_module_named_by_an_activity_is_caught() -> None:
    paths = ["src/p/testing/__init__.py", "src/p/testing/run.py", "src/p/telling.py"]
    [offence] = classes.gerunds(packages.modules(Source(path, "") for path in paths))
    assert offence.path == "src/p/telling.py"
