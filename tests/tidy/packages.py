"""Rules on the rooms of the code: how many modules a package has, and which modules are too small to stand alone.

Both take plain mappings, so that a sample is three lines. A module's package is everything before its last dot.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath

from tests.tidy.graph import Graph
from tests.tidy.source import Offence, Source

SATELLITE_LINES = 150
PACKAGE_MODULES_MIN = 3
PACKAGE_MODULES_MAX = 20


def modules(sources: Iterable[Source]) -> dict[str, Source]:
    """The sources below `src` by their dotted names; a package has the name of its `__init__`."""
    found: dict[str, Source] = {}
    for source in sources:
        parts = PurePath(source.path).with_suffix("").parts[1:]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = source
    return found


def satellites(graph: Graph, known: Mapping[str, Source], *, packages: Collection[str]) -> list[Offence]:
    """A module under 150 lines whose single importer is in its own package: half of a concept.

    The `__init__` of its package counts as an importer like any other module of the package.
    """
    importers: dict[str, set[str]] = {module: set() for module in graph}
    for module, imported in graph.items():
        for each in imported:
            importers.setdefault(each, set()).add(module)
    found: list[Offence] = []
    for module, source in known.items():
        lines = len(source.text.splitlines())
        if module in packages or lines >= SATELLITE_LINES or len(importers.get(module, ())) != 1:
            continue
        [importer] = importers[module]
        package = module.rpartition(".")[0]
        if package in (importer, importer.rpartition(".")[0]):
            found.append(Offence(source.path, 1, f"{module}: {lines} lines for {importer} alone, merge it into that"))
    return found


def package_sizes(known: Collection[str], *, packages: Collection[str]) -> dict[str, int]:
    """The number of modules directly in each package, `__init__` not counted."""
    sizes = dict.fromkeys(packages, 0)
    for module in known:
        if module not in sizes and (package := module.rpartition(".")[0]) in sizes:
            sizes[package] += 1
    return sizes


def wrong_sizes(sizes: Mapping[str, int]) -> list[str]:
    """Packages with fewer than 3 modules, which should be a module, or more than 20, which need sub-packages."""
    return [
        f"{package} has {size} modules, not {PACKAGE_MODULES_MIN} to {PACKAGE_MODULES_MAX}"
        for package, size in sorted(sizes.items())
        if not PACKAGE_MODULES_MIN <= size <= PACKAGE_MODULES_MAX
    ]
