"""Rules on the shape of a module: its size, its name, its functions, its docstrings."""

import ast
from collections.abc import Iterator
from pathlib import PurePath

from tests.tidy.source import Offence, Source

MODULE_LINES_MAX = 1000
SECTIONS_LINES = 600
SECTIONS_MARK = "Sections:"
FUNCTION_LINES_MAX = 70
DOCSTRING_LINES_MAX = 15
DOCSTRING_LINES_MIN = 3
SMALL_MODULE_LINES = 40
BANNED_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"})


def long_modules(source: Source) -> list[Offence]:
    """A module that does not fit into a reader's head."""
    lines = len(source.text.splitlines())
    if lines <= MODULE_LINES_MAX:
        return []
    return [Offence(source.path, lines, f"module of {lines} lines, at most {MODULE_LINES_MAX}: split it by concept")]


def missing_sections(source: Source) -> list[Offence]:
    """A module over 600 lines whose docstring does not name its sections, in a line that begins with `Sections:`."""
    lines = len(source.text.splitlines())
    docstring = ast.get_docstring(source.tree) or ""
    if lines <= SECTIONS_LINES or any(line.startswith(SECTIONS_MARK) for line in docstring.splitlines()):
        return []
    return [Offence(source.path, 1, f"{lines} lines and no line '{SECTIONS_MARK} …' in the module docstring")]


def long_functions(source: Source) -> list[Offence]:
    """A function that does not fit on a screen, decorators and docstring included."""
    found: list[Offence] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines = (node.end_lineno or node.lineno) - first + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(source.offence(node, f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"))
    return found


def vague_names(source: Source) -> list[Offence]:
    """A module or package named after nothing in particular."""
    if source.path == "src/interlock/django/base.py":
        return []  # Django imports the module of a backend by this name.
    return [
        Offence(source.path, 1, f"'{word}' says nothing: name the module after what it holds")
        for part in PurePath(source.path).with_suffix("").parts
        for word in part.strip("_").split("_")
        if word in BANNED_NAMES
    ]


def module_docstrings(source: Source) -> list[Offence]:
    """A module without a docstring, or with one that is too short for its size or too long to be read.

    Indented drawings (the tree of exceptions) are not counted.
    """
    docstring = ast.get_docstring(source.tree, clean=False)
    if docstring is None:
        return [Offence(source.path, 1, "no module docstring: say what it is, why it exists, its invariant")]
    length = sum(1 for line in docstring.rstrip().splitlines() if not line.startswith("    "))
    if length > DOCSTRING_LINES_MAX:
        return [Offence(source.path, 1, f"module docstring of {length} lines, at most {DOCSTRING_LINES_MAX}")]
    if length < DOCSTRING_LINES_MIN and _lines_of_code(source) > SMALL_MODULE_LINES:
        return [Offence(source.path, 1, f"module docstring of {length} lines, at least {DOCSTRING_LINES_MIN} here")]
    return []


def missing_docstrings(source: Source) -> list[Offence]:
    """A public class, function or method without a docstring."""
    return [
        source.offence(node, f"{name} has no docstring")
        for name, node in _public_definitions(source.tree, prefix="")
        if ast.get_docstring(node) is None
    ]


def _lines_of_code(source: Source) -> int:
    """Lines that are neither blank nor comment nor part of the module docstring."""
    first = source.tree.body[0].end_lineno or 0
    rest = source.text.splitlines()[first:]
    return sum(1 for line in rest if line.strip() and not line.strip().startswith("#"))


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _public_definitions(parent: ast.Module | ast.ClassDef, *, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in parent.body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}
        # An overload, an override and the setter of a property are documented where they are first declared.
        if not decorators & {"overload", "override", "setter", "deleter"}:
            yield f"{prefix}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from _public_definitions(node, prefix=f"{prefix}{node.name}.")
