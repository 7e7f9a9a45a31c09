"""A package has 3 to 20 modules, and no module is too small to stand alone."""

from tests.tidy import graph, packages
from tests.tidy.source import Source, report, sources

SATELLITES: dict[str, str] = {}
"""Small modules with one importer, each with its reason. A new one needs a reason that is as good."""

SIZES = {
    "interlock.ui": "it has static files, and one module that serves them",
}
"""Packages with fewer than 3 modules."""


def known_modules() -> dict[str, Source]:
    return packages.modules(sources("src"))


def known_packages() -> set[str]:
    return {module for module, source in known_modules().items() if source.path.endswith("/__init__.py")}


def test_no_module_is_a_satellite() -> None:
    offences = packages.satellites(graph.read_graph(), known_modules(), packages=known_packages())
    offences = [offence for offence in offences if offence.what.partition(":")[0] not in SATELLITES]
    assert not offences, report(offences)


def test_a_package_has_3_to_20_modules() -> None:
    sizes = packages.package_sizes(known_modules(), packages=known_packages())
    wrong = packages.wrong_sizes({package: size for package, size in sizes.items() if package not in SIZES})
    assert "interlock.engine" in sizes
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_exceptions_are_still_needed() -> None:
    known = known_modules()
    found = packages.satellites(graph.read_graph(), known, packages=known_packages())
    assert {offence.what.partition(":")[0] for offence in found} >= set(SATELLITES)
    sizes = packages.package_sizes(known, packages=known_packages())
    assert len(packages.wrong_sizes({package: sizes[package] for package in SIZES})) == len(SIZES)


def sample(lines: dict[str, int]) -> dict[str, Source]:
    return {module: Source(f"src/{module.replace('.', '/')}.py", "x = 1\n" * count) for module, count in lines.items()}


def caught(imports: graph.Graph, lines: dict[str, int]) -> list[str]:
    found = packages.satellites(imports, sample(lines), packages={"p", "p.a"})
    return [offence.what.partition(":")[0] for offence in found]


def test_a_small_module_with_one_importer_beside_it_is_a_satellite() -> None:
    imports = {"p.a.half": (), "p.a.whole": ("p.a.half",)}
    assert caught(imports, {"p.a.half": 149}) == ["p.a.half"]
    assert caught(imports, {"p.a.half": 150}) == []


def test_the_init_of_its_package_is_an_importer_too() -> None:
    assert caught({"p.a": ("p.a.half",), "p.a.half": ()}, {"p.a.half": 10}) == ["p.a.half"]


def test_a_module_that_others_use_is_none() -> None:
    assert caught({"p.a.x": (), "p.a.y": ("p.a.x",), "p.a.z": ("p.a.x",)}, {"p.a.x": 10}) == []
    assert caught({"p.a.x": (), "p.b.y": ("p.a.x",)}, {"p.a.x": 10}) == []


def test_the_modules_of_a_package_are_counted_without_its_init_and_its_sub_packages() -> None:
    known = ["p", "p.a", "p.one", "p.two", "p.a.three"]
    assert packages.package_sizes(known, packages={"p", "p.a"}) == {"p": 2, "p.a": 1}


def test_a_package_that_is_too_small_or_too_full_is_caught() -> None:
    assert packages.wrong_sizes({"p.a": 3, "p.b": 20}) == []
    assert packages.wrong_sizes({"p.a": 2, "p.b": 21}) == [
        "p.a has 2 modules, not 3 to 20",
        "p.b has 21 modules, not 3 to 20",
    ]


def test_sources_have_dotted_names() -> None:
    paths = ["src/p/__init__.py", "src/p/a/__init__.py", "src/p/a/x.py"]
    assert list(packages.modules(Source(path, "") for path in paths)) == ["p", "p.a", "p.a.x"]
