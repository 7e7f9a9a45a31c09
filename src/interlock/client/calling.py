"""One call of a client: a request, retried where that is safe and may help, within one time budget.

A request is retried only if three conditions hold. The call is repeatable: it only reads, is idempotent by nature (a
start), or has a key. The failure is temporary: no answer, an answer cut short, or a problem that is not about the
request. Time, an attempt and retry budget are left.

Invariant: every outcome but OutcomeUnknown says with certainty what happened. An attempt that may have been applied
leaves a doubt; only an answer that the server gave with knowledge of the key removes it.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from interlock.client.addresses import Address
from interlock.client.connection import Incoming
from interlock.client.messages import Garbage, Lost, NotSent, Request
from interlock.client.pool import Attempt, Connect, Pool
from interlock.client.problems import KIND
from interlock.client.verdicts import NOT_MODIFIED, Answer, Call, Failure, Verdicts
from interlock.core.policies import Budget, Retry
from interlock.errors import BadUsage, UnavailableError
from interlock.runtime.resilience.spending import Spending
from interlock.seams import Chance

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""G6: size of an answer. A page of workflows is far below."""

PROBLEM_BYTES_MAX = 1024 * 1024

RETRIES_FREE = 100
"""Retries within ten seconds that are never delayed; beyond, they are a fifth of the calls."""

OK, REDIRECT, FAILED = 200, 300, 400


class Calling:
    """The calls of one client, through one pool of connections."""

    def __init__(
        self,
        address: Address,
        *,
        secret: str | None,
        timeout_s: float,
        attempt_s: float,
        connections_max: int,
        retry: Retry,
        tls: ssl.SSLContext | None,
        chance: Chance,
        connect: Connect,
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.attempt_s = attempt_s
        self.retry = retry
        self.chance = chance
        self.verdicts = Verdicts(address, secret)
        self._tls = tls
        self._connect = connect
        self.connections_max = connections_max
        self._spending = Spending(Budget(free=RETRIES_FREE))
        self._pool: Pool | None = None
        self._shared = _shared_headers(address, secret)

    async def ask(self, call: Call, *, timeout_s: float | None = None) -> Answer:
        """Make the call. Raises the server's error, UnavailableError, or OutcomeUnknown."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + (self.timeout_s if timeout_s is None else timeout_s)
        doubt = False
        attempt = 0
        while True:
            attempt += 1
            self.spend(retry=attempt > 1)
            outcome = await self._attempt(call, max(0.0, min(self.attempt_s, deadline_s - now_s())))
            if isinstance(outcome, Answer):
                return outcome
            doubt = (doubt or outcome.doubt) and not outcome.settled
            if not await self.paused(call, outcome, attempt, deadline_s):
                raise self.verdicts.final(call, outcome, doubt=doubt, attempts=attempt)

    async def paused(self, call: Call, failure: Failure, attempt: int, deadline_s: float) -> bool:
        """Wait for the next attempt. Returns False immediately when there is no attempt or no time left."""
        if not (call.repeatable and failure.again) or self.retry.exhausted(attempt):
            return False
        now_s = asyncio.get_running_loop().time
        # Jitter: clients that got the same Retry-After should not retry together.
        wait_s = failure.after_s + self.retry.delay_s(attempt, self.chance.fraction())
        while now_s() + wait_s < deadline_s:
            await asyncio.sleep(wait_s)
            if self._spending.allows(now_s()):
                return True
            # An exhausted budget delays and never fails a call by itself: an unavailable server is not asked more
            # often.
            wait_s = self._spending.left_s(now_s())
        return False

    async def _attempt(self, call: Call, attempt_s: float) -> Answer | Failure:
        attempt = Attempt()
        try:
            async with (
                asyncio.timeout(attempt_s),
                self.pool().exchange(self._encode(call), attempt, repeatable=call.repeatable) as incoming,
            ):
                return await self._read_answer(call, incoming)
        except TimeoutError:
            if attempt.sent:
                return self.verdicts.lost(call, f"there was no whole answer within {attempt_s:.3g} s")
            return self.verdicts.not_sent(call, f"no connection was available within {attempt_s:.3g} s")
        except NotSent as error:
            return self.verdicts.not_sent(call, str(error))
        except Lost as error:
            return self.verdicts.lost(call, str(error))
        except Garbage as error:
            return self.verdicts.garbage(call, str(error))

    @asynccontextmanager
    async def streamed(self, call: Call, attempt: Attempt, *, apart: bool = False) -> AsyncGenerator[Incoming, None]:
        """Make one attempt whose answer is read in pieces. Raises NotSent, Lost, Garbage or Refusing."""
        request = self._encode(call)
        opened = (
            self.pool().apart(request, attempt)
            if apart
            else self.pool().exchange(request, attempt, repeatable=call.repeatable)
        )
        async with opened as incoming:
            if incoming.head.status != OK or incoming.head.kind != call.kind:
                failure = await self._read_answer(call, incoming)
                if isinstance(failure, Answer):
                    failure = self.verdicts.garbage(call, "it is not a stream")
                raise Refusing(failure)
            yield incoming

    async def _read_answer(self, call: Call, incoming: Incoming) -> Answer | Failure:
        head = incoming.head
        if head.status < REDIRECT or head.status == NOT_MODIFIED:
            body = await incoming.read(ANSWER_BYTES_MAX)
            if head.status != NOT_MODIFIED and body and head.kind != call.kind:
                return self.verdicts.garbage(call, f"it is of type {head.kind[:100] or 'nothing'!r}, not {call.kind!r}")
            return Answer(head, body)
        if head.status < FAILED:
            return self.verdicts.redirected(call, head)
        return self.verdicts.problem(call, head, await incoming.read(PROBLEM_BYTES_MAX))

    def spend(self, *, retry: bool) -> None:
        """Count a request for the retry budget."""
        self._spending.spend(asyncio.get_running_loop().time(), retry=retry)

    def pool(self) -> Pool:
        """Return the connections of the running event loop."""
        if self.verdicts.closed:
            raise UnavailableError(
                "the client is closed.", why="It was closed before the call.", fix="Use it inside `async with`."
            )
        loop = asyncio.get_running_loop()
        pool = self._pool
        if pool is not None and pool.loop is not loop:
            if not pool.loop.is_closed():
                raise BadUsage(
                    "a client was used by two event loops.",
                    why="Its connections belong to the event loop that opened them.",
                    fix="Create a client in each, or a BlockingClient, which any thread may call.",
                )
            pool.abandon()
            pool = None
        if pool is None:
            pool = self._pool = Pool(
                self.address, connections_max=self.connections_max, tls=self._tls, connect=self._connect
            )
        return pool

    async def close(self) -> None:
        """Close all connections. Calls under way end without an answer."""
        self.verdicts.closed = True
        if self._pool is not None and self._pool.loop is asyncio.get_running_loop():
            await self._pool.close()

    def _encode(self, call: Call) -> bytes:
        headers = (("Accept", f"{call.kind}, {KIND}"), *call.headers)
        return Request(call.method, call.target, headers, call.body).written(self.address.root, self._shared)


class Refusing(Exception):
    """The failure of a stream that was not started."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


def _shared_headers(address: Address, secret: str | None) -> bytes:
    lines = [f"Host: {address.authority}", "User-Agent: interlock", "Accept-Encoding: identity"]
    if secret is not None:
        lines.append(f"Authorization: Bearer {secret}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")
