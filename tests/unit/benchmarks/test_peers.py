"""What the benchmarks use to run peers: processes that are charged and always ended, turns, and reasons for absence."""

import asyncio
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.peers.answering import turn
from benchmarks.peers.environment import Absent, Environment
from benchmarks.peers.processes import Peer, cpu_seconds, family, free_port, listens, running
from benchmarks.peers.restate_orders import call

ANSWERING = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"seconds": 2.0, "cpu_seconds": 0.5, "latencies_s": [0.1] * asked["in_flight"]}), flush=True)
"""
PARENT = """
import subprocess, sys
code = "import socket, sys; held = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", code, sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.slow
def test_a_turn_counts_every_order_of_every_client() -> None:
    placed: list[int] = []

    async def order(client: int) -> None:
        placed.append(client)
        await asyncio.sleep(0)

    answered = asyncio.run(turn(order, 3, 0.01))
    latencies = answered["latencies_s"]
    assert isinstance(latencies, list)
    assert len(latencies) == len(placed)
    assert set(placed) == {0, 1, 2}


def test_a_peer_answers_with_transitions_and_is_charged_for_its_servers(tmp_path: Path) -> None:
    with running([sys.executable, "-c", ANSWERING], log=tmp_path / "log") as process:
        found = Peer(process, tmp_path / "log", [os.getpid()]).round(5, 1.0, 4)
    assert (found.operations, found.seconds, len(found.latencies_s)) == (20, 2.0, 5)
    assert found.cpu_seconds > 0.5


def test_a_peer_whose_process_ends_says_what_it_said_last(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no database here')"]
    with running(command, log=tmp_path / "log") as process, pytest.raises(Absent, match="no database here"):
        Peer(process, tmp_path / "log", [])


def test_what_a_process_started_is_ended_with_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with running([sys.executable, "-c", PARENT, str(port)], log=tmp_path / "log") as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            held, _ = listening.accept()
            assert family([process.pid]) == {process.pid, child}
            assert cpu_seconds([process.pid]) > 0
        # The child alone holds the other end, and only its end closes it.
        with held, suppress(ConnectionResetError):
            assert held.recv(1) == b""


def test_a_port_that_nobody_serves_is_a_reason_for_absence(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running([sys.executable, "-c", "import sys; sys.exit('cannot bind')"], log=log) as process:
        process.wait()
        with pytest.raises(Absent, match="cannot bind"):
            listens(free_port(), process, log)


def test_a_package_that_cannot_be_installed_is_a_reason_for_absence(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    environment.python.parent.mkdir(parents=True)
    environment.python.write_text("#!/bin/sh\necho 'no index can be reached' >&2\nexit 1\n")
    environment.python.chmod(0o755)
    with pytest.raises(Absent, match="no index can be reached"):
        environment.packages("dbos")
    environment.python.write_text("#!/bin/sh\nexit 0\n")
    environment.packages("dbos")
    environment.python.unlink()
    environment.python.symlink_to(sys.executable)
    environment.packages("dbos")  # It is remembered, and not installed again.


@pytest.mark.parametrize(
    "answer",
    [
        b'content-length: 9\r\n\r\n"order-1"',
        b'transfer-encoding: chunked\r\n\r\n4\r\n"ord\r\n5\r\ner-1"\r\n0\r\n\r\n',
    ],
)
def test_an_order_is_placed_over_an_open_connection(answer: bytes) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            asked.append(await reader.readuntil(b'"order-1"'))
            writer.write(b"HTTP/1.1 200 OK\r\n" + answer)
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for _ in range(2):
                assert json.loads(await call((reader, writer), b'"order-1"')) == "order-1"
            writer.close()
            await writer.wait_closed()

    asyncio.run(run())
    assert len(asked) == 2
