"""Close the server of a test without leaking a connection that is being accepted.

A connection that arrives in the loop turn in which an asyncio server is closed is accepted and dropped: creating its
transport fails, and the garbage collector reports its socket in a later test. So accepting stops first, then accepted
connections get their transports, then the server is closed. The caller still closes the connections.
"""

import asyncio

TURNS = 10
"""Turns of the event loop to wait; an accepted connection has its transport after two or three."""


async def stop_listening(server: asyncio.Server) -> None:
    """Stop accepting connections, and close the server. Existing connections stay open."""
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    server.close()
