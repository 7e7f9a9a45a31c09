"""The reference follows the code: generated pages are current, and every rule of the checks is explained."""

import contextlib
import importlib.util
import math
import re
import sqlite3
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import fields

from interlock.core.plan.findings import WITHOUT_PROOF
from interlock.core.policies import Breaker
from interlock.engine.engine_settings import RANGES, Admission, EngineSettings
from interlock.lanes.lane_settings import CHOICES, KINDS, LaneSettings
from interlock.settings import PREFIX, PROGRAM
from interlock.store.lane_store import FORMAT, NAMES, TABLES

PROJECT = Path(__file__).parents[2]
CORE = PROJECT / "src" / "interlock" / "core"

specification = importlib.util.spec_from_file_location("generate", PROJECT / "docs" / "generate.py")
assert specification is not None
assert specification.loader is not None
generate = importlib.util.module_from_spec(specification)
specification.loader.exec_module(generate)


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_a_generated_page_is_what_the_code_says(path: Path) -> None:
    assert path.read_text() == generate.pages()[path], "run `make reference`"


def rules() -> set[str]:
    """Every rule and finding code that the core can name."""
    sources = [*CORE.glob("*.py"), *(CORE / "checks").glob("*.py")]
    named = r'(?:(?:rule|code)=|\b(?:finding|_error)\(\s*)"([a-z-]+)"'
    found = {rule for path in sources for rule in re.findall(named, path.read_text())}
    return found | set(re.findall(r'"((?:event|reserved|bad)-[a-z-]+)"', (CORE / "events.py").read_text()))


def test_every_rule_of_the_checks_is_explained_and_no_other() -> None:
    page = (PROJECT / "docs" / "reference" / "checks.md").read_text()
    first_cells = re.findall(r"^\| (`[^|]+) \|", page, flags=re.MULTILINE)
    assert {rule for cell in first_cells for rule in re.findall(r"`([a-z-]+)`", cell)} == rules()


def test_every_finding_of_a_plan_is_explained_and_no_other() -> None:
    sources = (CORE / "plan").glob("*.py")
    codes = {code for path in sources for code in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', path.read_text())}
    page = (PROJECT / "docs" / "reference" / "plans.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", page, flags=re.MULTILINE))
    assert set(rows) == codes - {"date-time", "partial-time"}  # Formats of texts in JSON schemas.
    assert {code for code, severity in rows.items() if "not proved safe" in severity} == WITHOUT_PROOF


def test_every_setting_is_on_the_page_with_its_default_and_no_other() -> None:
    page = (PROJECT / "docs" / "reference" / "python.md").read_text()
    [table] = re.findall(r"\| setting \|.*?\n\n", page, re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    numbers = [field for field in fields(LaneSettings) if field.name not in CHOICES]
    shown = {field.name: "false" if field.default is False else f"{field.default:,g}" for field in numbers}
    shown |= {name: f"{getattr(LaneSettings(), name):,}" for name, kind in KINDS.items() if kind is int}
    shown |= {name: f'`"{getattr(LaneSettings(), name)}"`' for name in CHOICES}
    assert dict(rows) == {name: text.removesuffix(".0") for name, text in shown.items()}


def defaults(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The fields of a struct with their defaults as a page writes them."""
    return {
        field.name: "None" if field.default is None else f"{field.default:,g}".removesuffix(".0")
        for field in fields(struct)
    }


@pytest.mark.parametrize(
    ("heading", "struct"), [("engine setting", EngineSettings), ("admission", Admission), ("breaker", Breaker)]
)
def test_every_setting_of_an_engine_is_on_its_page_and_no_other(heading: str, struct: type[msgspec.Struct]) -> None:
    page = (PROJECT / "docs" / "reference" / "settings.md").read_text()
    [table] = re.findall(rf"\| {heading} \|.*?\n\n", page, re.DOTALL)
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)) == defaults(struct)


def test_the_range_of_every_setting_of_an_engine_is_told() -> None:
    page = (PROJECT / "docs" / "reference" / "settings.md").read_text()
    [table] = re.findall(r"\| engine setting \|.*?\n\n", page, re.DOTALL)
    told = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", table, re.MULTILINE))
    ranges = {field.name: RANGES.get(field.name, (1, math.inf)) for field in fields(EngineSettings)}
    assert told == {
        name: f"{least:g} or more" if math.isinf(most) else f"{least:g} to {most:g}"
        for name, (least, most) in ranges.items()
    }


def test_every_setting_of_the_program_is_on_its_page_with_its_flag_and_its_variable() -> None:
    page = (PROJECT / "docs" / "reference" / "settings.md").read_text()
    [table] = re.findall(r"\| program \|.*?\n\n", page, re.DOTALL)
    told = re.findall(r"^\| `(\w+)` \| `([\w-]+)` \| `(\w+)` \|", table, re.MULTILINE)
    assert told == [(name, f"--{name.replace('_', '-')}", f"{PREFIX}{name.upper()}") for name in PROGRAM]


def test_every_column_of_the_tables_of_workflows_is_explained_and_no_other() -> None:
    page = (PROJECT / "docs" / "reference" / "workflow-tables.md").read_text()
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## )", page, flags=re.DOTALL | re.MULTILINE))
    explained = {name: re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) for name, text in sections.items()}
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        columns = {
            name: [column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")] for name in NAMES
        }
    assert explained == columns
    assert f"of these tables: {FORMAT}." in page
