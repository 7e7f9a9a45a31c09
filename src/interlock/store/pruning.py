"""Pruning: how final workflows leave a store, in batches, each a short transaction of its own.

A store does not know which states are final; whoever prunes says so, one machine and state at a time. A batch looks at
so many workflows behind the place where the last one ended, the longest there first, and takes those that may go: never
one that is active or has to be woken, and, unless told, none that owes an effect or has a dead letter. On a store that
is shared it passes over a row that somebody holds, so that neither waits for the other.
"""

from typing import Protocol

import msgspec

from interlock.store.cursors import Cursor


class Old(msgspec.Struct, frozen=True, kw_only=True):
    """Which workflows are to go, or the history of which."""

    machine: str
    state: str
    before_us: int
    """Those that came to the state before this time."""
    history_only: bool = False
    """The workflow stays, with the digest by which a repeated start is known (B4); its history goes."""
    owing: bool = False
    """Also those that owe an effect or have a dead letter, which then go too."""


class Batch(msgspec.Struct, frozen=True):
    """What one batch has removed, or would have."""

    workflows: tuple[str, ...]
    events: int
    after: Cursor | None
    """Where the next batch begins; None: this was the last one."""


class Pruning(Protocol):
    """The way out for what is final and old."""

    async def batch(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Look at the next `limit` workflows and remove those that may go; with `dry_run` only count them."""
        ...
