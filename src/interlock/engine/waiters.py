"""Callers that wait for a workflow to reach a state.

A waiter wakes when the workflow is there, not at every transition on the way: that would be most of the work.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum

from interlock.engine.bound_machine import LoadedWorkflow
from interlock.engine.views import view_of
from interlock.errors import WaitFailed, WaitTimeout


class Waiter:
    """One call of `wait`."""

    __slots__ = ("future", "states")

    def __init__(self, states: Sequence[Enum]) -> None:
        self.states = states
        self.future: asyncio.Future[LoadedWorkflow] = asyncio.get_running_loop().create_future()

    def arrived(self, live: LoadedWorkflow) -> bool:
        """Whether the workflow has arrived. Raises WaitFailed if it never will."""
        node = live.bound.table.nodes[live.snapshot.state._name_]
        if not self.states:
            return not node.active
        if live.snapshot.state in self.states:
            return True
        if node.final:
            wanted = " or ".join(repr(str(state.value)) for state in self.states)
            raise WaitFailed(f"workflow {live.row.id!r} ended in state {node.name!r}, not in {wanted}.")
        return False


class Waiters:
    """All waits of one engine, by workflow."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiter]] = {}
        self.added: Callable[[str], None] | None = None
        """Callback with the workflow of a new waiter, where other processes may move it."""

    def __len__(self) -> int:
        """Return the number of waiters."""
        return sum(map(len, self._waiting.values()))

    def add(self, workflow: str, waiter: Waiter) -> None:
        """Register a waiter."""
        self._waiting.setdefault(workflow, []).append(waiter)
        if self.added is not None:
            self.added(workflow)

    @property
    def workflows(self) -> list[str]:
        """Workflows with a waiter."""
        return list(self._waiting)

    def waits_for(self, workflow: str) -> bool:
        """Whether the workflow has a waiter."""
        return workflow in self._waiting

    def remove(self, workflow: str, waiter: Waiter) -> None:
        """Remove a waiter."""
        waiting = self._waiting.get(workflow, [])
        if waiter in waiting:
            waiting.remove(waiter)
        if not waiting:
            self._waiting.pop(workflow, None)

    def moved(self, live: LoadedWorkflow) -> None:
        """Wake the waiters of a durable move."""
        waiting = self._waiting.get(live.row.id)
        if not waiting:
            return
        for waiter in waiting:
            if waiter.future.done():
                continue
            try:
                if waiter.arrived(live):
                    waiter.future.set_result(live)
            except WaitFailed as error:
                waiter.future.set_exception(error)

    def close(self, error: Exception) -> None:
        """Fail all waiters with the error."""
        for waiting in self._waiting.values():
            for waiter in waiting:
                if not waiter.future.done():
                    waiter.future.set_exception(error)


def too_long(workflow: str, live: LoadedWorkflow | None, timeout_s: float) -> WaitTimeout:
    """Return the error of a wait that timed out."""
    stands = ""
    if live is not None:
        waiting = view_of(live).waiting
        reason = "" if waiting is None else f": {waiting}"
        stands = f"; it is in state {live.row.state!r} at version {live.row.version}{reason}"
    return WaitTimeout(f"workflow {workflow!r} did not get there within {timeout_s:g} s{stands}.")
