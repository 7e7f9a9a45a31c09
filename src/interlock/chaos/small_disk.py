"""Small disk that an experiment can fill to the last byte and empty again.

    with closing(SmallDisk(folder)) as disk:
        …                       # in the process that has the lanes: use(disk.folder, disk.kind), then open them
        disk.fill()             # whatever has to grow from now on is refused: the disk is full
        disk.empty()

Where this process may mount, it is a real file system of a few megabytes in memory, and the kernel itself says that
there is no space left (`kind` is "tmpfs"). Everywhere else the refusal is simulated one layer higher, in the file layer
of SQLite, with the error that SQLite makes of the kernel's (`kind` is "simulated"). A bound on the size of files
(RLIMIT_FSIZE) would need no rights either, but its EFBIG is an input/output error to SQLite, and not a full disk.
Either way, what was allocated before can be written over, as on any disk.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal

import apsw

from interlock.errors import UnavailableError

SIZE_BYTES: Final = 8_000_000
FILLING: Final = ".filling"
"""The file that takes the rest of the disk. On a simulated disk its presence means that the disk is full."""

CHUNKS: Final = (1_048_576, 4_096, 1)
"""Sizes in bytes of the pieces that fill the disk, largest first."""

Kind = Literal["tmpfs", "simulated"]
DESCRIPTIONS: Final[dict[Kind, str]] = {
    "tmpfs": "a real file system of {size:,} bytes in memory",
    "simulated": "simulated in the file layer of SQLite, for only root may mount a file system",
}

UNMOUNTING: Final = 'read -r _; exec "$0" -l "$1"'
"""Shell program that unmounts the disk at the end of its input, which comes with any exit of this process."""


class SmallDisk:
    """One disk, mounted at a folder or simulated there."""

    def __init__(self, folder: Path, *, size_bytes: int = SIZE_BYTES, mounts: bool | None = None) -> None:
        self.folder = folder
        self._size_bytes = size_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._unmounting: subprocess.Popen[bytes] | None = None
        refused = "it was not asked to" if mounts is False else self._mount()
        if refused and mounts:
            raise UnavailableError(
                f"no disk can be mounted at {folder}: {refused}.",
                why="Only root may mount a file system, and not in every container.",
                fix="Leave out mounts=True: the disk is simulated then.",
            )
        self.kind: Kind = "simulated" if refused else "tmpfs"

    @property
    def description(self) -> str:
        """Describe the kind of disk for people."""
        return DESCRIPTIONS[self.kind].format(size=self._size_bytes)

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        descriptor = os.open(self.folder / FILLING, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for chunk in CHUNKS if self.kind == "tmpfs" else ():
                _write_until_full(descriptor, bytes(chunk))
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Free what `fill` has taken."""
        (self.folder / FILLING).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it and drop its content. A second call does nothing."""
        if self._unmounting is not None:
            self._unmounting.communicate()
            self._unmounting = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mount(self) -> str | None:
        """Mount a file system in memory; return the reason if that fails."""
        mount, unmount, shell = shutil.which("mount"), shutil.which("umount"), shutil.which("sh")
        if not sys.platform.startswith("linux") or os.geteuid() != 0 or not (mount and unmount and shell):
            return "this is not Linux, or not root, or there is no `mount`"
        options = f"size={self._size_bytes},mode=700,nosuid,nodev,noexec"
        # The process that unmounts is started before the mount, so that no exit can leave it mounted.
        unmounting = subprocess.Popen(  # noqa: S603 -- the system's own programs.
            [shell, "-c", UNMOUNTING, unmount, str(self.folder)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        done = subprocess.run(  # noqa: S603 -- the system's own program.
            [mount, "-t", "tmpfs", "-o", options, "interlock-chaos", str(self.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            unmounting.communicate()
            return done.stderr.strip() or f"mount has ended with {done.returncode}"
        self._unmounting = unmounting
        return None


class SimulatedDisk(apsw.VFS):
    """SQLite's file layer in a process that uses a simulated disk, for every file that is opened from now on."""

    def __init__(self, folder: Path) -> None:
        # The base VFS is named: the default would be this layer itself, which becomes the default here.
        self.below = apsw.vfs_names()[0]
        super().__init__(f"interlock-chaos-{folder.name}", self.below, makedefault=True, maxpathname=0)
        self._folder = f"{folder.resolve()}{os.sep}"
        self._filling = str(folder.resolve() / FILLING)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name.
        """Open a file for SQLite."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _Bounded(self, name, flags) if path and path.startswith(self._folder) else super().xOpen(name, flags)

    def full(self) -> bool:
        """Return whether the simulated disk is full."""
        return os.path.exists(self._filling)  # noqa: PTH110 -- called for every write.


class _Bounded(apsw.VFSFile):
    def __init__(self, disk: SimulatedDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(disk.below, name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name.
        if self._disk.full() and offset + len(data) > self.xFileSize():
            raise apsw.FullError("database or disk is full")  # SQLite's own words.
        super().xWrite(data, offset)


def use(folder: Path, kind: Kind) -> SimulatedDisk | None:
    """Prepare this process for lanes on a small disk, before it opens them. Return None for a real disk.

    The caller must keep the result for as long as the lanes are open.
    """
    return SimulatedDisk(folder) if kind == "simulated" else None


def _write_until_full(descriptor: int, chunk: bytes) -> None:
    try:
        while os.write(descriptor, chunk):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
