"""The contract of pruning: final workflows are removed in batches, each a short transaction of its own.

A store does not know which states are final; the caller names one machine and state at a time. A batch reads `limit`
workflows after the end of the last batch, the longest in the state first. It never removes one that is active or has a
wake time, and without `owing` none with an owed effect or a dead letter. On a shared store it skips locked rows, so
that neither side waits for the other.
"""

from typing import Protocol

import msgspec

from interlock.store.cursors import Cursor


class Old(msgspec.Struct, frozen=True, kw_only=True):
    """The selection of workflows to remove, or whose history to remove."""

    machine: str
    state: str
    before_us: int
    """Only workflows that entered the state before this time."""
    history_only: bool = False
    """The workflow stays, with the digest by which a repeated start is known (B4); its history goes."""
    owing: bool = False
    """Also workflows with an owed effect or a dead letter, which are then removed too."""


class Batch(msgspec.Struct, frozen=True):
    """The result of one batch: what it removed, or with `dry_run` would have."""

    workflows: tuple[str, ...]
    events: int
    after: Cursor | None
    """Where the next batch begins; None: this was the last one."""


class Pruning(Protocol):
    """A store's removal of final workflows."""

    async def batch(self, old: Old, *, after: Cursor | None, limit: int, dry_run: bool = False) -> Batch:
        """Read the next `limit` workflows and remove those that match; with `dry_run` only count them."""
        ...
