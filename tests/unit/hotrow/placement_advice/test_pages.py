"""The pages on placement have every field, every verdict and every declaration, and show what the command prints."""

import re
from pathlib import Path
from typing import get_args

import msgspec

from interlock.hotrow.contention_windows import Engine
from interlock.hotrow.placement_advice import STRICT, VOTES, WINDOWS, Action, Evidence, Target, advise
from interlock.settings import DECLARATIONS, KNOBS
from tests.unit.hotrow.placement_advice.windows import a_tool, row, window

DOCS = Path(__file__).resolve().parents[4] / "docs"
HOW_TO = (DOCS / "how-to" / "place-a-workload.md").read_text(encoding="utf-8")
EXPLAINED = (DOCS / "explanation" / "placement.md").read_text(encoding="utf-8")


def table(heading: str) -> list[str]:
    """The first cells of the table with that heading."""
    [found] = re.findall(rf"^\| {heading} \|.*?(?=\n\n)", HOW_TO, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `(\w+)` \|", found, re.MULTILINE)


def test_every_field_of_the_evidence_is_on_the_page_and_no_other() -> None:
    assert table("field") == list(Evidence.__struct_fields__)
    assert all(f'`"{engine}"`' in HOW_TO for engine in get_args(Engine))


def test_every_verdict_is_on_the_page_and_no_other() -> None:
    assert table("verdict") == list(get_args(Action))
    helpers = set(get_args(Target)) - {"", "streams", "postgres", "lane"}
    assert all(f"`{helper}`" in HOW_TO for helper in helpers)


def test_every_declaration_and_knob_is_on_the_page() -> None:
    assert table("declaration") == list(DECLARATIONS)
    assert all(f"`{knob}`" in HOW_TO for knob in KNOBS)


def test_the_verdict_on_the_page_is_what_is_said() -> None:
    evidence = window(row(412, writes=420, wait_s=0.0091), p99_s=0.0413, plateau=2_400, engine="object")
    there = "postgresql://app@db.internal/shop?schema=stock"
    evidence = msgspec.structs.replace(evidence, url="s3://shop/stock", to=there)
    verdict = advise(a_tool(critical=True, shardable=False), evidence)
    for text in (verdict.why, *verdict.evidence, verdict.command, verdict.undo):
        assert f" {text}\n" in HOW_TO


def test_the_page_tells_the_votes_and_the_thresholds() -> None:
    numbers = {5: "five", 6: "six"}
    assert f"{numbers[VOTES]} of the latest {numbers[WINDOWS]} windows" in HOW_TO
    assert f"{numbers[VOTES]} of the latest {numbers[WINDOWS]} windows" in EXPLAINED
    assert (STRICT.mixed, STRICT.skew, STRICT.cold) == (0.5, 2.0, 0.25)
    assert "less than half of the writes" in EXPLAINED
    assert "more than twice its share" in EXPLAINED
    assert "below a quarter of the threshold" in EXPLAINED
    assert "(50 per second)" in EXPLAINED
    assert window().flag_threshold == 50
