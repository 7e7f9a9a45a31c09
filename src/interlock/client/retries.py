"""Calls of a client: a request, retried where that is safe and may help, within one time budget.

A request is retried only if three conditions hold. The call is repeatable: it only reads, is idempotent by nature (a
start), or has a key. The failure is temporary: no answer, an answer cut short, or a problem that is not about the
request. Time, an attempt and retry budget are left.

Invariant: every outcome but OutcomeUnknown says with certainty what happened. An attempt that may have been applied
leaves a doubt; only an answer that the server gave with knowledge of the key removes it.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import msgspec

from interlock.client.connection import Attempt, Connect, Garbage, Head, Incoming, Lost, NotSent, Pool, Request
from interlock.clock import Chance
from interlock.core.policies import Budget, Retry
from interlock.engine.dependencies.dependency import RetryBudget
from interlock.errors import (
    BadUsage,
    DefinitionError,
    GuardRejected,
    InterlockError,
    InternalError,
    LeaseHeld,
    MissingExtra,
    MovedElsewhere,
    NotAuthenticated,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    Refusal,
    RequestError,
    RetryAfter,
    TargetNotFound,
    UnavailableError,
    UserCodeError,
    VersionConflict,
)
from interlock.urls import ServerAddress

# --- Problem documents (RFC 9457) as errors --------------------------------------------------------------------------
# A problem's `code` is that of the error, its `what` says what happened, its `detail` adds why, and its `fix` is the
# remedy. An older server has no `what`: its `title` says what happened, and its `detail` only why. Further facts of
# an error (the state, the allowed events, a time to wait) are members with the names of its attributes. An error
# that crosses the wire has the same class and text on the other side.

KIND = "application/problem+json"


def _tree(cls: type[InterlockError]) -> Iterator[type[InterlockError]]:
    """Yield the class and all its subclasses that Interlock declares; programs have subclasses of their own."""
    yield cls
    for below in cls.__subclasses__():
        if below.__module__ in _DECLARED:
            yield from _tree(below)


_DECLARED = {InterlockError.__module__, NotPermitted.__module__}

CLASSES: dict[str, type[InterlockError]] = {cls.code: cls for cls in _tree(InterlockError)}
"""Every error by its code, derived from the class tree, so that it is complete."""

FORMER_CLASSES: dict[str, type[InterlockError]] = {"user-code": UserCodeError}
"""Errors by a former code, which an older server sends."""

MEMBERS: dict[type[InterlockError], dict[str, tuple[object, object]]] = {
    DefinitionError: {"rule": (str, ""), "location": (str, "")},
    MissingExtra: {"extra": (str, "")},
    Refusal: {"machine": (str, ""), "state": (str, ""), "event": (str, ""), "allowed": (tuple[str, ...], ())},
    GuardRejected: {"guard": (str, ""), "guards": (tuple[str, ...], ()), "reasons": (tuple[str, ...], ())},
    NotAuthenticated: {"presented": (bool, False)},
    UserCodeError: {"machine": (str, ""), "event": (str, ""), "correlation_id": (str, "")},
    PayloadTooLarge: {"size_bytes": (int, 0), "limit_bytes": (int, 0)},
    RetryAfter: {"seconds": (float, 1.0)},
    Overloaded: {"retry_after_s": (float, 1.0)},
    MovedElsewhere: {"url": (str, ""), "epoch": (int, 0)},
    LeaseHeld: {"lease": (str, ""), "owner": (str, ""), "since": (datetime | None, None)},
}
"""Further attributes of errors: the type of each, and its value when a document lacks it."""

_BY_STATUS: dict[int, type[InterlockError]] = {
    401: NotAuthenticated,
    403: NotPermitted,
    404: TargetNotFound,
    412: VersionConflict,
    413: PayloadTooLarge,
    429: Overloaded,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}

SERVER_ERROR = 500


class Problem(msgspec.Struct, frozen=True):
    """The members of a document that are read."""

    code: str = ""
    title: str = ""
    what: str = ""
    detail: str = ""
    fix: str = ""
    retry: str = ""
    """The server's opinion; empty for the class's own."""


def error_of(document: Mapping[str, object], *, status: int, retry_after_s: float | None = None) -> InterlockError:
    """Build the error of a document. An unknown `code` is kept, on the class for the status."""
    problem = Problem(**{name: _text(document.get(name)) for name in Problem.__struct_fields__})
    known = CLASSES.get(problem.code) or FORMER_CLASSES.get(problem.code)
    cls = known or class_for(status)
    what = problem.what or problem.title or f"the server answered with status {status}."
    why = problem.detail.removeprefix(problem.what).strip()
    # As for an unpickled error: its constructor takes other arguments than its text.
    error = cls.__new__(cls)
    error.args = (what,)
    facts: dict[str, object] = {"what": what, "why": why or cls.default_why, "fix": problem.fix or cls.default_fix}
    for name, (kind, default) in _members(cls).items():
        facts[name] = _convert(document.get(name), kind, default)
    if issubclass(cls, Overloaded) and "retry_after_s" not in document and retry_after_s is not None:
        facts["retry_after_s"] = retry_after_s
    if issubclass(cls, GuardRejected) and not facts["guards"] and facts["guard"]:
        facts["guards"] = (facts["guard"],)
    if problem.code and known is None:
        facts["code"] = problem.code
    if problem.retry in {"never", "now", "later"}:
        facts["retry"] = problem.retry
    error.__dict__.update(facts)
    return error


def class_for(status: int) -> type[InterlockError]:
    """Return the class for a status that comes without a known code."""
    found = _BY_STATUS.get(status)
    if found is not None:
        return found
    return InternalError if status >= SERVER_ERROR else RequestError


def _members(cls: type[InterlockError]) -> dict[str, tuple[object, object]]:
    found: dict[str, tuple[object, object]] = {}
    for each in reversed(cls.__mro__):
        found |= MEMBERS.get(cast("type[InterlockError]", each), {})
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _convert(value: object, kind: object, default: object) -> object:
    if value is None:
        return default
    try:
        return msgspec.convert(value, cast("type[object]", kind))
    except msgspec.ValidationError:
        return default


# --- Outcomes of attempts --------------------------------------------------------------------------------------------
# Only this module decides which error a caller gets. No error text holds the client's key or the query of an
# address: both may be secrets.

RETRY_AFTER_S_MAX = 3_600.0
"""Longer values of Retry-After are capped to this."""

JSON: Final = "application/json"

NOT_MODIFIED = 304


@dataclass(frozen=True, slots=True)
class Call:
    """A request, and whether it may be sent twice."""

    method: str
    target: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    moves: bool = False
    """Whether it changes anything: if it does, a missing answer means OutcomeUnknown."""
    kind: str = JSON
    """The media type of a successful answer."""

    @property
    def name(self) -> str:
        """The call as errors name it, without its query, which may hold a secret."""
        return f"{self.method} {self.target.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer."""

    head: Head
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a successful answer."""

    error: InterlockError
    again: bool
    """Whether a retry may help."""
    doubt: bool
    """Whether it may have been applied."""
    settled: bool = False
    """Whether the server guarantees that neither this attempt nor an earlier one was applied."""
    after_s: float = 0.0


class Verdicts:
    """The errors of one client."""

    def __init__(self, address: ServerAddress, secret: str | None) -> None:
        self.address = address
        self.closed = False
        """Whether the client was closed: nothing is retried."""
        self._secret = secret

    def final(self, call: Call, failure: Failure, *, doubt: bool, attempts: int) -> InterlockError:
        """Return the error that the caller gets in the end."""
        error = failure.error
        if not (doubt and call.moves) or isinstance(error, OutcomeUnknown):
            return error
        tried = "" if attempts == 1 else f" in {attempts} attempts"
        unknown = OutcomeUnknown(
            f"{call.name} at {self.address} has no known outcome{tried}: {error.what}",
            why="The request may have been applied before the connection, the server or the time failed.",
            fix="Send it again with the same key: it is applied at most once."
            if call.repeatable
            else "Get the workflow before you send it again; with `key=` the client repeats it safely.",
        )
        unknown.__cause__ = error
        return unknown

    def redirected(self, call: Call, head: Head) -> Failure:
        """Return the failure for a redirect."""
        # The target's query may hold a secret, and following it would send the client's key to an unknown address.
        place = head.headers.get("location", "").partition("?")[0].partition("#")[0]
        error = BadUsage(
            f"{self.address} answered {call.name} with a redirect to {_clean(place)!r}.",
            why="A client sends its key only to the address it was created with.",
            fix="Pass the address of the server itself, with its scheme and its path.",
        )
        return Failure(error, again=False, doubt=False)

    def problem(self, call: Call, head: Head, body: bytes) -> Failure:
        """Return the failure for an error answer of the server."""
        retry_after_s = _retry_after_s(head)
        document = _document(head, body)
        if document is None:
            return self._foreign_answer(call, head, retry_after_s)
        error = error_of(document, status=head.status, retry_after_s=retry_after_s)
        return failure_of(self.clean(error), head.status, retry_after_s)

    def _foreign_answer(self, call: Call, head: Head, retry_after_s: float | None) -> Failure:
        """Return the failure for an answer of a proxy, a load balancer or another program."""
        cls = class_for(head.status)
        what = f"{self.address} answered {call.name} with status {head.status}, and without a problem document."
        why = "A proxy between here and the server answered, or the address is not that of an Interlock server."
        fix = "Check the address, and the proxies on the way."
        if cls is Overloaded:
            error: InterlockError = Overloaded(retry_after_s or 1.0, what)
            error.why, error.fix = why, fix
        elif issubclass(cls, UnavailableError) or head.status >= SERVER_ERROR:
            error = UnavailableError(what, why=why, fix=fix)
        else:
            error = BadUsage(what, why=why, fix=fix)
        unavailable = isinstance(error, UnavailableError)
        again = unavailable and head.status != SERVER_ERROR  # A bug of the other program: a retry would not help.
        return Failure(error, again=again, doubt=unavailable and cls is not Overloaded, after_s=_bounded(retry_after_s))

    def not_sent(self, call: Call, why: str) -> Failure:
        """Return the failure for a request of which nothing was sent."""
        error = UnavailableError(
            f"the server at {self.address} was not reached for {call.name}: {self.without_secret(why)}.",
            why="There was no connection, so nothing was sent.",
            fix="Check that the server runs and that the address is right; then try again.",
        )
        return Failure(error, again=not self.closed, doubt=False)

    def lost(self, call: Call, why: str) -> Failure:
        """Return the failure for a request that may have been sent and was not answered."""
        error = UnavailableError(
            f"{call.name} at {self.address} was not answered: {self.without_secret(why)}.",
            why="The connection, the server or the time failed before the answer arrived.",
            fix="Try again; check the server if it happens again.",
        )
        return Failure(error, again=not self.closed, doubt=True)

    def garbage(self, call: Call, why: str) -> Failure:
        """Return the failure for an answer that cannot be used."""
        error = UnavailableError(
            f"the answer of {self.address} to {call.name} cannot be used: {self.without_secret(why)}.",
            why="An Interlock server does not answer like this.",
            fix="Check the address, the proxies on the way, and the versions of both sides.",
        )
        return Failure(error, again=False, doubt=True)

    def clean(self, error: InterlockError) -> InterlockError:
        """Remove the client's key from the text of a server's error."""
        error.what, error.why, error.fix = map(self.without_secret, (error.what, error.why, error.fix))
        error.args = (error.what,)
        return error

    def without_secret(self, text: str) -> str:
        """Replace the client's key in a text."""
        return text.replace(self._secret, "[key]") if self._secret else text


def failure_of(error: InterlockError, status: int, retry_after_s: float | None = None) -> Failure:
    """Return the failure for an error of the server."""
    unavailable = isinstance(error, UnavailableError)
    unknown = isinstance(error, OutcomeUnknown) or (status >= SERVER_ERROR and not unavailable)
    return Failure(
        error,
        again=unavailable and error.retry != "never",
        doubt=unknown,
        # A server checks permissions before it looks up the idempotency key, so 401 and 403 settle nothing.
        settled=not unavailable and status not in {401, 403} and status < SERVER_ERROR,
        after_s=_bounded(error.retry_after_s if isinstance(error, Overloaded) else retry_after_s),
    )


def _document(head: Head, body: bytes) -> dict[str, object] | None:
    if head.kind not in {KIND, JSON}:
        return None
    try:
        document: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    known = cast("dict[str, object]", document)
    return known if isinstance(known.get("code"), str) else None


def _retry_after_s(head: Head) -> float | None:
    text = head.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004 -- seconds.


def _bounded(after_s: float | None) -> float:
    return max(0.0, min(after_s or 0.0, RETRY_AFTER_S_MAX))


def _clean(text: str) -> str:
    return text.rpartition("@")[2][:200]


# --- Transport -------------------------------------------------------------------------------------------------------

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""G6: size of an answer. A page of workflows is far below."""

PROBLEM_BYTES_MAX = 1024 * 1024

RETRIES_FREE = 100
"""Retries within ten seconds that are never delayed; beyond, they are a fifth of the calls."""

OK, REDIRECT, FAILED = 200, 300, 400


class Transport:
    """The calls of one client, through one pool of connections."""

    def __init__(
        self,
        address: ServerAddress,
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
        self._spending = RetryBudget(Budget(free=RETRIES_FREE))
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
            # An exhausted budget delays a call and never fails it: an unavailable server is not asked more often.
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
        """Make one attempt whose answer is read in pieces. Raises NotSent, Lost, Garbage or StreamRefused."""
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
                raise StreamRefused(failure)
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


class StreamRefused(Exception):
    """The failure of a stream that was not started."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


def _shared_headers(address: ServerAddress, secret: str | None) -> bytes:
    lines = [f"Host: {address.authority}", "User-Agent: interlock", "Accept-Encoding: identity"]
    if secret is not None:
        lines.append(f"Authorization: Bearer {secret}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")
