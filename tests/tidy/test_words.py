"""The words of the trade: none of the banned ones in the source, the README and the documentation."""

import pytest

from tests.tidy import words
from tests.tidy.source import ROOT, Offence, Source, report, sources, tracked_files

KEPT = {
    ("src/interlock/chaos/database_servers.py", "nobody"): "the name of a user of the system",
    ("src/interlock/store/postgres/migrations.py", "behind"): "a stored value, `left behind`",
}
"""Words that are names of something outside, by file. Anything else is rewritten."""

PUBLIC_PARTICIPLES = {
    ("src/interlock/engine/leases.py", "held"): "`Lease.held` is public",
    ("src/interlock/engine/blocking_engine.py", "held"): "`BlockingLease.held` is public",
}
"""Identifiers that users have in their programs, by file."""


def texts() -> list[Offence]:
    """The offences in README.md and docs."""
    pages = [
        path
        for path in tracked_files()
        if path.suffix == ".md" and path.relative_to(ROOT).parts[0] in {"README.md", "docs"}
    ]
    assert pages
    return [
        offence
        for path in pages
        for offence in words.banned_words(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]


def test_the_source_has_no_banned_words() -> None:
    offences = [
        offence
        for source in sources("src")
        for offence in words.banned_words(source.path, source.text)
        if (source.path, offence.what.split("'")[1]) not in KEPT
    ]
    assert not offences, report(offences)


@pytest.mark.slow
def test_no_identifier_is_a_bare_participle() -> None:
    offences = [
        offence
        for source in sources("src")
        for offence in words.bare_participles(source)
        if (source.path, offence.what.split("'")[1]) not in PUBLIC_PARTICIPLES
    ]
    assert not offences, report(offences)


def test_the_documentation_has_no_banned_words() -> None:
    offences = texts()
    assert not offences, report(offences)


@pytest.mark.parametrize(
    "text",
    [
        "Whoever calls it waits.",
        "Nobody waits.",
        "for those who read",
        "the file is mended",
        "a page behind the mark",
        "after so many attempts",
        "All of them at once.",
        "The caller is told.",
        "It is no workflow.",
        "there were some, and are none",
    ],
)
def test_a_banned_word_is_caught(text: str) -> None:
    [offence] = words.banned_words("README.md", f"first\n{text}\n")
    assert offence.line == 2


@pytest.mark.parametrize(
    "text", ["There is no workflow.", "`None` is NONE", "The caller receives it.", "amends", "is No. 3", "told"]
)
def test_other_words_are_fine(text: str) -> None:
    assert not words.banned_words("README.md", text)


@pytest.mark.parametrize("text", ["told = 1", "self._told = 1", "def gone(): ...", "def f(*, held): ..."])
def test_a_bare_participle_is_caught(text: str) -> None:
    assert words.bare_participles(Source("src/interlock/sample.py", text))


@pytest.mark.parametrize("text", ["# told", "'told'", "rows_held = 1", "is_gone = True", "x.holds"])
def test_an_identifier_that_names_its_thing_is_fine(text: str) -> None:
    assert not words.bare_participles(Source("src/interlock/sample.py", text))
