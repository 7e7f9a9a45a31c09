"""Modules fit into a head, functions on a screen, and both say what they are for."""

from collections.abc import Callable

import pytest

from tests.tidy import shape
from tests.tidy.source import Offence, Source, report, sources

Rule = Callable[[Source], list[Offence]]

# Tests and programs of the repository may be terser in docstrings, but not bigger and not vaguer.
EVERYWHERE = ("src", "examples", "benchmarks", "tests")
RULES: list[tuple[Rule, tuple[str, ...]]] = [
    (shape.long_modules, EVERYWHERE),
    (shape.long_functions, EVERYWHERE),
    (shape.vague_names, EVERYWHERE),
    (shape.module_docstrings, ("src", "examples", "benchmarks")),
    (shape.missing_docstrings, ("src",)),
]

MISSING_SECTIONS_MAX = 0
"""A ratchet: the number may only fall. At the end it is 0."""


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "folders"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_the_repository_keeps_the_rule(rule: Rule, folders: tuple[str, ...]) -> None:
    checked = sources(*folders)
    offences = [offence for source in checked for offence in rule(source)]
    assert checked
    assert not offences, report(offences)


def test_large_modules_without_named_sections_only_fall() -> None:
    offences = [offence for source in sources("src") for offence in shape.missing_sections(source)]
    assert len(offences) <= MISSING_SECTIONS_MAX, report(offences)


def sample(text: str, path: str = "src/interlock/sample.py") -> Source:
    return Source(path, text)


def body(lines: int) -> str:
    return "\n".join("    x = 1" for _ in range(lines))


def test_a_module_may_have_1000_lines_and_no_more() -> None:
    assert not shape.long_modules(sample("x = 1\n" * 1000))
    [offence] = shape.long_modules(sample("x = 1\n" * 1001))
    assert "1001 lines" in str(offence)


@pytest.mark.parametrize(
    ("docstring", "lines", "caught"),
    [
        ("Store.", 599, False),
        ("Store.", 600, True),
        ("Store.\n\nSections: load, commit.\n", 900, False),
        ("Store. Sections: load.", 900, True),
    ],
)
def test_a_module_over_600_lines_names_its_sections(docstring: str, lines: int, caught: bool) -> None:
    assert bool(shape.missing_sections(sample(f'"""{docstring}"""\n' + "x = 1\n" * lines))) is caught


def test_a_function_may_have_70_lines_and_no_more() -> None:
    assert not shape.long_functions(sample(f"def f():\n{body(69)}\n"))
    [offence] = shape.long_functions(sample(f"def f():\n{body(70)}\n"))
    assert "f has 71 lines" in str(offence)


@pytest.mark.parametrize("head", ["async def f():", "@decorated\ndef f():", "class C:\n  def f(self):"])
def test_every_kind_of_function_is_measured(head: str) -> None:
    assert shape.long_functions(sample(f"{head}\n{body(70)}\n"))


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "base", "manager", "misc", "_utils", "sql_helpers"])
def test_a_vague_name_is_caught(name: str) -> None:
    assert shape.vague_names(sample("", f"src/interlock/{name}.py"))
    assert shape.vague_names(sample("", f"src/interlock/{name}/decide.py"))


def test_a_name_that_merely_contains_a_vague_word_is_fine() -> None:
    assert not shape.vague_names(sample("", "src/interlock/database/basement.py"))


def test_a_module_without_docstring_is_caught() -> None:
    [offence] = shape.module_docstrings(sample("x = 1\n"))
    assert "no module docstring" in offence.what


def test_a_docstring_has_at_most_15_lines() -> None:
    assert not shape.module_docstrings(sample('"""' + "line\n" * 15 + '"""\n'))
    [offence] = shape.module_docstrings(sample('"""' + "line\n" * 16 + '"""\n'))
    assert "16 lines" in offence.what


def test_a_drawing_in_a_docstring_is_not_counted() -> None:
    assert not shape.module_docstrings(sample('"""Tree.\n\n' + "    ├── branch\n" * 30 + '"""\n'))


def test_a_module_with_much_code_needs_more_than_one_line() -> None:
    assert not shape.module_docstrings(sample('"""Short."""\n' + "x = 1\n" * 40))
    [offence] = shape.module_docstrings(sample('"""Short."""\n' + "x = 1\n" * 41))
    assert "at least 3" in offence.what


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("def f(): ...", ["f"]),
        ("async def f(): ...", ["f"]),
        ("class C: ...", ["C"]),
        ("class C:\n  '''Doc.'''\n  def m(self): ...", ["C.m"]),
        ("class C:\n  '''Doc.'''\n  class D:\n    def m(self): ...", ["C.D", "C.D.m"]),
        ("def f():\n  '''Doc.'''\n  def inner(): ...", []),
        ("def _f(): ...\nclass _C:\n  def m(self): ...", []),
        ("class C:\n  '''Doc.'''\n  def __len__(self): ...", []),
        ("@overload\ndef f(): ...\n@typing.overload\ndef f(): ...", []),
    ],
)
def test_what_is_public_has_a_docstring(text: str, missing: list[str]) -> None:
    assert [offence.what.split()[0] for offence in shape.missing_docstrings(sample(text))] == missing
