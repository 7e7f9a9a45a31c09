"""The imports of the package form no cycle and leave no module out."""

from pathlib import Path

import pytest

from tests.tidy import graph
from tests.tidy.source import Source, sources


def test_there_is_no_import_cycle() -> None:
    cycle = graph.import_cycle(graph.read_graph())
    assert not cycle, " -> ".join(cycle)


# What users import, run with `-m`, and read.
FRONT_DOORS = [
    "interlock",
    "interlock.__main__",
    "interlock.dbapi",
    "interlock.django.base",
    "interlock.examples.*",
    "interlock.testing.lane_simulation.bucket",
]


def test_every_entry_point_exists() -> None:
    missing = set(graph.entry_points()) - set(graph.read_graph())
    assert not missing, f"pyproject.toml names modules that do not exist: {', '.join(missing)}"


def test_no_module_is_dead() -> None:
    imports = graph.read_graph()
    entries = [*FRONT_DOORS, *graph.entry_points(), *graph.named_in_text(sources("src"), imports)]
    dead = graph.dead_modules(imports, entries=entries)
    assert not dead, f"never imported: {', '.join(dead)}"


def test_a_cycle_is_found_in_order() -> None:
    cycle = graph.import_cycle({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]})
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "dodge", ["def f():\n    {}\n", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}\n"]
)
def test_a_cycle_that_is_dodged_is_found_in_the_sources(
    dodge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tidy_sample"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("import tidy_sample.b\n")
    (package / "b.py").write_text(dodge.format("from tidy_sample import a"))
    monkeypatch.syspath_prepend(tmp_path)
    assert graph.import_cycle(graph.read_graph("tidy_sample"))


def test_a_module_that_is_never_imported_is_dead() -> None:
    imports = {"p": ["p.a.x"], "p.a": [], "p.a.x": [], "p.a.y": ["p.a.x"], "p.b": [], "p.b.z": ["p.b"]}
    assert graph.dead_modules(imports, entries=["p"]) == ["p.a.y", "p.b", "p.b.z"]


def test_two_modules_that_import_only_each_other_are_dead() -> None:
    assert graph.dead_modules({"p": [], "p.a": ["p.b"], "p.b": ["p.a"]}, entries=["p"]) == ["p.a", "p.b"]


def test_an_entry_may_be_a_whole_package() -> None:
    imports: graph.Graph = {"p": [], "p.examples": [], "p.examples.order": [], "p.other": []}
    assert graph.dead_modules(imports, entries=["p", "p.examples.*"]) == ["p.other"]


def test_a_module_loaded_by_name_is_alive() -> None:
    registry = Source("src/p/registry.py", "ENGINES = {'sqlite': 'p.sqlite'}")
    assert graph.named_in_text([registry], ["p.sqlite", "p.memory"]) == ["p.sqlite"]
    entry = Source("src/p/commands.py", "COMMANDS = {'p.memory:show': 'Show it.'}")
    assert graph.named_in_text([entry], ["p.sqlite", "p.memory"]) == ["p.memory"]
