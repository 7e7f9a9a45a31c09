"""What the worker and whoever starts it agree on: what a life is for, and the names of things in it.

The worker is a program of its own, so nobody imports it; this is what both of them do import.
"""

from typing import Literal

import msgspec

TILL, PAID = "till", "orders_paid"
"""The database with the hot counter, and the counter."""

BANK = "payments"
"""The dependency that has an outage."""

Part = Literal["stays", "ends", "shows"]
"""What a life is for: to be killed, to bring everything to its end, or to be looked at when everything is over."""


class Life(msgspec.Struct, frozen=True):
    """One life of the worker, as it is told on its command line."""

    folder: str
    orders: int
    seed: int
    part: Part
    line: int
    """The descriptor of the line to the world outside."""
    dashboard: int
    """The descriptor of the dashboard's socket, if there is one."""
