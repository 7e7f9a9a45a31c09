"""Chaos experiments: real servers are killed, connections are cut and disks are filled while orders are processed.

The experiment starts its own servers on ports of the loopback, in its own folders. It is bounded in time and number,
and removes everything on every exit.
"""
