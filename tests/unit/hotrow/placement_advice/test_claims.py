"""D13: no text claims that grouping commits or sharding takes the dependency between writes of one row away.

It reads every text of the advice, the sources and the documentation. Sentences are what is looked at, so that a claim
which is denied ("Groups do not remove contention on a row") passes.
"""

import re
from pathlib import Path

import pytest

from interlock.hotrow.placement_advice import HELD_BACK, UNKNOWN_KIND, WHY

ROOT = Path(__file__).resolve().parents[4]
PAGES = [
    *(ROOT / "src").rglob("*.py"),
    *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *ROOT.glob("*.md"),
]

_ENDS = (
    r"(?:solv|eliminat|remov|cur|fix|prevent|avoid|abolish|dissolv|defeat)(?:e|es|ed|ing|s)?|"
    r"(?:get|gets|getting) rid of"
)
_TROUBLE = (
    r"(?:(?:the|all|any|every|lock|row|same-row|hot-row|write|writer)[ -])*"
    r"(?:contention|hot[ -]rows?|hand-offs?|serialization|serialisation|dependenc(?:y|ies) between (?:the )?writes)"
)
FORBIDDEN = [
    re.compile(rf"\b(?:{_ENDS}) {_TROUBLE}", re.IGNORECASE),
    re.compile(
        rf"\b{_TROUBLE} (?:is|are) (?:solved|eliminated|removed|fixed|gone|cured|a solved problem)", re.IGNORECASE
    ),
    re.compile(r"\b(?:contention|lock|conflict)[ -]free\b", re.IGNORECASE),
    re.compile(
        r"\b(?:shard(?:s|ing)?|group commit|groups|batching)\b[^.]*"
        r"\b(?:no longer|never) (?:wait for|depend on) each other",
        re.IGNORECASE,
    ),
    re.compile(r"(?<!\brows )\b(?:without|no more|zero) (?:row |lock |same-row |any )*contention\b", re.IGNORECASE),
    re.compile(r"\b(?:scales?|scaling) (?:infinitely|without (?:a )?limit|without bounds)", re.IGNORECASE),
]
DENIED = re.compile(r"\b(?:not|never|no|nothing|neither|nor|cannot|nobody)\b", re.IGNORECASE)


def claims(text: str) -> list[str]:
    """The sentences of a text that promise what cannot be had."""
    plain = re.sub(r"[\s#*_`\"']+", " ", text)
    found: list[str] = []
    for pattern in FORBIDDEN:
        for match in pattern.finditer(plain):
            before = re.split(r"[.;:!?]", plain[: match.start()])[-1]
            if not DENIED.search(before):
                found.append(f"{before[-60:]}[{match[0]}]")
    return found


@pytest.mark.slow
def test_no_source_and_no_page_claims_too_much() -> None:
    found = [f"{path}: {claim}" for path in PAGES for claim in claims(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", [*WHY.values(), HELD_BACK, UNKNOWN_KIND])
def test_no_word_of_advice_claims_too_much(text: str) -> None:
    assert not claims(text)


@pytest.mark.parametrize("case", ["priced", "unhelped", "countable", "crowded", "irreducible"])
def test_what_only_lowers_the_price_says_that_the_dependency_stays(case: str) -> None:
    text = WHY[case]  # type: ignore[index]  # The names of cases are checked by the lookup itself.
    assert re.search(r"(?:go on|still) depend(?:ing)? on each other", text)


@pytest.mark.parametrize(
    "text",
    [
        "Group commit solves contention.",
        "Sharding eliminates lock contention on the row.",
        "It removes\nthe contention.",
        "With `group_commit_window` same-row contention is solved.",
        "A contention-free counter.",
        "With shards, writers no longer wait for each other.",
        "Sixteen shards, and you write without contention.",
        "Getting rid of hot rows was never so easy.",
        "It scales without limit.",
    ],
)
def test_a_claim_is_noticed(text: str) -> None:
    assert claims(text)


@pytest.mark.parametrize(
    "text",
    [
        "Groups do not remove contention on a row. They lower its price.",
        "No configuration solves contention.",
        "Sharding lowers the price of contention; two writes of one shard still depend on each other.",
        "Streams with databases of their own do not wait for one another.",
        "A sharded counter gets back what rows without contention do.",
        "Shards help where the writes do not depend on each other.",
    ],
)
def test_the_truth_may_be_told(text: str) -> None:
    assert not claims(text)
