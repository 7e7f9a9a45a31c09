"""A Redis Cluster of three nodes, each with a third of the slots, on ports of this machine."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from tests.integration.ports import HeldPorts
from tests.integration.redis.server import Server

SLOTS = 16_384
NODES = 3
BUS = 10_000
"""A node also listens so many ports higher."""


@contextlib.contextmanager
def cluster(folder: Path) -> Generator[tuple[str, list[Server]]]:
    """The address of one of the nodes, and all of them."""
    import redis  # noqa: PLC0415 -- an extra, without which the test is skipped.

    with contextlib.ExitStack() as running:
        ports = running.enter_context(HeldPorts(NODES, beside=(BUS,))).numbers
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
