"""Order of tables for their creation, and an engine-independent order of their parts."""

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from interlock.database.moving.findings import Findings
from interlock.database.moving.shape import Check, Index, Reference, Table, Unique

NamedT = TypeVar("NamedT", Check, Unique, Reference, Index)


def ordered(tables: Sequence[Table], findings: Findings) -> tuple[Table, ...]:
    """Return the tables by name, each after those that it refers to. Circular references are a finding."""
    by_name = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    graph = {
        name: {each.table for each in table.references if each.table != name and each.table in by_name}
        for name, table in by_name.items()
    }
    try:
        return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle: Sequence[str] = error.args[1]
        findings.add(
            f"the tables {', '.join(circle)}", "they refer to each other, and a lane makes one after the other"
        )
        return tuple(by_name.values())


def by_name(parts: Iterable[NamedT]) -> tuple[NamedT, ...]:
    """Return the parts of a table sorted by name."""
    return tuple(sorted(parts, key=lambda part: part.name))
