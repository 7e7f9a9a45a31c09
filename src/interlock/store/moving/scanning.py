"""Changes between two scans of a store, found by revisions and versions.

A copy of a lane in a bucket is brought forward page by page, without a record of the written rows. But every write of a
workflow increments its revision, and history is identified by its first and last version and its number of rows, which
a pruning changes. The other tables are small and compared as a whole. So a scan reads all workflows and an index over
history, a third of a second for a hundred thousand of them.
"""

from collections.abc import Mapping
from typing import TypeVar

from interlock.store.moving.canonical import digest_of
from interlock.store.moving.origin import Touched
from interlock.store.moving.source import ASIDE, Source

KeyT = TypeVar("KeyT")

CHUNK = 1_000


class Scanning:
    """The state of a store at its last scan."""

    def __init__(self) -> None:
        self._workflows: dict[int, int] = {}
        self._aside: dict[str, dict[str, int]] = {table: {} for table in ASIDE}
        self._told = 0

    def look(self, source: Source) -> list[Touched]:
        """Return changed and removed rows as notes, numbered on from the last scan."""
        with source.moment():
            workflows = _workflows(source)
            changed: list[tuple[str, object]] = [("workflows", key) for key in _changed(self._workflows, workflows)]
            self._workflows = workflows
            for table in ASIDE:
                found = _aside(source, table)
                changed += [(table, key) for key in _changed(self._aside[table], found)]
                self._aside[table] = found
        notes: list[Touched] = [(self._told + at, table, (key,)) for at, (table, key) in enumerate(changed, 1)]
        self._told += len(notes)
        return notes


def _workflows(source: Source) -> dict[int, int]:
    spans = source.all_spans()
    return {number: hash((revision, spans.get(number))) for number, revision in source.revisions()}


def _aside(source: Source, table: str) -> dict[str, int]:
    found: dict[str, int] = {}
    after = ""
    while keys := source.keys_aside(table, after, CHUNK):
        found |= {key: digest_of(value) for key, value in source.aside(table, keys).items()}
        after = keys[-1]
    return found


def _changed(before: Mapping[KeyT, int], now: Mapping[KeyT, int]) -> list[KeyT]:
    return [
        *(key for key, value in now.items() if before.get(key) != value),
        *(key for key in before if key not in now),
    ]
