"""D9: `interlock hot` shows what another process has seen of hot rows, and says so when there is nothing."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.unit.cli.running import Interlock, plain_environment

ROOT = Path(__file__).resolve().parents[3]
SEAT = "00000000-0000-0000-0000-000000000007"


@contextlib.contextmanager
def open_shop(home: str) -> Generator[None]:
    """Another process that keeps a row and a workflow hot, and has told so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.cli.hot_shop", home],
        cwd=ROOT,
        env=plain_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        yield
    finally:
        process.communicate("")
    assert process.returncode == 0


@pytest.mark.slow
def test_rows_and_workflows_of_another_process_are_one_table_worst_first(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"
    with open_shop(home):
        table = interlock("hot", home)
        rows = json.loads(interlock("hot", home, "-o", "json").out)
        stock = interlock("hot", f"{home}/stock", "-o", "ids")
        one = interlock("hot", "--limit", "1", "-o", "ids", "--home", home)
        metrics = interlock("hot", home, "-o", "metrics")
    assert (table.code, table.err) == (0, "")
    heading, *lines = table.out.splitlines()
    assert heading.split() == [
        "database", "source", "table", "key", "hand-offs/s", "conflicts/s", "writes/s", "wait", "ms", "flagged",
    ]  # fmt: skip
    found = {tuple(line.split()[:4]) for line in lines}
    assert found == {("stock", "lane", "seat", SEAT), ("workflows", "workflow", "auction", "a-1")}
    assert [row["handoffs_per_s"] for row in rows] == sorted((row["handoffs_per_s"] for row in rows), reverse=True)
    assert {row["key"] for row in rows} == {SEAT, "a-1"}, "those who write rows of their own wait for nobody"
    assert (stock.out, stock.err) == (f"{SEAT}\n", "")
    assert len(one.out.splitlines()) == 1
    assert f'interlock_row_flagged{{database="stock",source="lane",table="seat",key="{SEAT}"}}' in metrics.out


@pytest.mark.slow
def test_when_the_owner_has_left_there_is_nothing_to_see_and_it_says_so(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"
    with open_shop(home):
        pass
    done = interlock("hot", home)
    assert done.code == 0
    assert "Nothing is hot as far as can be seen" in done.out
    assert "No process has stock, workflows open" in done.err
    assert not list((tmp_path / "shop").glob("*.hot*"))
    assert json.loads(interlock("hot", home, "-o", "json").out) == []


@pytest.mark.slow
def test_a_crashed_owner_leaves_nothing_that_is_believed(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/shop"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.cli.hot_shop", home],
        cwd=ROOT,
        env=plain_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert list((tmp_path / "shop").glob("*.hot"))
    done = interlock("hot", home)
    assert (done.code, "No process has" in done.err) == (0, True)
    assert "Nothing is hot" in done.out


def test_without_an_address_or_a_database_it_says_what_to_write(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_HOME", raising=False)
    assert interlock("hot").code == 2
    assert interlock("hot", f"lanes://{tmp_path}/nowhere").code == 4
    assert interlock("hot", "memory:").code == 2
    assert interlock("hot", "lanes:///x", "--seconds", "-1").code == 2


def test_it_never_claims_that_contention_is_solved(interlock: Interlock) -> None:
    """D13: groups and shards lower the price, the dependency stays."""
    told = interlock("hot", "--help").out.lower()
    assert "solve" not in told
    assert "eliminate" not in told
