"""Rules on classes: no base class with exactly one subclass, and no public name that several classes share.

Bases are resolved by the imports of a module, so classes with one name are distinguished. Protocols, exceptions and
the names that the package exports are not counted as bases: users implement, catch and extend them.
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from tests.tidy.source import Offence, Source


@dataclass(frozen=True)
class Class:
    """A class at the top of a module."""

    module: str
    name: str
    source: Source
    node: ast.ClassDef
    bases: tuple[str, ...]
    """Dotted names, by the imports of its module."""

    @property
    def path(self) -> str:
        """Its dotted name."""
        return f"{self.module}.{self.name}"


def classes(known: Mapping[str, Source]) -> list[Class]:
    """The classes at the top of every module."""
    return [
        Class(module, node.name, source, node, tuple(_bases(node, _imports(module, source))))
        for module, source in known.items()
        for node in source.tree.body
        if isinstance(node, ast.ClassDef)
    ]


def lonely_bases(found: Iterable[Class], *, public: Collection[str]) -> list[Offence]:
    """A base class with exactly one subclass: a class that was split for its size."""
    by_path = {each.path: each for each in found}
    subclasses = Counter(base for each in by_path.values() for base in set(each.bases))
    return [
        each.source.offence(each.node, f"{each.name} is the base of one class only: merge them")
        for path, each in sorted(by_path.items())
        if subclasses[path] == 1
        and each.name not in public
        and not any(base.rpartition(".")[2] == "Protocol" for base in each.bases)
        and not _is_exception(each, by_path)
    ]


def repeated_classes(found: Iterable[Class]) -> list[Offence]:
    """A public class whose name another one has already, in the order of the paths."""
    return _repeated((each.name, each.source.offence(each.node, each.name)) for each in found)


def repeated_modules(known: Mapping[str, Source]) -> list[Offence]:
    """A module whose base name another one has already. Packages are not counted."""
    return _repeated(
        (module.rpartition(".")[2], Offence(source.path, 1, module.rpartition(".")[2]))
        for module, source in known.items()
        if PurePath(source.path).stem != "__init__"
    )


def gerunds(known: Mapping[str, Source]) -> list[Offence]:
    """A module named by an activity (-ing). Name it by the noun that it holds. Packages are not counted."""
    return [
        Offence(source.path, 1, f"{module} ends in -ing: name the module by a noun")
        for module, source in known.items()
        if module.endswith("ing") and PurePath(source.path).stem != "__init__"
    ]


def _repeated(named: Iterable[tuple[str, Offence]]) -> list[Offence]:
    first: dict[str, str] = {}
    found: list[Offence] = []
    for name, place in sorted(named, key=lambda each: (each[0], each[1].path)):
        if name.startswith("_"):
            continue
        if name in first:
            found.append(Offence(place.path, place.line, f"the name {name} is used in {first[name]} already"))
        first.setdefault(name, place.path)
    return found


def _imports(module: str, source: Source) -> dict[str, str]:
    known = {node.name: f"{module}.{node.name}" for node in source.tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def _bases(node: ast.ClassDef, known: Mapping[str, str]) -> Iterator[str]:
    for base in node.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base  # `Codec[T]` is a Codec.
        owner, dot, rest = ast.unparse(plain).partition(".")
        yield known.get(owner, owner) + dot + rest


def _is_exception(each: Class, by_path: Mapping[str, Class]) -> bool:
    return any(
        base.endswith(("Exception", "Error", "Warning")) or (base in by_path and _is_exception(by_path[base], by_path))
        for base in each.bases
    )
