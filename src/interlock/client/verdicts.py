"""What an answer means, or the lack of one: what happened, whether trying again may help, whether a doubt remains.

Here and nowhere else is decided what a caller is told. Nothing that is said holds the key of the client,
or the query of an address: both may be secrets.
"""

from dataclasses import dataclass
from typing import Final, cast

import msgspec

from interlock.client.addresses import Address
from interlock.client.messages import Head
from interlock.client.problems import KIND, class_for, error_of
from interlock.errors import BadUsage, InterlockError, OutcomeUnknown, Overloaded, UnavailableError

RETRY_AFTER_S_MAX = 3_600.0
"""Nobody means a longer time."""

JSON: Final = "application/json"

SERVER_ERROR = 500
NOT_MODIFIED = 304


@dataclass(frozen=True, slots=True)
class Call:
    """What is asked, and whether it may be asked twice."""

    method: str
    target: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    repeatable: bool = True
    moves: bool = False
    """Whether it changes anything: if it does, no answer means that the outcome is unknown."""
    kind: str = JSON
    """The media type of a good answer."""

    @property
    def told(self) -> str:
        """The call as errors name it; a query may hold what is nobody's business."""
        return f"{self.method} {self.target.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer."""

    head: Head
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without a good answer."""

    error: InterlockError
    again: bool
    """Whether trying again may help."""
    doubt: bool
    """Whether it may have acted all the same."""
    settled: bool = False
    """Whether the server says for certain that nothing was done, by this attempt or one before."""
    after_s: float = 0.0


class Verdicts:
    """The words of one client."""

    def __init__(self, address: Address, secret: str | None) -> None:
        self.address = address
        self.closed = False
        """The client was closed: nothing is tried again."""
        self._secret = secret

    def final(self, call: Call, failure: Failure, *, doubt: bool, attempts: int) -> InterlockError:
        """What the caller is told in the end."""
        error = failure.error
        if not (doubt and call.moves) or isinstance(error, OutcomeUnknown):
            return error
        tried = "" if attempts == 1 else f" in {attempts} attempts"
        unknown = OutcomeUnknown(
            f"{call.told} at {self.address} had no answer that says what became of it{tried}: {error.what}",
            why="The request may have been carried out before the connection, the server or the time gave out.",
            fix="Send it again with the same key: it is applied at most once."
            if call.repeatable
            else "Look at the workflow before you send it again; with `key=` a repetition is safe, and made for you.",
        )
        unknown.__cause__ = error
        return unknown

    def redirected(self, call: Call, head: Head) -> Failure:
        """The server is elsewhere."""
        # Its query may hold a secret of theirs, and following it would carry ours to a place that nobody named.
        place = head.headers.get("location", "").partition("?")[0].partition("#")[0]
        error = BadUsage(
            f"{self.address} answered {call.told} with a redirect to {_clean(place)!r}.",
            why="A client sends its key to the address that it was given, and to no other.",
            fix="Give the address that really serves, with its scheme and its path.",
        )
        return Failure(error, again=False, doubt=False)

    def problem(self, call: Call, head: Head, body: bytes) -> Failure:
        """The server said no."""
        retry_after_s = _retry_after_s(head)
        document = _document(head, body)
        if document is None:
            return self._answer_of_another(call, head, retry_after_s)
        error = error_of(document, status=head.status, retry_after_s=retry_after_s)
        return failure_of(self.clean(error), head.status, retry_after_s)

    def _answer_of_another(self, call: Call, head: Head, retry_after_s: float | None) -> Failure:
        """The answer of something that stands in between: a proxy, a balancer, another program."""
        cls = class_for(head.status)
        what = f"{self.address} answered {call.told} with status {head.status}, and without a problem document."
        why = "Something between here and the server answered, or the address is not that of an Interlock server."
        fix = "Check the address, and look at what stands in between."
        if cls is Overloaded:
            error: InterlockError = Overloaded(retry_after_s or 1.0, what)
            error.why, error.fix = why, fix
        elif issubclass(cls, UnavailableError) or head.status >= SERVER_ERROR:
            error = UnavailableError(what, why=why, fix=fix)
        else:
            error = BadUsage(what, why=why, fix=fix)
        unavailable = isinstance(error, UnavailableError)
        again = unavailable and head.status != SERVER_ERROR  # A mistake over there: it would be the same again.
        return Failure(error, again=again, doubt=unavailable and cls is not Overloaded, after_s=_bounded(retry_after_s))

    def not_sent(self, call: Call, why: str) -> Failure:
        """Nothing has left."""
        error = UnavailableError(
            f"the server at {self.address} was not reached for {call.told}: {self.without_secret(why)}.",
            why="There was no connection, so nothing was sent and nothing has happened.",
            fix="Check that the server runs and that the address is right; then try again.",
        )
        return Failure(error, again=not self.closed, doubt=False)

    def lost(self, call: Call, why: str) -> Failure:
        """Something has left, and no answer came."""
        error = UnavailableError(
            f"{call.told} at {self.address} was not answered: {self.without_secret(why)}.",
            why="The connection, the server or the time gave out before the answer was here.",
            fix="Try again; look at the server if it goes on.",
        )
        return Failure(error, again=not self.closed, doubt=True)

    def garbage(self, call: Call, why: str) -> Failure:
        """Something came back that is not an answer."""
        error = UnavailableError(
            f"what {self.address} answered to {call.told} cannot be used: {self.without_secret(why)}.",
            why="It is not what an Interlock server answers.",
            fix="Check the address, what stands in between, and the versions of both sides.",
        )
        return Failure(error, again=False, doubt=True)

    def clean(self, error: InterlockError) -> InterlockError:
        """The error of a server, without the key in its text."""
        error.what, error.why, error.fix = map(self.without_secret, (error.what, error.why, error.fix))
        error.args = (error.what,)
        return error

    def without_secret(self, text: str) -> str:
        """The text, in which nobody finds the key of this client."""
        return text.replace(self._secret, "[key]") if self._secret else text


def failure_of(error: InterlockError, status: int, retry_after_s: float | None = None) -> Failure:
    """What an error of the server means for the call that it answers."""
    unavailable = isinstance(error, UnavailableError)
    unknown = isinstance(error, OutcomeUnknown) or (status >= SERVER_ERROR and not unavailable)
    return Failure(
        error,
        again=unavailable and error.retry != "never",
        doubt=unknown,
        # Who may not ask is told so before anybody looks at the key.
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
    told = head.headers.get("retry-after", "")
    return float(told) if told.isascii() and told.isdigit() and len(told) < 10 else None  # noqa: PLR2004 -- seconds.


def _bounded(after_s: float | None) -> float:
    return max(0.0, min(after_s or 0.0, RETRY_AFTER_S_MAX))


def _clean(text: str) -> str:
    return text.rpartition("@")[2][:200]
