"""The audit log in files of the home: one line per entry, appended under a lock and synced.

A full file is renamed, and FILES_KEPT renamed files are kept, so the log is bounded. A line that a crash cut short was
never acknowledged: the next entry begins on a new line, and readers skip the broken one.
"""

import asyncio
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from interlock.server.security.audit import Entry
from interlock.server.security.documents import locked, private_file, sync_folder, usable

NAME: Final = "interlock-audit"
FILE_BYTES_MAX = 4 << 20
FILES_KEPT = 15
"""Renamed files beside the current one: 64 MiB at most, some hundred thousand entries."""

_ASIDE: Final = re.compile(rf"{NAME}-(\d+)\.jsonl")


class FileTrail:
    """Audit entries in files of a folder."""

    def __init__(self, folder: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT) -> None:
        self._folder = folder
        self._current = folder / f"{NAME}.jsonl"
        self._file_bytes_max = file_bytes_max
        self._files_kept = files_kept

    async def append(self, entry: Entry) -> None:
        """Write an entry; it is on the disk when this returns."""
        await asyncio.to_thread(self._append, msgspec.json.encode(entry) + b"\n")

    async def read(self, limit: int) -> list[Entry]:
        """Return the newest entries, newest first."""
        return await asyncio.to_thread(self._read, limit)

    async def prune(self, before: datetime) -> None:
        """Remove renamed files whose newest entry is older."""
        await asyncio.to_thread(self._prune, before)

    async def close(self) -> None:
        """Do nothing."""

    def _append(self, line: bytes) -> None:
        with usable(self._current):
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder / f"{NAME}.lock"):
                self._put_aside()
                fresh = not self._current.exists()
                descriptor = private_file(self._current, os.O_RDWR | os.O_APPEND)
                try:
                    size = os.fstat(descriptor).st_size
                    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                    _write_all(descriptor, b"\n" + line if torn else line)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if fresh:
                    sync_folder(self._folder)

    def _put_aside(self) -> None:
        if not self._current.exists() or self._current.stat().st_size < self._file_bytes_max:
            return
        aside = self._aside()
        number = aside[0][0] + 1 if aside else 1
        self._current.rename(self._folder / f"{NAME}-{number}.jsonl")
        for _, path in aside[max(self._files_kept - 1, 0) :]:
            path.unlink(missing_ok=True)

    def _aside(self) -> list[tuple[int, Path]]:
        """Return the renamed files, newest first."""
        found = ((_ASIDE.fullmatch(path.name), path) for path in self._folder.glob(f"{NAME}-*.jsonl"))
        return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def _read(self, limit: int) -> list[Entry]:
        entries: list[Entry] = []
        with usable(self._current):
            for path in (self._current, *(path for _, path in self._aside())):
                if len(entries) >= limit:
                    break
                try:
                    entries += list(_entries(path.read_bytes()))[::-1]
                except FileNotFoundError:
                    continue  # It does not exist yet, or was removed meanwhile.
        return entries[:limit]

    def _prune(self, before: datetime) -> None:
        with usable(self._current), locked(self._folder / f"{NAME}.lock"):
            for _, path in self._aside():
                if all(entry.at < before for entry in _entries(path.read_bytes())):
                    path.unlink()


def _entries(data: bytes) -> Iterator[Entry]:
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=Entry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # Cut short by a crash.


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
