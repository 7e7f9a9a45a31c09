"""The journal of applied advice, with the previous settings and places, so that each entry can be undone.

It is a small file at the home, or beside `interlock.toml` without one. An entry is written before anything is changed
and marked afterwards. A process that dies in between leaves an entry in state `begun`, which is safe to undo, because
it records the previous state and not the steps. Undone entries are kept, up to a bound.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import msgspec

from interlock.errors import UnusableFile
from interlock.hotrow.placement_advice import Action, Knob, Target, TypicalFigures

FILE = "interlock-advice.json"
FORMAT = 1
ENTRIES_MAX = 1_000
"""G6: older entries that were undone are forgotten first, then the oldest."""

State = Literal["begun", "done", "undone"]


class AppliedAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One applied piece of advice."""

    number: int
    time: str
    """When, in ISO 8601."""
    name: str
    """Of the workload."""
    action: Action
    target: Target
    file: str = ""
    """The file of settings that was changed."""
    set: dict[str, Knob] = {}
    before: dict[str, Knob | None] = {}
    """Previous values of those settings; None: they were not set."""
    home: str = ""
    """The home whose catalog has the moved workload."""
    source: str = ""
    """Its address before the move."""
    goal: str = ""
    """Its address after the move."""
    was: TypicalFigures | None = None
    """What was measured before it; None: an entry of an earlier version."""
    state: State = "begun"


class _Written(msgspec.Struct, frozen=True):
    format: int
    entries: list[AppliedAdvice]


class Journal:
    """The journal in one folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def entries(self) -> list[AppliedAdvice]:
        """Return all entries, oldest first. Raises UnusableFile."""
        try:
            written = msgspec.json.decode(self.path.read_bytes(), type=_Written)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnusableFile(f"the journal {self.path} cannot be read: {error.strerror or error}.") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnusableFile(
                f"{self.path} is not a journal of advice: {str(error) or 'it is nested too deeply'}.",
                why="It is written by `interlock advise --apply`, and replaced as a whole.",
                fix="Put it back from a backup, or remove it: what was applied stays, and is undone by hand.",
            ) from error
        if written.format != FORMAT:
            raise UnusableFile(
                f"{self.path} has format {written.format}; this version knows {FORMAT}.",
                why="Another version of Interlock wrote it.",
                fix="Use that version, or a later one.",
            )
        return written.entries

    def last(self, name: str | None = None) -> AppliedAdvice | None:
        """Return the newest entry that was not undone, of one workload or of all."""
        live = [each for each in self.entries() if each.state != "undone" and name in {None, each.name}]
        return live[-1] if live else None

    def begin(self, entry: AppliedAdvice) -> AppliedAdvice:
        """Append an entry with the next number, before the change that it describes."""
        with self._changing() as entries:
            entry = msgspec.structs.replace(entry, number=max((each.number for each in entries), default=0) + 1)
            entries.append(entry)
        return entry

    def mark(self, entry: AppliedAdvice, state: State) -> None:
        """Write the state of an entry."""
        with self._changing() as entries:
            at = next(at for at, each in enumerate(entries) if each.number == entry.number)
            entries[at] = msgspec.structs.replace(entry, state=state)

    @contextlib.contextmanager
    def _changing(self) -> Generator[list[AppliedAdvice]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_name(FILE + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = self.entries()
            yield entries
            while len(entries) > ENTRIES_MAX:
                entries.pop(next((at for at, each in enumerate(entries) if each.state == "undone"), 0))
            self._replace(msgspec.json.format(msgspec.json.encode(_Written(FORMAT, entries)), indent=2))
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            os.close(lock)

    def _replace(self, data: bytes) -> None:
        new = self.path.with_name(FILE + ".new")
        # Readable by the owner only: it holds addresses.
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unwritable(self, error: OSError) -> UnusableFile:
        return UnusableFile(
            f"the journal {self.path} cannot be written: {error.strerror or error}.",
            why="What is applied is written down first, so that it can be taken back.",
            fix="Check the folder and its permissions.",
        )
