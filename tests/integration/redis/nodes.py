"""A Redis Cluster of three nodes, each with a third of the slots, on ports of this machine."""

import contextlib
import socket
from collections.abc import Generator
from pathlib import Path

from tests.integration.redis.server import Server

SLOTS = 16_384
NODES = 3
BUS = 10_000
"""A node also listens so many ports higher, and there are no ports behind 65,535."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, with room for the bus above them."""
    found: list[int] = []
    with contextlib.ExitStack() as taken:
        while len(found) < count:
            port = taken.enter_context(socket.socket())
            port.bind(("127.0.0.1", 0))
            number = port.getsockname()[1]
            if number + BUS < 65_536:
                found.append(number)
    return found


@contextlib.contextmanager
def cluster(folder: Path) -> Generator[tuple[str, list[Server]]]:
    """The address of one of the nodes, and all of them."""
    import redis  # noqa: PLC0415 -- an extra, without which the test is skipped.

    ports = free_ports(NODES)
    with contextlib.ExitStack() as running:
        servers: list[Server] = []
        for number, port in enumerate(ports):
            place = folder / str(number)
            place.mkdir()
            # A node that was restarted waits that long before it takes part again, and five seconds at most.
            place_on = ("--port", str(port), "--bind", "127.0.0.1")
            options = (*place_on, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
            servers.append(running.enter_context(Server(place, *options)))
        nodes = [running.enter_context(redis.Redis(port=port)) for port in ports]
        for number, node in enumerate(nodes):
            share = range(SLOTS * number // NODES, SLOTS * (number + 1) // NODES)
            node.execute_command("CLUSTER", "ADDSLOTS", *map(str, share))
            node.execute_command("CLUSTER", "MEET", "127.0.0.1", str(ports[0]))
        yield f"redis://127.0.0.1:{ports[0]}?cluster=yes", servers
