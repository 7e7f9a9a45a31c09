"""The files of a lane that a database arrives at: a draft takes the place of what was there, in one step.

A place that was left has a tombstone, and who comes there is sent on. Were the file away for an instant in which the
mover dies, the next one to come would begin an empty database. So the draft is made beside it, tombstone and all, and
replaces it; what was there is kept under a name that says before which move.
"""

# pyright: reportUnknownMemberType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import contextlib
import os
from pathlib import Path
from typing import Final

import apsw

from interlock.lanes.placing import sync_folder

LOGS: Final = ("-wal", "-shm")


def fresh_path(path: Path, epoch: int) -> Path:
    """Where the draft of this move is made."""
    return path.with_name(f"{path.name}.arriving-{epoch}")


def kept_path(path: Path, epoch: int) -> Path:
    """Where what was there before this move is kept."""
    return path.with_name(f"{path.name}.before-{epoch}")


def remove(path: Path) -> None:
    """Remove a file of SQLite's with its log."""
    for ending in ("", *LOGS):
        _beside(path, ending).unlink(missing_ok=True)
    sync_folder(path.parent)


def rename_again(path: Path) -> None:
    """A mover died between giving the old file its second name and replacing the first: only the first counts."""
    for kept in path.parent.glob(f"{_escaped(path.name)}.before-*"):
        if path.exists() and kept.samefile(path):
            kept.unlink()


def replace_draft(path: Path, fresh: Path, *, epoch: int, before: int) -> None:
    """Put a fresh draft in the place of an old one; what was kept for that is kept for this."""
    kept = kept_path(path, before)
    if before != epoch and kept.exists():
        kept.rename(kept_path(path, epoch))
    _replace_folded(path, fresh)


def replace_left(path: Path, fresh: Path, *, epoch: int) -> None:
    """Put a fresh draft in the place of a file that is kept."""
    kept = kept_path(path, epoch)
    _fold(path)
    for log in LOGS:
        with contextlib.suppress(FileNotFoundError):  # Whoever still reads there goes on reading there.
            _beside(path, log).rename(_beside(kept, log))
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    fresh.replace(path)
    sync_folder(path.parent)


def take_back(path: Path, epoch: int) -> None:
    """Remove a draft; what was kept for it is there again, with the tombstone that whoever still comes here needs."""
    kept = kept_path(path, epoch)
    if kept.exists():
        _replace_folded(path, kept)
    else:
        remove(path)


def _replace_folded(path: Path, other: Path) -> None:
    _fold(path)
    for log in LOGS:
        _beside(path, log).unlink(missing_ok=True)
    other.replace(path)
    sync_folder(path.parent)


def _fold(path: Path) -> None:
    """Everything into the file: without its log it is still the same."""
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in name)
