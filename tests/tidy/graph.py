"""Rules on the graph of imports: no cycle anywhere, no module that is never imported.

The graph is a plain mapping from a module to the modules it imports. Grimp reads it from the sources, imports inside
functions and under TYPE_CHECKING included: a cycle that is dodged is still a cycle.
"""

import ast
import tomllib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

from tests.tidy.source import ROOT, Source

Graph = Mapping[str, Collection[str]]


@cache
def read_graph(package: str = "interlock") -> Graph:
    """The imports of a package on the path. Read once a run."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def import_cycle(graph: Graph) -> list[str]:
    """The modules of one import cycle in order, the first one again at the end; nothing when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        return list(cycle.args[1])
    return []


def dead_modules(graph: Graph, *, entries: Iterable[str]) -> list[str]:
    """Modules that cannot be reached by imports from the entries; an entry `package.*` is a package and all below it.

    Importing a module runs the `__init__` of every package above it, so those are reached with it.
    """
    reached: set[str] = set()
    waiting = [module for entry in entries for module in graph if _is_entry(module, entry)]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        waiting += graph.get(module, ())
        if "." in module:
            waiting.append(module.rpartition(".")[0])
    return sorted(set(graph) - reached)


def entry_points(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """The modules that pyproject.toml names to the outside: the command line, and those that other packages load."""
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    objects = [each for group in (declared["scripts"], *declared["entry-points"].values()) for each in group.values()]
    return [reference.partition(":")[0] for reference in objects]


def named_in_text(sources: Iterable[Source], modules: Collection[str]) -> list[str]:
    """Modules that are loaded by name: a string somewhere in the package is their dotted name, or MODULE:ATTRIBUTE."""
    strings = {
        node.value.partition(":")[0]
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return [module for module in modules if module in strings]


def _is_entry(module: str, entry: str) -> bool:
    package = entry.removesuffix(".*")
    return module == package or (package != entry and module.startswith(f"{package}."))
