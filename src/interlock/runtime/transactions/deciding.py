"""Decisions inside a transaction of the caller, without any input or output of their own.

It is the data path for a group of one: the workflow is loaded, and locked if it is to be moved; the same envelopes
decide; the same change is written. Requests to the database are yielded, and the rows come back. So the connection may
be used in any thread, with or without an event loop.

Nothing begins here, because it is unknown whether the transaction will commit. What is owed is due immediately, and
workers take it up after the commit. For the same reason observers get no signals.
"""

from enum import Enum
from typing import cast

from interlock.errors import BadUsage, UserCodeError, VersionConflict
from interlock.runtime.bound import Live
from interlock.runtime.definitions import compare_version
from interlock.runtime.envelopes import Send, Start
from interlock.runtime.inside import Inside
from interlock.runtime.means import Means
from interlock.runtime.pipeline import Group
from interlock.runtime.resilience.places import Places
from interlock.runtime.staging import Staged
from interlock.runtime.stopping import unknown_machine
from interlock.runtime.views import Moved, View
from interlock.seams import Ids
from interlock.store.protocol import Store
from interlock.store.transactional import Asking, Transactional, Transactions
from interlock.store.values import Delivered, Row

ATTEMPTS_MAX = 5
"""How often a start is decided again because another process has just started or removed the workflow."""


class Deciding:
    """The operations of a caller's transaction on the workflows of one engine."""

    def __init__(self, inside: Inside, ids: Ids) -> None:
        self._inside = inside
        self._ids = ids
        self._requests = _transactions(inside.store)

    def send(self, envelope: Send) -> Asking[Moved[Enum]]:
        """Apply the event, or raise the refusal; before that nothing is written."""
        return cast("Asking[Moved[Enum]]", self._passed(envelope))

    def start(self, envelope: Start) -> Asking[View[Enum, object]]:
        """Start the workflow, or find that it has begun."""
        return cast("Asking[View[Enum, object]]", self._passed(envelope))

    def _passed(self, envelope: Send | Start) -> Asking[object]:
        self._inside.refuse_if_closed()
        envelope.look = True
        for _ in range(ATTEMPTS_MAX):
            group = yield from self._group(envelope)
            try:
                answer = envelope.decide(group)
            except UserCodeError as error:
                self._inside.log_bug(envelope.workflow, error)
                raise
            staged = group.staged.get(envelope.workflow)
            if staged is not None and isinstance(answer, Moved) and (answer.duplicate or answer.ignored):
                staged.touch()  # The row is locked already, so the count is written immediately.
            if staged is None or not staged.touched:
                return answer
            written = yield from self._requests.write(staged.change(), hint=_due(staged, group.now_us))
            if written:
                return answer
        raise VersionConflict(
            f"workflow {envelope.workflow!r} kept coming and going while this was decided, {ATTEMPTS_MAX} times."
        )

    def _group(self, envelope: Send | Start) -> Asking[Group]:
        workflow, key = envelope.workflow, envelope.key
        # A start that finds the workflow changes nothing, and need not lock it.
        now_us, row = yield from self._requests.load(workflow, lock=not envelope.begins)
        live: dict[str, Live] = {}
        delivered: dict[tuple[str, str], Delivered] = {}
        if row is not None:
            live[workflow] = yield from self._read(row)
            if key is not None:
                found = yield from self._requests.delivered(workflow, key)
                if found is not None:
                    delivered[workflow, key] = found
        means = Means(self._ids, Places(0, 0, 0))
        # History does not go back in time, also where the database's clock was set back.
        means.now_us = now_us if row is None else max(now_us, row.updated_us)
        return Group(means, live, delivered)

    def _read(self, row: Row) -> Asking[Live]:
        bound = self._inside.machines.get(row.machine)
        if bound is None:
            raise unknown_machine(row)
        if not bound.is_compared(row):
            notes = yield from self._requests.noted()
            compare_version(bound, row.machine_version, row.state, notes)
        return bound.decidable(row)


def _due(staged: Staged, now_us: int) -> bool:
    wake_us = staged.live.row.wake_us
    return bool(staged.effects) or (wake_us is not None and wake_us <= now_us)


def _transactions(store: Store) -> Transactions:
    if isinstance(store, Transactional):
        return store.transactions()
    raise BadUsage(
        "this engine's store is not PostgreSQL.",
        why="Only there the tables of workflows can be written by a transaction of yours.",
        fix="Open the engine with postgresql://…, in the database that your own tables are in; or use engine.send.",
    )
