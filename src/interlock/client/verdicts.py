"""Outcomes of attempts: the error, whether a retry may help, and whether the request may have been applied.

Only this module decides which error a caller gets. No error text holds the client's key or the query of an address:
both may be secrets.
"""

from dataclasses import dataclass
from typing import Final, cast

import msgspec

from interlock.client.addresses import Address
from interlock.client.messages import Head
from interlock.client.problems import KIND, class_for, error_of
from interlock.errors import BadUsage, InterlockError, OutcomeUnknown, Overloaded, UnavailableError

RETRY_AFTER_S_MAX = 3_600.0
"""Longer values of Retry-After are capped to this."""

JSON: Final = "application/json"

SERVER_ERROR = 500
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

    def __init__(self, address: Address, secret: str | None) -> None:
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
