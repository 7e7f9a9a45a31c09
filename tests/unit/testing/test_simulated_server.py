"""A server that is closed in the very turn in which somebody arrives leaves no connection without an owner."""

import asyncio
import gc
import socket
import warnings
from pathlib import Path

from interlock.testing.faults import stop_listening


async def _arrivals(path: Path, *, stop: bool) -> int:
    """How many connections got an owner of those that were waiting when the server was closed."""
    owners: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: owners.append(writer), path)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for client in clients:
        client.setblocking(False)
        client.connect(str(path))
    # After the listening socket in the same turn: connections were taken, and have no transport yet.
    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(taken.set_result, None))
    await taken
    if stop:
        await stop_listening(server)
    else:
        server.close()
    for client in clients:
        client.close()
    for owner in owners:
        owner.transport.abort()
    await asyncio.gather(*(owner.wait_closed() for owner in owners))
    return len(owners)


def test_whoever_was_let_in_has_an_owner(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert asyncio.run(_arrivals(tmp_path / "socket", stop=True)) == 3
        gc.collect()
    assert not seen
