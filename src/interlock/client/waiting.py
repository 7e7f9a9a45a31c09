"""Waits for a workflow at a server: a long poll, repeated until the caller's timeout.

The server answers when the workflow reaches the state, within a bounded time. A server that stops ends its waits, and
the client repeats them at another one. A wait occupies a connection, so waits may use half of them. Further waits poll
instead, less and less often: the events that end the waits then still find a connection.
"""

import asyncio
import math
import re
from collections.abc import Sequence

from interlock.client.addresses import escaped, query_of
from interlock.client.calling import Calling
from interlock.client.verdicts import Answer, Call
from interlock.client.writing import checked_id
from interlock.errors import UnavailableError, WaitTimeout

POLL_S_MAX = 20.0
"""Timeout of one request; a server may end it sooner."""

POLL_SHARE = 0.8
"""Share of an attempt's time that the server may wait: the rest is for the network."""

GRACE_S = 1.0
"""How much longer than the timeout to wait for the server's answer, which knows the workflow's state."""

LOOK_FIRST_S, LOOK_FACTOR, LOOK_MAX_S = 0.02, 1.5, 1.0
"""Intervals at which waits poll that have no connection to wait on."""


class Waits:
    """The waits of one client."""

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self._places = calling.connections_max // 2

    async def until(self, workflow: str, states: Sequence[str], *, timeout_s: float | None) -> tuple[Call, Answer]:
        """Return the answer that has the workflow. Raises WaitFailed, WaitTimeout, and the errors of a call."""
        now_s = asyncio.get_running_loop().time
        deadline_s = math.inf if timeout_s is None else now_s() + timeout_s
        pause_s = LOOK_FIRST_S
        answered = False
        while True:
            waits = self._places > 0
            poll_s = self._poll_s(deadline_s - now_s()) if waits else 0.0
            call = _call(workflow, states, poll_s)
            # The first request has the timeout of any call; later ones have the rest of the caller's.
            budget_s = self._calling.timeout_s if not answered else deadline_s - now_s() + GRACE_S
            try:
                return call, await self._ask(call, min(budget_s, self._calling.timeout_s), waits=waits)
            except WaitTimeout as error:
                answered = True
                wait_s = 0.0 if waits else pause_s * (1 + self._calling.chance.fraction()) / 2
                if now_s() + wait_s >= deadline_s:
                    raise _with_whole_timeout(error, workflow, timeout_s or 0.0) from None
            except UnavailableError as error:
                if not answered or now_s() < deadline_s:
                    raise
                raise WaitTimeout(
                    f"workflow {workflow!r} did not get there within {timeout_s:g} s, as far as is known: {error.what}"
                ) from error
            if wait_s:
                await asyncio.sleep(wait_s)
                pause_s = min(LOOK_MAX_S, pause_s * LOOK_FACTOR)

    def _poll_s(self, left_s: float) -> float:
        return round(max(0.0, min(left_s, POLL_S_MAX, self._calling.attempt_s * POLL_SHARE)), 3)

    async def _ask(self, call: Call, timeout_s: float, *, waits: bool) -> Answer:
        self._places -= waits
        try:
            return await self._calling.ask(call, timeout_s=timeout_s)
        finally:
            self._places += waits


def _call(workflow: str, states: Sequence[str], poll_s: float) -> Call:
    query = query_of(state=",".join(states) or None, timeout_s=poll_s)
    return Call("GET", f"/v1/workflows/{escaped(checked_id(workflow))}/wait{query}")


def _with_whole_timeout(error: WaitTimeout, workflow: str, timeout_s: float) -> WaitTimeout:
    """Replace the time in the server's error: it knows only its own request, but the caller waited longer."""
    pattern = re.compile(rf"({re.escape(repr(workflow))} did not get there within )\S+ s")
    error.what = pattern.sub(rf"\g<1>{timeout_s:g} s", error.what, count=1)
    error.args = (error.what,)
    return error
