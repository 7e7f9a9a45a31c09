"""Injected faults: killed processes, a disk that loses unsynced writes, and a disk that is full.

    with Processes() as processes:
        process = processes.start("shop.load:buy", "/var/shop", die_at=At("group.committed", 3))
        for line in process.lines():          # the lines that it wrote before it died
            ...

A workload is a plain function `f(say, *args)` in an importable module. `say` writes one whole line to a pipe, so lines
written before a kill can be read after it. Tests wait for lines and never sleep.

The odd choice is that processes are forked by one helper process that has imported the workload already: a life costs
milliseconds instead of half a second of imports, so hundreds of crashes fit into a test run. The helper has no threads.
Only processes started here are killed, by their number; the kernel cannot reuse a number before it is reaped.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import asyncio
import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import apsw

from interlock.clock import Chance, SystemClock
from interlock.errors import UnavailableError

LIFETIME_S_MAX = 600
"""The alarm that ends a process even if its parent is dead. No workload comes near it."""

Argument = str | int | float | bool | None | Sequence["Argument"]


class At(NamedTuple):
    """The n-th time that a named point is reached (`interlock.faultpoints`)."""

    point: str
    reached: int = 1


class Process:
    """One life of a workload."""

    def __init__(self, owner: "Processes", number: int, pipe: int) -> None:
        self.number = number
        self._owner = owner
        self._pipe: int | None = pipe
        self._rest = b""
        self._ended: int | None = None

    def lines(self, count: int | None = None) -> Iterator[str]:
        """Yield the next lines, up to `count`, or all until it is dead. An unfinished line is dropped."""
        while count is None or count > 0:
            line = self._next_line(None)
            if line is None:
                return
            yield line
            count = None if count is None else count - 1

    def lines_for(self, seconds: float) -> Iterator[str]:
        """Yield its lines for this time: a way to kill it at an instant independent of the workload."""
        clock = SystemClock()
        until_s = clock.monotonic_s() + seconds
        while (left_s := until_s - clock.monotonic_s()) > 0:
            line = self._next_line(left_s)
            if line is None:
                return
            yield line

    def kill(self) -> None:
        """Kill it with SIGKILL. Lines that it wrote before stay readable with `lines`."""
        if self._ended is None:
            os.kill(self.number, signal.SIGKILL)

    def end(self) -> int:
        """Wait until it is dead; return its exit code, or minus the signal. Raises when the workload failed."""
        while self._read(None):  # A process that blocks on a full pipe would never end.
            pass
        if self._ended is None:
            self._ended = self._owner.reap(self.number)
        if self._ended > 0:
            error = "\n".join(line for line in self.lines() if line.startswith("!"))
            raise RuntimeError(f"the workload failed with exit code {self._ended}:\n{error}")
        return self._ended

    def close(self) -> None:
        """Kill it if it lives, and drop its unread lines. A second call does nothing."""
        self.kill()
        if self._ended is None:
            self._ended = self._owner.reap(self.number)
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
            self._rest = b""

    def _next_line(self, timeout_s: float | None) -> str | None:
        while b"\n" not in self._rest:
            if not self._read(timeout_s):
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def _read(self, timeout_s: float | None) -> bool:
        """Wait for more output; return False at its end or after the timeout."""
        if self._pipe is None or not select.select([self._pipe], [], [], timeout_s)[0]:
            return False
        data = os.read(self._pipe, 65_536)
        self._rest += data
        return bool(data)


class Processes:
    """Starts processes, and kills the remaining ones at the end."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._helper: subprocess.Popen[bytes] | None = None
        self._living: dict[int, Process] = {}

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._helper = subprocess.Popen(  # noqa: S603 -- our own module, our own interpreter.
                [sys.executable, "-m", "interlock.testing.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                process_group=0,  # A terminal's Ctrl-C must reach this process alone.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self._socket = ours
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self._living.values()):
            process.close()
        assert self._socket is not None
        assert self._helper is not None
        self._socket.close()  # The helper ends when its socket is closed.
        self._helper.wait()

    def start(
        self, workload: str, *args: Argument, die_at: At | None = None, descriptors: Sequence[int] = ()
    ) -> Process:
        """Run `module:function` in a process of its own; `die_at` makes it kill itself at a named point.

        Descriptors are passed on: their numbers in the new process are the last arguments of the workload.
        """
        assert self._socket is not None, "enter the context first"
        request = {"workload": workload, "args": args, "die_at": die_at, "lifetime_s": LIFETIME_S_MAX}
        reading, writing = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [writing, *descriptors])
        finally:
            os.close(writing)
        answer = self._answer()
        if "number" not in answer:
            os.close(reading)
            raise RuntimeError(f"{workload} cannot be started: {answer['error']}")
        process = Process(self, int(answer["number"]), reading)
        self._living[process.number] = process
        return process

    def reap(self, number: int) -> int:
        """Wait until a process is dead; its number is free afterwards. Used by `Process`."""
        assert self._socket is not None
        self._socket.send(json.dumps({"reap": number}).encode())
        del self._living[number]
        return int(self._answer()["ended"])

    def _answer(self) -> dict[str, str]:
        assert self._socket is not None
        data = self._socket.recv(65_536)
        if not data:
            raise RuntimeError("the helper process is gone; its error output says why.")
        answer: dict[str, str] = json.loads(data)
        return answer


TURNS = 10
"""Turns of the event loop to wait; an accepted connection has its transport after two or three."""


async def stop_listening(server: asyncio.Server) -> None:
    """Stop accepting connections, and close the server. Existing connections stay open; the caller closes them.

    A connection that arrives in the loop turn in which an asyncio server is closed is accepted and dropped: creating
    its transport fails, and the garbage collector reports its socket in a later test. So accepting stops first, then
    accepted connections get their transports, then the server is closed.
    """
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    server.close()


# --- Disk that loses writes ------------------------------------------------------------------------------------------
# kill -9 does not lose data that was written but not synced: the kernel still has it. A test of durability has to
# remove what a power cut removes. This layer of SQLite passes everything through to the real file, and also keeps the
# *durable* content: that of the last sync. `power_cut` writes a copy of the files as a disk would have them afterwards:
# the durable content, plus any part of the writes since, torn or whole, in any combination. It is a copy and not a
# crash in place, because SQLite keeps the state of a file per process: a database that "lost power" could not be opened
# again here.

SECTOR_BYTES = 512


class _Content:
    """One file: its durable content, and the writes since the last sync."""

    def __init__(self, durable: bytes) -> None:
        self.durable = bytearray(durable)
        self.since: list[tuple[int, bytes | None]] = []
        self.size = len(durable)

    def write(self, offset: int, data: bytes) -> None:
        self.since.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def truncate(self, size: int) -> None:
        self.since.append((size, None))
        self.size = min(self.size, size)

    def sync(self) -> None:
        for offset, data in self.since:
            _apply(self.durable, offset, data)
        self.since.clear()

    def after_power_cut(self, chance: Chance) -> bytes:
        content = bytearray(self.durable)
        for offset, data in self.since:
            if chance.fraction() < 0.5:  # noqa: PLR2004 -- a coin: the write reached the disk, or it did not.
                continue
            if data is None:
                _apply(content, offset, None)
                continue
            sectors = max(1, len(data) // SECTOR_BYTES)
            torn = int(chance.fraction() * (sectors + 1)) * SECTOR_BYTES
            _apply(content, offset, data if chance.fraction() < 0.5 else data[:torn])  # noqa: PLR2004 -- whole or torn.
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class FaultyDisk(apsw.VFS):
    """A VFS for one test. Give its `name` as `vfs` when a lane is opened."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "", maxpathname=0)
        self.name = name
        self.syncs = 0
        self.fails_sync: Callable[[int], bool] = lambda _number: False
        """Called with the number of each sync, from 1: True makes it fail."""
        self.bytes_max: int | None = None
        """The total size of the files at which the disk is full."""
        self.is_full: Callable[[str], bool] = lambda _path: False
        """Called with the path of each write: True makes the disk full for it."""
        self._contents: dict[str, _Content] = {}
        self._lock = threading.Lock()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name.
        """SQLite opens a file."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _FaultyFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 -- SQLite's signature.
        """SQLite deletes a file."""
        with self._lock:
            self._contents.pop(filename, None)
        super().xDelete(filename, syncdir)

    def content(self, path: str) -> _Content:
        """Return the content of a file; it starts with what is on the disk."""
        with self._lock:
            if path not in self._contents:
                real = Path(path)
                self._contents[path] = _Content(real.read_bytes() if real.exists() else b"")
            return self._contents[path]

    def bytes_used(self) -> int:
        """Return the total size of the files."""
        with self._lock:
            return sum(content.size for content in self._contents.values())

    def make_room(self, path: str, content: _Content, size: int) -> None:
        """Check that a file may grow to this size. Raises FullError when the disk is full."""
        grows = max(0, size - content.size)
        if self.is_full(path) or (grows and self.bytes_max is not None and self.bytes_used() + grows > self.bytes_max):
            raise apsw.FullError("the faulty disk is full")

    def power_cut(self, folder: Path, chance: Chance) -> list[Path]:
        """Write the files, as a power cut at this instant would leave them, into another folder."""
        with self._lock:
            found = {path: content.after_power_cut(chance) for path, content in self._contents.items()}
        folder.mkdir(parents=True, exist_ok=True)
        written: list[Path] = []
        for path, data in found.items():
            target = folder / Path(path).name
            target.write_bytes(data)
            written.append(target)
        return written

    def close(self) -> None:
        """Unregister the VFS."""
        self.unregister()


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, disk: FaultyDisk, path: str | None, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._path = path or ""
        self._content = disk.content(path) if path else None

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name.
        if self._content is not None:
            self._disk.make_room(self._path, self._content, offset + len(data))
            self._content.write(offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- SQLite's name.
        if self._content is not None:
            self._content.truncate(newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- SQLite's name.
        disk = self._disk
        disk.syncs += 1
        if disk.fails_sync(disk.syncs):
            raise apsw.IOError(f"[Errno {errno.EIO}] the faulty disk refuses to sync")
        super().xSync(flags)
        if self._content is not None:
            self._content.sync()


# --- Full disk -------------------------------------------------------------------------------------------------------
# Where this process may mount, `SmallDisk` is a real file system of a few megabytes in memory, and the kernel itself
# reports that there is no space left (`kind` is "tmpfs"). Everywhere else the refusal is simulated one layer higher,
# in the file layer of SQLite, with the error that SQLite makes of the kernel's (`kind` is "simulated"). A bound on
# the size of files (RLIMIT_FSIZE) would need no rights either, but its EFBIG is an input/output error to SQLite, and
# not a full disk. Either way, what was allocated before can be written over, as on any disk.

DISK_BYTES: Final = 8_000_000
FILLING: Final = ".filling"
"""The file that takes the rest of the disk. On a simulated disk its presence means that the disk is full."""

FILL_CHUNKS: Final = (1_048_576, 4_096, 1)
"""Sizes in bytes of the pieces that fill the disk, largest first."""

DiskKind = Literal["tmpfs", "simulated"]
DESCRIPTIONS: Final[dict[DiskKind, str]] = {
    "tmpfs": "a real file system of {size:,} bytes in memory",
    "simulated": "simulated in the file layer of SQLite, for only root may mount a file system",
}

UNMOUNTING: Final = 'read -r _; exec "$0" -l "$1"'
"""Shell program that unmounts the disk at the end of its input, which comes with any exit of this process."""


class SmallDisk:
    """One disk, mounted at a folder or simulated there.

    with closing(SmallDisk(folder)) as disk:
        ...                       # in the process that has the lanes: use_disk(disk.folder, disk.kind), then open them
        disk.fill()               # every file that has to grow from now on is refused: the disk is full
        disk.empty()
    """

    def __init__(self, folder: Path, *, size_bytes: int = DISK_BYTES, mounts: bool | None = None) -> None:
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
        self.kind: DiskKind = "simulated" if refused else "tmpfs"

    @property
    def description(self) -> str:
        """Describe the kind of disk for people."""
        return DESCRIPTIONS[self.kind].format(size=self._size_bytes)

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        descriptor = os.open(self.folder / FILLING, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for chunk in FILL_CHUNKS if self.kind == "tmpfs" else ():
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


def use_disk(folder: Path, kind: DiskKind) -> SimulatedDisk | None:
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
