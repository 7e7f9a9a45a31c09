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
from typing import Final, TypeVar, cast

import msgspec

import interlock.errors as errors  # noqa: PLR0402 -- `from interlock` would be a cycle to a type checker.
from interlock.client.http_connection import (
    Connect,
    ConnectionPool,
    ExchangeError,
    Garbage,
    Head,
    Incoming,
    Lost,
    NotSent,
    RequestProgress,
)
from interlock.clock import Chance
from interlock.core.policies import Budget, Retry
from interlock.engine.dependencies.outlet import RetryBudget
from interlock.urls import ServerAddress
from interlock.wire import members_of

# --- Problem documents (RFC 9457) as errors --------------------------------------------------------------------------
# An older server has no `what`: its `title` says what happened, and its `detail` only why.

KIND = "application/problem+json"


def _tree(cls: type[errors.InterlockError]) -> Iterator[type[errors.InterlockError]]:
    """Yield the class and all its subclasses that Interlock declares; programs have subclasses of their own."""
    yield cls
    for below in cls.__subclasses__():
        if below.__module__ in _DECLARED:
            yield from _tree(below)


_DECLARED = {errors.InterlockError.__module__, errors.NotPermitted.__module__}

CLASSES: dict[str, type[errors.InterlockError]] = {cls.code: cls for cls in _tree(errors.InterlockError)}
"""Every error by its code, derived from the class tree, so that it is complete."""

FORMER_CLASSES: dict[str, type[errors.InterlockError]] = {"user-code": errors.UserCodeError}
"""Errors by a former code, which an older server sends."""

_BY_STATUS: dict[int, type[errors.InterlockError]] = {
    401: errors.NotAuthenticated,
    403: errors.NotPermitted,
    404: errors.TargetNotFound,
    412: errors.VersionConflict,
    413: errors.PayloadTooLarge,
    429: errors.Overloaded,
    502: errors.UnavailableError,
    503: errors.UnavailableError,
    504: errors.UnavailableError,
}

SERVER_ERROR = 500


def error_of(
    document: Mapping[str, object], *, status: int, retry_after_s: float | None = None
) -> errors.InterlockError:
    """Build the error of a document. An unknown `code` is kept, on the class for the status."""
    code, what, detail, fix, retry = (_text(document.get(name)) for name in ("code", "what", "detail", "fix", "retry"))
    known = CLASSES.get(code) or FORMER_CLASSES.get(code)
    cls = known or class_for(status)
    why = detail.removeprefix(what).strip()
    what = what or _text(document.get("title")) or f"the server answered with status {status}."
    # As for an unpickled error: its constructor takes other arguments than its text.
    error = cls.__new__(cls)
    error.args = (what,)
    facts: dict[str, object] = {"what": what, "why": why or cls.default_why, "fix": fix or cls.default_fix}
    for name, (kind, default) in members_of(cls).items():
        if name in document or not hasattr(cls, name):  # Otherwise the class has the value of an error without it.
            facts[name] = _convert(document.get(name), kind, default)
    if issubclass(cls, errors.Overloaded) and "retry_after_s" not in document and retry_after_s is not None:
        facts["retry_after_s"] = retry_after_s
    if issubclass(cls, errors.GuardRejected) and not facts["guards"] and facts["guard"]:
        facts["guards"] = (facts["guard"],)
    if code and known is None:
        facts["code"] = code
    if retry in {"never", "now", "later"}:
        facts["retry"] = retry  # The server's opinion, instead of the class's own.
    error.__dict__.update(facts)
    return error


def class_for(status: int) -> type[errors.InterlockError]:
    """Return the class for a status that comes without a known code."""
    found = _BY_STATUS.get(status)
    if found is not None:
        return found
    return errors.InternalError if status >= SERVER_ERROR else errors.RequestError


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
class HttpCall:
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
class FailedAttempt:
    """An attempt without a successful answer."""

    error: errors.InterlockError
    again: bool
    """Whether a retry may help."""
    doubt: bool
    """Whether it may have been applied."""
    settled: bool = False
    """Whether the server guarantees that neither this attempt nor an earlier one was applied."""
    after_s: float = 0.0


class StreamRefused(ExchangeError):
    """The failure of a stream that was not started."""

    def __init__(self, failure: FailedAttempt) -> None:
        super().__init__(str(failure.error))
        self.failure = failure


_TEXTS: dict[type[ExchangeError], tuple[str, str, str]] = {
    NotSent: (
        "the server at {address} was not reached for {call}: {reason}.",
        "There was no connection, so nothing was sent.",
        "Check that the server runs and that the address is right; then try again.",
    ),
    Lost: (
        "{call} at {address} was not answered: {reason}.",
        "The connection, the server or the time failed before the answer arrived.",
        "Try again; check the server if it happens again.",
    ),
    Garbage: (
        "the answer of {address} to {call} cannot be used: {reason}.",
        "An Interlock server does not answer like this.",
        "Check the address, the proxies on the way, and the versions of both sides.",
    ),
}
"""What happened, why, and the remedy, for each kind of exchange without a usable answer."""


class Verdicts:
    """The errors of one client."""

    def __init__(self, address: ServerAddress, secret: str | None) -> None:
        self.address = address
        self.closed = False
        """Whether the client was closed: nothing is retried."""
        self._secret = secret

    def final(self, call: HttpCall, failure: FailedAttempt, *, doubt: bool, attempts: int) -> errors.InterlockError:
        """Return the error that the caller gets in the end."""
        error = failure.error
        if not (doubt and call.moves) or isinstance(error, errors.OutcomeUnknown):
            return error
        tried = "" if attempts == 1 else f" in {attempts} attempts"
        unknown = errors.OutcomeUnknown(
            f"{call.name} at {self.address} has no known outcome{tried}: {error.what}",
            why="The request may have been applied before the connection, the server or the time failed.",
            fix="Send it again with the same key: it is applied at most once."
            if call.repeatable
            else "Get the workflow before you send it again; with `key=` the client repeats it safely.",
        )
        unknown.__cause__ = error
        return unknown

    def redirected(self, call: HttpCall, head: Head) -> FailedAttempt:
        """Return the failure for a redirect."""
        # The target's query may hold a secret, and following it would send the client's key to an unknown address.
        place = head.headers.get("location", "").partition("?")[0].partition("#")[0]
        error = errors.BadUsage(
            f"{self.address} answered {call.name} with a redirect to {_clean(place)!r}.",
            why="A client sends its key only to the address it was created with.",
            fix="Pass the address of the server itself, with its scheme and its path.",
        )
        return FailedAttempt(error, again=False, doubt=False)

    def problem(self, call: HttpCall, head: Head, body: bytes) -> FailedAttempt:
        """Return the failure for an error answer of the server."""
        retry_after_s = _retry_after_s(head)
        document = _document(head, body)
        if document is None:
            return self._foreign_answer(call, head, retry_after_s)
        error = error_of(document, status=head.status, retry_after_s=retry_after_s)
        unavailable = isinstance(error, errors.UnavailableError)
        unknown = isinstance(error, errors.OutcomeUnknown) or (head.status >= SERVER_ERROR and not unavailable)
        return FailedAttempt(
            self.clean(error),
            again=unavailable and error.retry != "never",
            doubt=unknown,
            # A server checks permissions before it looks up the idempotency key, so 401 and 403 settle nothing.
            settled=not unavailable and head.status not in {401, 403} and head.status < SERVER_ERROR,
            after_s=_bounded(error.retry_after_s if isinstance(error, errors.Overloaded) else retry_after_s),
        )

    def _foreign_answer(self, call: HttpCall, head: Head, retry_after_s: float | None) -> FailedAttempt:
        """Return the failure for an answer of a proxy, a load balancer or another program."""
        cls = class_for(head.status)
        what = f"{self.address} answered {call.name} with status {head.status}, and without a problem document."
        why = "A proxy between here and the server answered, or the address is not that of an Interlock server."
        fix = "Check the address, with its path if an app mounts the server, and the proxies on the way."
        if cls is errors.Overloaded:
            error: errors.InterlockError = errors.Overloaded(retry_after_s or 1.0, what)
            error.why, error.fix = why, fix
        elif issubclass(cls, errors.UnavailableError) or head.status >= SERVER_ERROR:
            error = errors.UnavailableError(what, why=why, fix=fix)
        else:
            error = errors.BadUsage(what, why=why, fix=fix)
        unavailable = isinstance(error, errors.UnavailableError)
        again = unavailable and head.status != SERVER_ERROR  # A bug of the other program: a retry would not help.
        return FailedAttempt(
            error, again=again, doubt=unavailable and cls is not errors.Overloaded, after_s=_bounded(retry_after_s)
        )

    def failure(self, call: HttpCall, error: ExchangeError) -> FailedAttempt:
        """Return the failure for a request that was not answered, or not with a usable answer."""
        if isinstance(error, StreamRefused):
            return error.failure
        what, why, fix = _TEXTS[type(error)]
        text = what.format(address=self.address, call=call.name, reason=self.without_secret(str(error)))
        again = not isinstance(error, Garbage) and not self.closed
        return FailedAttempt(
            errors.UnavailableError(text, why=why, fix=fix), again=again, doubt=not isinstance(error, NotSent)
        )

    def clean(self, error: errors.InterlockError) -> errors.InterlockError:
        """Remove the client's key from the text of a server's error."""
        error.what, error.why, error.fix = map(self.without_secret, (error.what, error.why, error.fix))
        error.args = (error.what,)
        return error

    def without_secret(self, text: str) -> str:
        """Replace the client's key in a text."""
        return text.replace(self._secret, "[key]") if self._secret else text


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

ValueT = TypeVar("ValueT")


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
        self._pool: ConnectionPool | None = None
        self._shared = _shared_headers(address, secret)

    async def ask(self, call: HttpCall, *, timeout_s: float | None = None) -> bytes:
        """Make the call; returns its answer. Raises the server's error, UnavailableError, or OutcomeUnknown."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + (self.timeout_s if timeout_s is None else timeout_s)
        doubt = False
        attempt = 0
        while True:
            attempt += 1
            self.spend(retry=attempt > 1)
            outcome = await self._attempt(call, max(0.0, min(self.attempt_s, deadline_s - now_s())))
            if isinstance(outcome, bytes):
                return outcome
            doubt = (doubt or outcome.doubt) and not outcome.settled
            if not await self.pause(call, outcome, attempt, deadline_s):
                raise self.verdicts.final(call, outcome, doubt=doubt, attempts=attempt)

    async def fetch(self, call: HttpCall, kind: type[ValueT], *, timeout_s: float | None = None) -> ValueT:
        """Make the call, and decode its answer. Raises as `ask`, also for an answer that cannot be decoded."""
        body = await self.ask(call, timeout_s=timeout_s)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            failure = self.verdicts.failure(call, Garbage(f"{error}"))
            raise self.verdicts.final(call, failure, doubt=True, attempts=1) from error

    async def pause(self, call: HttpCall, failure: FailedAttempt, attempt: int, deadline_s: float) -> bool:
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

    async def _attempt(self, call: HttpCall, attempt_s: float) -> bytes | FailedAttempt:
        attempt = RequestProgress()
        try:
            async with (
                asyncio.timeout(attempt_s),
                self.pool().exchange(self._encode(call), attempt, repeatable=call.repeatable) as incoming,
            ):
                return await self._read_answer(call, incoming)
        except TimeoutError:
            if attempt.sent:
                return self.verdicts.failure(call, Lost(f"there was no whole answer within {attempt_s:.3g} s"))
            return self.verdicts.failure(call, NotSent(f"no connection was available within {attempt_s:.3g} s"))
        except ExchangeError as error:
            return self.verdicts.failure(call, error)

    @asynccontextmanager
    async def open_stream(
        self, call: HttpCall, attempt: RequestProgress, *, apart: bool = False
    ) -> AsyncGenerator[Incoming, None]:
        """Make one attempt whose answer is read in pieces. Raises ExchangeError."""
        request = self._encode(call)
        opened = (
            self.pool().apart(request, attempt)
            if apart
            else self.pool().exchange(request, attempt, repeatable=call.repeatable)
        )
        async with opened as incoming:
            if incoming.head.status != OK or incoming.head.kind != call.kind:
                failure = await self._read_answer(call, incoming)
                if isinstance(failure, bytes):
                    failure = self.verdicts.failure(call, Garbage("it is not a stream"))
                raise StreamRefused(failure)
            yield incoming

    async def _read_answer(self, call: HttpCall, incoming: Incoming) -> bytes | FailedAttempt:
        head = incoming.head
        if head.status < REDIRECT or head.status == NOT_MODIFIED:
            body = await incoming.read(ANSWER_BYTES_MAX)
            if body and head.kind != call.kind:
                raise Garbage(f"it is of type {head.kind[:100] or 'nothing'!r}, not {call.kind!r}")
            return body
        if head.status < FAILED:
            return self.verdicts.redirected(call, head)
        return self.verdicts.problem(call, head, await incoming.read(PROBLEM_BYTES_MAX))

    def spend(self, *, retry: bool) -> None:
        """Count a request for the retry budget."""
        self._spending.spend(asyncio.get_running_loop().time(), retry=retry)

    def pool(self) -> ConnectionPool:
        """Return the connections of the running event loop."""
        if self.verdicts.closed:
            raise errors.UnavailableError(
                "the client is closed.", why="It was closed before the call.", fix="Use it inside `async with`."
            )
        loop = asyncio.get_running_loop()
        pool = self._pool
        if pool is not None and pool.loop is not loop:
            if not pool.loop.is_closed():
                raise errors.BadUsage(
                    "a client was used by two event loops.",
                    why="Its connections belong to the event loop that opened them.",
                    fix="Create a client in each, or a BlockingClient, which any thread may call.",
                )
            pool.abandon()
            pool = None
        if pool is None:
            pool = self._pool = ConnectionPool(
                self.address, connections_max=self.connections_max, tls=self._tls, connect=self._connect
            )
        return pool

    async def close(self) -> None:
        """Close all connections. Calls under way end without an answer."""
        self.verdicts.closed = True
        if self._pool is not None and self._pool.loop is asyncio.get_running_loop():
            await self._pool.close()

    def _encode(self, call: HttpCall) -> bytes:
        lines = [f"{call.method} {self.address.root}{call.target} HTTP/1.1\r\n".encode("ascii"), self._shared]
        headers = (("Accept", f"{call.kind}, {KIND}"), *call.headers)
        lines += [f"{name}: {value}\r\n".encode() for name, value in headers]
        if call.body is not None:
            lines.append(b"Content-Length: %d\r\n" % len(call.body))
        return b"".join([*lines, b"\r\n", call.body or b""])


def _shared_headers(address: ServerAddress, secret: str | None) -> bytes:
    lines = [f"Host: {address.authority}", "User-Agent: interlock", "Accept-Encoding: identity"]
    if secret is not None:
        lines.append(f"Authorization: Bearer {secret}")
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")
