"""The journal of what was done on advice: numbered, found again, bounded, and never half."""

import stat
from pathlib import Path

import pytest

from interlock.errors import UnusableFile
from interlock.hotrow import applied_advice as journals
from interlock.hotrow.applied_advice import AppliedAdvice, Journal


def entry(name: str = "views") -> AppliedAdvice:
    return AppliedAdvice(number=0, time="2026-11-16T10:00:00+00:00", name=name, action="helper", target="more_shards")


def test_an_entry_is_written_before_and_marked_after(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "home")
    assert (journal.entries(), journal.last()) == ([], None)
    first = journal.begin(entry())
    second = journal.begin(entry("stock"))
    assert [(each.number, each.state) for each in Journal(tmp_path / "home").entries()] == [(1, "begun"), (2, "begun")]
    journal.mark(second, "done")
    assert journal.last() == Journal(tmp_path / "home").last()
    found = journal.last()
    assert found is not None
    assert (found.name, found.state) == ("stock", "done")
    journal.mark(second, "undone")
    assert journal.last() == first, "what was begun may have been done, and can be undone"
    assert journal.last("stock") is None


def test_it_holds_addresses_so_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(entry())
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_it_is_bounded_and_forgets_what_was_undone_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "ENTRIES_MAX", 3)
    journal = Journal(tmp_path)
    entries = [journal.begin(entry(str(number))) for number in range(3)]
    journal.mark(entries[1], "undone")
    journal.begin(entry("3"))
    assert [each.name for each in journal.entries()] == ["0", "2", "3"]
    journal.begin(entry("4"))
    assert [each.name for each in journal.entries()] == ["2", "3", "4"]


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 9, "entries": []}', "\xff"])
def test_what_is_none_is_refused_and_not_replaced(content: str, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.path.write_text(content, encoding="latin-1")
    with pytest.raises(UnusableFile):
        journal.begin(entry())
    assert journal.path.read_text(encoding="latin-1") == content
