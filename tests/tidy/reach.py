"""Rules on what a module may reach for: real clocks and luck, sleeping, the package's own front door, notes to self."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from tests.tidy.source import Offence, Source

# Dotted names of the standard library that make a run unrepeatable. A name ending in a dot covers the whole module.
NONDETERMINISM = (
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.localtime",
    "time.gmtime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "random.",
    "secrets.",
    "uuid.uuid1",
    "uuid.uuid4",
    "os.urandom",
)
# These layers may show a person how long something took. No decision may depend on it.
STOPWATCH = ("time.perf_counter", "time.perf_counter_ns")
STOPWATCH_LAYERS = frozenset({"cli", "testing", "bench"})
SLEEP_MAX_S = 0.1

_MARKER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def real_clocks_and_luck(source: Source) -> list[Offence]:
    """A real clock or real randomness outside `clock.py`: it could not be simulated."""
    layer = _layer(source.path)
    if layer == "clock":
        return []
    return [
        source.offence(node, f"{name} outside clock.py: take a Clock, Ids or Chance instead")
        for node, name in _foreign_names(source.tree)
        if _listed(name, NONDETERMINISM) and not (layer in STOPWATCH_LAYERS and name in STOPWATCH)
    ]


def sleeping(source: Source) -> list[Offence]:
    """A test that waits by sleeping. `asyncio.sleep(0)` only yields, and stays allowed."""
    names = dict(_foreign_names(source.tree))
    found: list[Offence] = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = names.get(node.func)
        if called == "time.sleep" or (called == "asyncio.sleep" and not _is_short(node)):
            found.append(source.offence(node, f"{called} in a test: wait on a signal or the virtual clock"))
    return found


def front_door(source: Source, *, layers: Iterable[str]) -> list[Offence]:
    """A module of the package that imports the package's root, which imports nearly everything."""
    inside = set(layers)
    found: list[Offence] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            wrong = [alias.name for alias in node.names if alias.name == "interlock"]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "interlock":
            wrong = [alias.name for alias in node.names if alias.name not in inside]
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            wrong = ["a relative name"]
        else:
            continue
        found += [
            source.offence(node, f"imports {name} by the root: name the module that defines it") for name in wrong
        ]
    return found


def notes_to_self(source: Source) -> list[Offence]:
    """A marker for work that was put off."""
    return [
        Offence(source.path, number, f"'{match[0]}': do it now, or say why it is right as it is")
        for number, line in enumerate(source.text.splitlines(), start=1)
        if (match := _MARKER.search(line))
    ]


def _foreign_names(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each use of an imported name with its full dotted name, whatever it was imported as."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                known[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := _dotted(node, known)):
            yield node, name


def _dotted(node: ast.expr, known: dict[str, str]) -> str | None:
    match node:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=value, attr=attribute):
            owner = _dotted(value, known)
            return f"{owner}.{attribute}" if owner else None
        case _:
            return None


def _listed(name: str, names: Iterable[str]) -> bool:
    return any(name.startswith(entry) if entry.endswith(".") else name == entry for entry in names)


def _is_short(call: ast.Call) -> bool:
    match call.args:
        case [ast.Constant(value=int() | float() as seconds)]:
            return seconds < SLEEP_MAX_S
        case _:
            return False


def _layer(path: str) -> str:
    parts = PurePath(path).with_suffix("").parts
    after = parts[parts.index("interlock") + 1 :] if "interlock" in parts else ()
    return after[0] if after else ""
