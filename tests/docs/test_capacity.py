"""The figures for planning are those of one run of the benchmark, whose command stands beside them (C17)."""

import re

import pytest

from benchmarks.capacity import BEGIN, END, MEASURES, Row, page_table, replaced
from tests.docs.test_code_blocks import ROOT

PAGE = (ROOT / "docs/how-to/plan-capacity.md").read_text(encoding="utf-8")


def test_the_page_has_a_table_of_one_run_with_its_command_and_its_machine() -> None:
    table = PAGE.partition(BEGIN)[2].partition(END)[0]
    assert re.search(r"Measured by `python -m benchmarks\.capacity --quick` on \d+ cores \(.+\), .+, Python 3", table)
    places = set(re.findall(r"^\| (\w+) \| .+ \| [\d.,]+.*\|$", table, flags=re.MULTILINE))
    assert places == set(MEASURES)


def test_a_new_run_takes_the_place_of_the_old_one_and_of_nothing_else() -> None:
    table = page_table([Row("lane", "rate", 1234.5, "/s"), Row("lane", "time", 0.01234, "ms")], {"Redis": "no"}, "x")
    once = replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", table)
    assert replaced(once, table) == once
    assert "| lane | rate | 1,234 /s |\n| lane | time | 0.0123 ms |" in once
    assert "Not measured: Redis, because no." in once
    assert once.startswith("before\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="measured: begin"):
        replaced("nothing here", "table")
