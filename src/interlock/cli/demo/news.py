"""The news of the demo's worker: what it reports to its parent process, and how the parent reads it.

One line per fact, in order, and only of durable facts. The worker is a separate program that is never imported. So the
names that both processes use, the argument of the worker and the dashboard's socket are here, too.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Generator
from importlib.util import find_spec
from typing import Literal

import msgspec

from interlock.cli.demo.outcome import Outcome, Stall
from interlock.cli.output import counted
from interlock.database.database import Database
from interlock.engine.engine import Engine
from interlock.examples.order import State
from interlock.server.asgi import asgi
from interlock.server.running import HOST, Listening, bound_socket, server_maker

# --- Writer of the news ----------------------------------------------------------------------------------------------

FLUSH_EVERY_S = 0.01


class News:
    """A buffer of lines, written to a pipe every 10 ms."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lines: list[str] = []
        self._later: asyncio.TimerHandle | None = None

    def tell(self, *words: object) -> None:
        """Queue a line of tab-separated words."""
        self._lines.append("\t".join(map(str, words)))
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(FLUSH_EVERY_S, self.flush)

    def flush(self) -> None:
        """Write all queued lines. Ends the process when the parent has closed the pipe."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        data = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        try:
            while data:
                data = data[os.write(self._pipe, data) :]
        except BrokenPipeError:
            os._exit(0)  # The parent process has ended.


# --- Names that the worker and its parent share ----------------------------------------------------------------------

TILL, PAID = "till", "orders_paid"
"""The database with the hot counter, and the counter."""

BANK = "payments"
"""The dependency that has an outage."""

Part = Literal["stays", "ends", "shows"]
"""The purpose of a life: to be killed, to complete all orders, or to serve the dashboard after the walk."""


class Life(msgspec.Struct, frozen=True):
    """One life of the worker, passed as JSON on its command line."""

    folder: str
    orders: int
    seed: int
    part: Part
    line: int
    """The descriptor of the connection to the bank."""
    dashboard: int
    """The descriptor of the dashboard's socket, if there is one."""


# --- Reader of the news ----------------------------------------------------------------------------------------------
# It keeps every acknowledgement for the comparison with the store at the end.

STATES = {state.value: number for number, state in enumerate(State)}
NAMED_MAX = 3
"""How many stalled orders a remark names."""

_refusal = msgspec.json.Decoder(tuple[str, str, str])


class Listener:
    """Reads the news of all lives."""

    def __init__(self, outcome: Outcome) -> None:
        self.acknowledged: dict[str, bytearray] = {}
        """By order: acknowledged pairs of a version and the number of its state."""
        self.opened_in_s: float | None = None
        self.ended = False
        """True when the worker has completed all orders."""
        self._outcome = outcome
        self._counted: set[str] = set()
        self._rejections: set[tuple[str, str]] = set()
        self._done: set[str] = set()

    def __call__(self, line: str) -> None:
        """Handle one line."""
        outcome = self._outcome
        kind, *words = line.rstrip("\n").split("\t")
        match kind:
            case "T":
                outcome.tally.moved(words[0], words[3], words[2])
                self._note(transitions=1)
            case "A":
                outcome.acknowledged += 1
                self.acknowledged.setdefault(words[0], bytearray()).extend((int(words[1]), STATES[words[2]]))
            case "D" if words[0] not in self._done:
                self._done.add(words[0])
                outcome.done += 1
                outcome.tally.forget(words[0])
            case "P":
                self._paid(words[0])
            case "R" if (words[0], words[1]) not in self._rejections:
                self._rejections.add((words[0], words[1]))
                outcome.rejected[words[1]] += 1
            case "F":
                outcome.observer_failures += 1
            case _:
                self._read_rare(kind, words)

    def _read_rare(self, kind: str, words: list[str]) -> None:
        outcome = self._outcome
        match kind:
            case "X":
                outcome.examples.setdefault(words[0], _refusal.decode(words[1]))
            case "B" if words[0] == BANK:
                self._breaker(words[1])
            case "H" | "S" | "L":
                self._stall(kind, words)
            case "!":
                outcome.problems.append(f"{words[0]}: {words[1]}")
            case "O":
                self.opened_in_s = float(words[0])
            case "E":
                self.ended = True
            case _:
                pass

    def bank_is_back(self) -> None:
        """Record the end of the outage."""
        outage = self._outcome.outage
        assert outage is not None
        outage.ended_s = self._outcome.timeline.now_s()
        self._outcome.remark(f"The bank is back, after {outage.ended_s - outage.began_s:.1f} s.", "bold green")

    def _paid(self, order_id: str) -> None:
        if order_id in self._counted:
            self._outcome.counted_again += 1
            return
        self._counted.add(order_id)
        self._outcome.paid += 1

    def _breaker(self, state: str) -> None:
        outcome = self._outcome
        before, outcome.breaker = outcome.breaker, state
        outage, now_s = outcome.outage, outcome.timeline.now_s()
        if outage is None:
            return
        if state == "open" and outage.opened_s is None:
            outage.opened_s = now_s
            waiting = counted(len(self.acknowledged) - outcome.done, "order")
            outcome.remark(f"The breaker of {BANK} is open: calls have stopped, {waiting} on their way.", "bold")
        elif state == "half_open":
            outage.probes += 1
        elif state == "closed" and before != "closed" and outage.ended_s is not None and outage.closed_s is None:
            outage.closed_s = now_s
            outcome.remark(f"The breaker of {BANK} is closed: a probe got through, and calls resume.", "bold green")

    def _stall(self, kind: str, words: list[str]) -> None:
        outcome = self._outcome
        if outcome.stall is None:
            outcome.stall = Stall(outcome.timeline.now_s())
        stall = outcome.stall
        if kind == "H":
            stall.stuck.add(words[0])
        elif kind == "S":
            stall.listed.add(words[0])
        else:
            stall.ended_s = outcome.timeline.now_s()
            names = ", ".join(sorted(stall.listed)[:NAMED_MAX])
            more = ", …" if len(stall.listed) > NAMED_MAX else ""
            outcome.remark(
                f"Stalled: {counted(len(stall.listed), 'order')} on the packing table, listed by engine.stalled "
                f"({names}{more}). The packing table is fixed; they continue.",
                "bold yellow",
            )

    def _note(self, *, transitions: int) -> None:
        outcome = self._outcome
        outcome.timeline.note(
            transitions=transitions, started=len(self.acknowledged), paid=outcome.paid, done=outcome.done
        )


# --- Dashboard -------------------------------------------------------------------------------------------------------
# The socket belongs to the parent process, which passes it to every worker. Between a kill and the next worker,
# connections wait in the socket's backlog, so a browser sees only a pause.

NONE = -1
"""The descriptor that stands for "no dashboard"."""


@contextlib.contextmanager
def listening() -> Generator[tuple[socket.socket, Listening] | None, None, None]:
    """Yield a loopback socket at a free port, and its address; None when uvicorn is not installed."""
    if find_spec("uvicorn") is None:
        yield None
        return
    with contextlib.closing(bound_socket(HOST, 0)) as found:
        host, port = found.getsockname()[:2]
        yield found, Listening(host=host, port=port)


@contextlib.asynccontextmanager
async def serving(engine: Engine, databases: dict[str, Database], descriptor: int) -> AsyncGenerator[None, None]:
    """Serve an engine at the socket with this descriptor until the block ends."""
    if descriptor == NONE:
        yield
        return
    app = asgi(engine, databases=databases)
    server = server_maker()(app)
    task = asyncio.create_task(server.serve(sockets=[socket.socket(fileno=descriptor)]))
    try:
        yield
    finally:
        # Do not wait for open connections: the next life serves those browsers, or the demo is over.
        app.leave()
        server.should_exit = server.force_exit = True
        await task
        await app.close()
