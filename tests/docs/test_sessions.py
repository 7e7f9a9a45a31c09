"""What the pages about the server have a reader type works, line by line, and prints what they show (B13)."""

import os
import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import PageFailed, read_blocks
from tests.docs.sessions import Shell, is_session, run_session, typed_in
from tests.docs.test_code_blocks import PAGES, ROOT

SESSIONS = [page for page in PAGES if is_session((ROOT / page).read_text(encoding="utf-8"))]


def need_curl() -> None:
    """Skip without curl; fail where CI should have installed it."""
    if shutil.which("curl") is None:
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail("there is no curl here, and .ci/run installs it")
        pytest.skip("there is no curl here: install the package curl")


@pytest.mark.slow
@pytest.mark.parametrize("page", SESSIONS)
def test_a_session_of_a_page_works_and_prints_what_is_shown(page: str, tmp_path: Path) -> None:
    need_curl()
    with Shell(tmp_path / "reader") as shell:
        try:
            assert run_session(ROOT / page, page, shell)
        except PageFailed as failure:
            pytest.fail(str(failure), pytrace=False)


def page_of(folder: Path, console: str) -> Path:
    page = folder / "page.md"
    page.write_text(f"# T\n\n```console\n{console}```\n")
    return page


def test_what_is_exported_is_kept_from_line_to_line(tmp_path: Path) -> None:
    page = page_of(
        tmp_path, "$ export WORD='two  words'\n$ mkdir in\n$ cd in\n$ echo \"$WORD\" \\\n    end\ntwo  words end\n"
    )
    with Shell(tmp_path / "reader") as shell:
        assert run_session(page, "page.md", shell) == 4


@pytest.mark.parametrize("console", ["$ false\n", "$ echo one\ntwo\n"])
def test_a_line_that_does_not_do_what_is_shown_is_reported(console: str, tmp_path: Path) -> None:
    with Shell(tmp_path / "reader") as shell, pytest.raises(PageFailed) as failure:
        run_session(page_of(tmp_path, console), "page.md", shell)
    assert str(failure.value).startswith("page.md:4: $ ")


@pytest.mark.slow
def test_a_server_that_does_not_start_is_told_with_what_it_says(tmp_path: Path) -> None:
    with Shell(tmp_path / "reader") as shell, pytest.raises(AssertionError) as failure:
        shell.type("interlock serve interlock.examples.order:oder --home memory:")
    assert "oder" in str(failure.value)


def test_a_line_may_go_on() -> None:
    [block] = read_blocks("```console\n$ one \\\n    two\nshown\n$ three\n```\n")
    assert [(each.command, each.shown) for each in typed_in(block)] == [("one two", ["shown"]), ("three", [])]
