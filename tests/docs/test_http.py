"""The page on HTTP names everything that an answer can have (B13). Its tables are made of the code: test_reference."""

import re
from pathlib import Path

import msgspec
import pytest

from interlock.core.codec import DEPTH_MAX
from interlock.server.http_messages import API_HEADERS
from interlock.server.lifecycle import BURST, RATE_PER_S
from interlock.server.security.keys import LADDER
from interlock.wire import Problem

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text(encoding="utf-8")


def test_every_member_of_a_problem_is_told_and_no_other() -> None:
    [table] = re.findall(r"\| member \|.*?\n\n", PAGE, re.DOTALL)
    members = {name for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in cell.split("`")[1::2]}
    assert members | {"type"} == {field.name for field in msgspec.structs.fields(Problem)}
    assert "`type` is the same as a URN" in PAGE


@pytest.mark.parametrize("name", [name.decode() for name, _ in API_HEADERS])
def test_every_header_that_all_answers_have_is_told(name: str) -> None:
    [section] = re.findall(r"^## Headers of every answer\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    assert f"`{name}" in section.lower()


def test_the_ladder_of_scopes_is_told_in_its_order() -> None:
    assert f"Scopes are a ladder: {', '.join(f'`{scope}`' for scope in LADDER)};" in PAGE


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"nested deeper than {DEPTH_MAX} levels" in text
    assert f"takes {RATE_PER_S:,.0f} calls per second in the long run and {BURST:,.0f} in a burst" in text


def test_every_code_says_what_it_means() -> None:
    [table] = re.findall(r"\| code \| status \|.*?\n\n", PAGE, re.DOTALL)
    rows = re.findall(r"^\| `([a-z-]+)` \| [\d or]+ \| \w+ \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) > 30
    assert not [code for code, means in rows if not means.strip()], "add it to ONLY_HTTP of docs/generate.py"
