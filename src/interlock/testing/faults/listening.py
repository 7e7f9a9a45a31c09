"""Ending a server that tests listen with, so that no connection is left without an owner.

A connection that arrives in the very turn in which an asyncio server is closed is taken from the kernel and dropped:
its transport finds a server without sockets, fails to be made, and its socket is left to the garbage collector,
which complains in whichever test runs then. So first nobody else is let in, then those who were let in get their owner,
and then the server is closed. The owner of the connections ends them, as before.
"""

import asyncio

TURNS = 10
"""A connection that was taken has its owner after two or three."""


async def stop_listening(server: asyncio.Server) -> None:
    """Let nobody else in. Connections that are there stay open."""
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    server.close()
