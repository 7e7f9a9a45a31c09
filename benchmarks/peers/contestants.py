"""DBOS and Restate, ready to take turns: installed, started, registered, and ended when the block is left.

All servers are on ports of the loopback that were free a moment ago, and keep their data in the folder of the run. The
CPU of a peer is that of its client and of everything that serves it, PostgreSQL included.
"""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.peers.environment import Absent, Environment
from benchmarks.peers.processes import Peer, free_port, listens, running

SERVER = "@restatedev/restate-server"
REGISTERING_S_MAX = 30.0


@contextmanager
def dbos(environment: Environment, folder: Path, *, url: str, postmaster: int) -> Iterator[Peer]:
    """DBOS on a PostgreSQL server that runs already."""
    environment.packages("dbos")
    log = folder / "dbos.log"
    with running([str(environment.python), "-m", "benchmarks.peers.dbos_orders", url], log=log) as process:
        yield Peer(process, log, [postmaster], version=environment.version("dbos"))


@contextmanager
def dbos_families(environment: Environment, folder: Path, *, url: str, postmaster: int) -> Iterator[Peer]:
    """Parents with children on DBOS, on a PostgreSQL server that runs already."""
    environment.packages("dbos")
    log = folder / "dbos-families.log"
    with running([str(environment.python), "-m", "benchmarks.peers.dbos_families", url], log=log) as process:
        yield Peer(process, log, [postmaster], version=environment.version("dbos"))


@contextmanager
def restate(environment: Environment, folder: Path) -> Iterator[Peer]:
    """Restate's server with its data in the folder, its Python service on granian, and a client of the ingress."""
    environment.packages("restate-sdk", "granian[uvloop]")
    binary = environment.npm_binary(SERVER, "restate-server")
    version = f"{environment.npm_version(SERVER)}, Python SDK {environment.version('restate-sdk')}"
    ingress, admin, node, service = free_port(), free_port(), free_port(), free_port()
    logs = {name: folder / f"restate-{name}.log" for name in ("server", "service", "client")}
    settings = {
        "RESTATE_BASE_DIR": str(folder / "restate"),
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
    }
    python = str(environment.python)
    serve = [python, "-m", "granian", "--interface", "asgi", "--http", "2", "--port", str(service), "--no-ws"]
    with ExitStack() as stack:
        server = stack.enter_context(running([str(binary)], log=logs["server"], environment=settings, asked=False))
        serving = stack.enter_context(
            running([*serve, "benchmarks.peers.restate_service:app"], log=logs["service"], asked=False)
        )
        listens(service, serving, logs["service"])
        listens(ingress, server, logs["server"])
        listens(admin, server, logs["server"])
        _register(admin, f"http://127.0.0.1:{service}")
        client = [python, "-m", "benchmarks.peers.restate_orders", str(ingress)]
        asking = stack.enter_context(running(client, log=logs["client"]))
        yield Peer(asking, logs["client"], [server.pid, serving.pid], version=version)


def _register(admin: int, uri: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{admin}/deployments",
        data=json.dumps({"uri": uri}).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=REGISTERING_S_MAX):  # noqa: S310 -- see above.
            pass
    except OSError as error:
        raise Absent(f"Restate did not register its service: {error}") from error
