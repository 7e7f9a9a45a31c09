"""One turn of one contestant in the storm: a fresh gateway, a fresh store, a process of its own, and who watches it.

The parent does nothing but watch: it reads the contestant's resident memory every few milliseconds and its CPU at the
beginning and at the end, with that of the PostgreSQL server when the contestant uses it. What became of the orders is
told by the contestant; what became of the money is told by the gateway's books, and the two are compared.
"""

import http.client
import json
import os
import select
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec

from benchmarks.peers.environment import Absent
from benchmarks.peers.processes import LISTENING_S_MAX, Process, cpu_seconds, last_line, running
from benchmarks.postgres import Server
from benchmarks.storming.contestant import Report, Task
from benchmarks.storming.load import Outcome, order_number
from benchmarks.storming.weather import Script

WATCHING_S = 0.02
ENDING_S_MAX = 60.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A contestant: what it is and how it is set up."""

    name: str
    kind: str
    """naive or interlocked."""
    store: str
    """embedded or postgres."""
    in_flight: int
    connections: int = 0
    timeout_s: float = 1.0
    """Of one call."""
    settings: dict[str, float] = {}
    """Of the engine."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one contestant in one storm."""

    report: Report
    books: Mapping[str, Any]
    cpu_s: float
    """Of the contestant's process."""
    server_cpu_s: float
    gateway_cpu_s: float
    rss_before_bytes: int
    rss_peak_bytes: int
    wrong: int
    """Orders that ended well and are not paid exactly once, or not reserved."""
    uncompensated: int
    """Orders that did not end well and are paid: nobody has given the money back."""
    unknown: int
    """Orders of which nobody can say what they are: not final, or failed and still paid."""
    unreleased: int
    starved_s: float
    """How long its event loop was ready to run and had no core: the machine was too small, or busy with others."""

    def count(self, *outcomes: Outcome) -> int:
        """How many orders have ended so."""
        return sum(self.report.outcomes.count(outcome) for outcome in outcomes)


class Speaking:
    """A process that is asked and answers in lines."""

    def __init__(self, process: Process, log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._log = log

    def say(self, line: str) -> None:
        """Ask."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def heard(self, within_s: float) -> bool:
        """Whether it has answered."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], within_s)[0])

    def hear(self, limit_s: float) -> str:
        """Its answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline() if self.heard(limit_s) else ""
        if not line:
            raise Absent(f"no answer within {limit_s:g} s: {last_line(self._log)}")
        return line.strip()

    def starved_s(self) -> float:
        """How long its main thread has waited for a core so far."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9

    def resident_bytes(self) -> int:
        """Its memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES


@contextmanager
def speaking(module: str, folder: Path, name: str) -> Generator[Speaking]:
    """A process of this repository while the block lasts."""
    log = folder / f"{name}.log"
    # The packages that this process uses, wherever they were found.
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with running([sys.executable, "-m", module], log=log, environment=paths) as process:
        yield Speaking(process, log)


async def fresh_database(server: Server, name: str) -> str:
    """A new database on the server; returns its address."""
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
        # What the turn before has left to be written must not be written in this one.
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    parts = urlsplit(server.url)
    address = urlunsplit(parts._replace(path=f"/{name}"))
    # Without a host in the address urlunsplit leaves out the slashes that such an address must have.
    return address if "://" in address else address.replace(":", "://", 1)


def take_turn(setup: Setup, script: Script, *, folder: Path, url: str, server: Server | None, drain_s: float) -> Turn:
    """One contestant in one storm."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        gateway = stack.enter_context(speaking("benchmarks.storming.gateway", folder, "gateway"))
        port = int(json.loads(gateway.hear(LISTENING_S_MAX))["port"])
        contending = stack.enter_context(speaking("benchmarks.storming.contestant", folder, setup.kind))
        task = Task(
            kind=setup.kind,
            url=url,
            port=port,
            script=script,
            in_flight=setup.in_flight,
            connections=setup.connections,
            timeout_s=setup.timeout_s,
            drain_s=drain_s,
            settings=setup.settings,
            report=str(folder / "report.json"),
        )
        contending.say(msgspec.json.encode(task).decode())
        assert contending.hear(LISTENING_S_MAX) == "ready"
        before, gateway_before = _cpu(contending, server), cpu_seconds([gateway.pid])
        starved_s = -contending.starved_s()
        rss_before = peak = contending.resident_bytes()
        _ask(port, "POST", "/script", msgspec.json.encode(script))
        contending.say("go")
        limit_s = time.monotonic() + script.seconds + drain_s + ENDING_S_MAX
        while not contending.heard(WATCHING_S) and time.monotonic() < limit_s:
            peak = max(peak, contending.resident_bytes())
        assert contending.hear(1.0) == "done"
        peak = max(peak, contending.resident_bytes())
        starved_s += contending.starved_s()
        after, gateway_after = _cpu(contending, server), cpu_seconds([gateway.pid])
        books: dict[str, Any] = json.loads(_ask(port, "GET", "/books"))
        contending.say("report")
        assert contending.hear(ENDING_S_MAX) == "reported"
        contending.say("end")
        report = msgspec.json.decode(Path(task.report).read_bytes(), type=Report)
    return Turn(
        **compared(report, books),
        report=report,
        books=books,
        cpu_s=after[0] - before[0],
        server_cpu_s=after[1] - before[1],
        gateway_cpu_s=gateway_after - gateway_before,
        rss_before_bytes=rss_before,
        rss_peak_bytes=peak,
        starved_s=starved_s,
    )


def compared(report: Report, books: Mapping[str, Any]) -> dict[str, int]:
    """What the contestant says beside what the books say: how many orders are not what they should be."""
    good = {number for number, outcome in enumerate(report.outcomes) if outcome == Outcome.COMPLETED}
    paid = {order_number(order) for order in books["charged_not_refunded"]}
    reserved = {order_number(order) for order in books["reserved_not_released"]}
    left = {number for number, outcome in enumerate(report.outcomes) if outcome == Outcome.OPEN}
    return {
        "wrong": len(good - (paid & reserved)),
        "uncompensated": len(paid - good),
        "unknown": len(left | (paid - good)),
        "unreleased": len(reserved - good),
    }


def _cpu(contending: Speaking, server: Server | None) -> tuple[float, float]:
    return cpu_seconds([contending.pid]), server.own_cpu_seconds() if server is not None else 0.0


def _ask(port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        assert answer.status == http.client.OK, f"{method} {path}: {answer.status}"
        return answer.read()
    finally:
        connection.close()
