"""The worker's command-line argument and the names that it shares with its parent process.

The worker is a separate program and is never imported; both processes import this module.
"""

from typing import Literal

import msgspec

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
