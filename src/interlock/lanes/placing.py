"""The placement of a finished file: checked before anything is made, and given its name as the last step.

Until then it is a temporary file beside it. So a file of that name is whole, and an error leaves no file.
"""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

from interlock.errors import UnusableFile
from interlock.lanes.ownership import Ownership, lock_path
from interlock.seams import Clock


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a file that cannot be written, or that must not be. Raises UnusableFile."""
    if not path.parent.is_dir():
        raise UnusableFile(
            f"the folder {path.parent} does not exist.",
            why="A folder that is made because of a misspelt name hides the file.",
            fix="Make the folder, or name another one.",
        )
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise UnusableFile(f"{path} is not a file.", why="A database is one file.")
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            raise UnusableFile(
                f"{beside} is there, the log of another database of that name.",
                why="SQLite would play it into the new file, and destroy it.",
                fix="Choose another name; or close whatever uses the file, and remove both.",
            )
    if path.exists() and not force:
        raise UnusableFile(
            f"{path} exists.",
            why="What it holds would be gone.",
            fix="Name another file, or say --force to replace it.",
        )


@contextlib.contextmanager
def held(path: Path, clock: Clock) -> Generator[None]:
    """Own the lane while its file is replaced, so that no process opens it. Raises LaneOwned when one has it open."""
    if not lock_path(path).exists():
        yield
        return
    ownership = Ownership.take(path, clock)
    try:
        yield
    finally:
        ownership.release()


def put_in_place(temporary: Path, path: Path, *, force: bool) -> None:
    """Give a finished file its name, durably. Raises FileExistsError unless `force`."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    if force:
        temporary.replace(path)
    else:
        # A link, because renaming would silently replace a file that has come into being meanwhile.
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:  # A file system without links.
            temporary.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the new, changed and removed names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
