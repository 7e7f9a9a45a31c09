"""Every link of the README, the documentation and the pages at the root leads to a file, and to a heading in it.

Links to other sites are checked for their form only: no test asks the network.
"""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.docs.test_code_blocks import DOCS, ROOT

TEXTS = [*sorted(ROOT.glob("*.md")), ROOT / "llms.txt", *DOCS, ROOT / "examples/README.md", ROOT / "ops/README.md"]
PAGES = [path.relative_to(ROOT).as_posix() for path in TEXTS]
FOREIGN = {"http", "https", "mailto"}
EXAMPLE_HOSTS = re.compile(r"(?:127\.0\.0\.1|localhost|your\.server)(?::\d+)?")


def links_of(text: str) -> list[tuple[int, str]]:
    """The targets of the links and pictures of a page, with the first line of their paragraph."""
    found: list[tuple[int, str]] = []
    line = 0

    def walk(tokens: list[Token]) -> None:
        nonlocal line
        for token in tokens:
            line = token.map[0] + 1 if token.map else line
            target = token.attrs.get("href") or token.attrs.get("src")
            if target is not None:
                found.append((line, str(target)))
            walk(token.children or [])

    walk(MarkdownIt("commonmark").enable("table").parse(text))
    return found


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    tokens = MarkdownIt("commonmark").parse(path.read_text(encoding="utf-8"))
    headings = [tokens[at + 1].children or [] for at, token in enumerate(tokens) if token.type == "heading_open"]
    names = ["".join(child.content for child in children) for children in headings]
    found: dict[str, int] = {}
    anchors: set[str] = set()
    for name in names:
        slug = re.sub(r"[^\w\- ]", "", name.lower()).strip().replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        anchors.add(slug if not count else f"{slug}-{count}")
    return frozenset(anchors)


def wrong(page: Path, target: str) -> str:
    """What is wrong with a link, or nothing."""
    parts = urlsplit(target)
    if parts.scheme in FOREIGN:
        host = parts.netloc if parts.scheme != "mailto" else parts.path.partition("@")[2]
        return "" if "." in host or EXAMPLE_HOSTS.fullmatch(host) else "has no host"
    if parts.scheme or parts.netloc:
        return "has an unknown scheme"
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not path.is_relative_to(ROOT) or not path.exists():
        return "leads to no file"
    if parts.fragment and path.suffix == ".md" and parts.fragment not in anchors_of(path):
        return f"leads to no heading of {path.name}"
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    path = ROOT / page
    found = [
        f"{page}:{line}: {target} {reason}"
        for line, target in links_of(path.read_text(encoding="utf-8"))
        if (reason := wrong(path, target))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("docs/no-such-page.md", "leads to no file"),
        ("docs/index.md#no-such-heading", "leads to no heading of index.md"),
        ("#no-such-heading", "leads to no heading of README.md"),
        ("../../etc/passwd", "leads to no file"),
        ("https://", "has no host"),
        ("ftp://example.org/x", "has an unknown scheme"),
        ("docs/index.md", ""),
        ("https://example.org/x#y", ""),
        ("http://127.0.0.1:8080", ""),
    ],
)
def test_a_broken_link_is_noticed(target: str, reason: str) -> None:
    assert wrong(ROOT / "README.md", target) == reason


def test_links_in_code_are_no_links_and_pictures_are() -> None:
    text = "# A\n\n```\n[x](y.md)\n```\n\ntext\n[one](two.md) ![three](four.png)\n\n| a |\n|---|\n| [five](six.md) |\n"
    assert [target for _, target in links_of(text)] == ["two.md", "four.png", "six.md"]


def test_the_readme_is_one_page() -> None:
    assert 7_000 <= len((ROOT / "README.md").read_text(encoding="utf-8")) <= 8_000
