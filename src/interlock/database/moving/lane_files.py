"""Files of a lane that is the target of a move: a draft atomically replaces an older file.

A place that was left has a tombstone, which redirects clients. If the file were missing when the mover dies, the next
client would create an empty database. So the draft is made beside it, with the same tombstone, and replaces it. The
old file is kept under a name with the epoch of the move.
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
    """Return the path where the draft of this move is made."""
    return path.with_name(f"{path.name}.arriving-{epoch}")


def kept_path(path: Path, epoch: int) -> Path:
    """Return the path under which the file from before this move is kept."""
    return path.with_name(f"{path.name}.before-{epoch}")


def remove(path: Path) -> None:
    """Remove a file of SQLite's with its log."""
    for ending in ("", *LOGS):
        _beside(path, ending).unlink(missing_ok=True)
    sync_folder(path.parent)


def rename_again(path: Path) -> None:
    """Remove the second name of the old file, which a mover left when it died before the replacement."""
    for kept in path.parent.glob(f"{_escaped(path.name)}.before-*"):
        if path.exists() and kept.samefile(path):
            kept.unlink()


def replace_draft(path: Path, fresh: Path, *, epoch: int, before: int) -> None:
    """Replace an old draft with a fresh one; the file that was kept for the old one is kept for this."""
    kept = kept_path(path, before)
    if before != epoch and kept.exists():
        kept.rename(kept_path(path, epoch))
    _replace_folded(path, fresh)


def replace_left(path: Path, fresh: Path, *, epoch: int) -> None:
    """Replace a file that was left with a fresh draft; the file is kept under another name."""
    kept = kept_path(path, epoch)
    _fold(path)
    for log in LOGS:
        with contextlib.suppress(FileNotFoundError):  # Open readers keep reading the old file.
            _beside(path, log).rename(_beside(kept, log))
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    fresh.replace(path)
    sync_folder(path.parent)


def take_back(path: Path, epoch: int) -> None:
    """Remove a draft, and restore the kept file with its tombstone, which redirects clients."""
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
    """Checkpoint the log into the file, so that the file is complete without it."""
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in name)
