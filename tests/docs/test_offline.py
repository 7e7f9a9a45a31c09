"""The built documentation loads nothing from the network: no font, script, style or picture of somebody else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.tabs import ARGUMENTS, WAIT_MS, chromium

ROOT = Path(__file__).resolve().parents[2]

SEARCHED = ("saga", "cron", "outbox", "celeri", "tempor", "approv")
"""Stems of what readers search for; the index is a file, so the search needs no server."""

FOUND_FIRST = {
    "retries": "how-to/survive-a-failing-dependency.html",
    "cron": "how-to/schedules.html",
    "outbox": "how-to/side-messages.html",
    "saga": "how-to/undo-what-was-done.html",
    "approvals": "how-to/approvals.html",
    "timers": "how-to/use-timers.html",
    "webhooks stripe": "how-to/webhooks-from-vendors.html",
    "child workflows": "how-to/children-and-joins.html",
    "pause": "how-to/pause.html",
    "celery": "how-to/migrate-from-celery.html",
}
"""The page that a search has to show first, by what a reader types."""

# Links a reader may click are fine; what a browser fetches by itself is not.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\bsrc\s*=\s*[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?![^>]*\brel\s*=\s*[\"']?(?:canonical|search|author|license))[^>]*\bhref\s*=\s*[\"']?(?:https?:)?//[^>]*>"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//[^;]*"
    r"|\burl\(\s*[\"']?(?:https?:)?//[^)]*\)",
    re.IGNORECASE,
)


def fetched_from_network(text: str) -> list[str]:
    """The pieces of a page or style sheet that make a browser ask another host."""
    return [match[0] for match in _FETCHED.finditer(text)]


@pytest.mark.slow
def test_the_built_pages_ask_no_other_host(tmp_path: Path) -> None:
    built = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, str(ROOT / "docs"), str(built)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (built / "index.html").exists()
    assert (built / "search.html").exists()
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    assert [word for word in SEARCHED if f'"{word}"' not in index and f"{word}:" not in index] == []
    found = {
        path.relative_to(built).as_posix(): pieces
        for path in built.rglob("*")
        if path.suffix in {".html", ".css"} and (pieces := fetched_from_network(path.read_text(encoding="utf-8")))
    }
    assert not found
    program = chromium()
    if program is not None:
        assert first_results(built, program) == FOUND_FIRST


def first_results(built: Path, program: str) -> dict[str, str]:
    """The page that the built search, without a network, shows first for each query."""
    found: dict[str, str] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        page = browser.new_context(offline=True).new_page()
        for query in FOUND_FIRST:
            page.goto(f"{(built / 'search.html').as_uri()}?q={query.replace(' ', '+')}")
            link = page.locator("#search-results li > a").first
            link.wait_for(timeout=WAIT_MS)
            found[query] = (link.get_attribute("href") or "").partition("?")[0].partition("#")[0]
        browser.close()
    return found


@pytest.mark.parametrize(
    "text",
    [
        '<script async src="https://cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        "<img alt='' src='http://example.org/badge.svg'>",
        '@import "https://example.org/x.css";',
        "src: url(https://example.org/font.woff2)",
    ],
)
def test_a_foreign_asset_is_caught(text: str) -> None:
    assert fetched_from_network(text)


@pytest.mark.parametrize(
    "text",
    ['<a href="https://example.org">x</a>', '<script src="_static/x.js">', '<link rel="canonical" href="https://x">'],
)
def test_links_and_own_assets_are_fine(text: str) -> None:
    assert not fetched_from_network(text)
