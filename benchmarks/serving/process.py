"""The server in a process of its own, and its meters: CPU and memory, as the kernel counts them.

It is started with `serving`, says its port once it listens, and ends with the block.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = resource.getpagesize()
UNLIMITED = "1e9"
END_S = 60


class Serving:
    """A server that listens."""

    def __init__(self, pid: int, port: int, workflows: int) -> None:
        self.port = port
        self.workflows = workflows
        self._folder = Path(f"/proc/{pid}")

    def cpu_seconds(self) -> float:
        """What all its threads have used so far."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_bytes(self) -> int:
        """Its memory now."""
        return int((self._folder / "statm").read_text().split()[1]) * PAGE_BYTES


@contextmanager
def serving(
    home: str, *, workflows: int, rate_per_s: float | None = None, burst: float | None = None
) -> Generator[Serving]:
    """Start a server with so many workflows; it takes in everything unless there is a rate."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "INTERLOCK_RATE_PER_S": UNLIMITED if rate_per_s is None else str(rate_per_s),
        "INTERLOCK_BURST": UNLIMITED if burst is None else str(burst),
    }
    process = subprocess.Popen(  # noqa: S603 -- a module of this folder.
        [sys.executable, "-m", "benchmarks.serving.server", home, str(workflows)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            said = process.stdout.readline()
            if not said:
                raise RuntimeError(f"the server has ended with {process.wait(END_S)} before it listened")
            yield Serving(process.pid, int(said), workflows)
        finally:
            process.stdin.close()
            try:
                process.wait(END_S)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
