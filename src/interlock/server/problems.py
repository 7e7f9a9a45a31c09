"""Errors as problem documents (RFC 9457): a status, a stable code, and the same three parts as everywhere else.

`title` is what happened, `detail` is why, `fix` is how to go on. Which status an error has is one table; a subclass
that is not in it has that of its parent. What nobody expected is 500 with nothing of it in the answer but a number that
stands in the log: an exception's text may hold a secret.
"""

import logging
import math
from http import HTTPStatus

import msgspec

from interlock.access import NotAuthenticated, NotPermitted
from interlock.errors import (
    GuardRejected,
    InterlockError,
    InternalError,
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    LimitReached,
    Overloaded,
    PayloadTooLarge,
    Refusal,
    RequestError,
    StepError,
    TargetNotFound,
    TransactionError,
    UnavailableError,
    UserCodeError,
    VersionConflict,
    WaitFailed,
    WaitTimeout,
    WorkflowExists,
    WorkflowNotFound,
)
from interlock.seams import RandomIds
from interlock.server.answers import Answer, Headers, encode
from interlock.server.security.headers import challenge
from interlock.server.security.redaction import Redacting

log = logging.getLogger("interlock.server")
log.addFilter(Redacting())  # What nobody expected is logged with its traceback, and nobody knows what is in that.

PROBLEM: Headers = ((b"content-type", b"application/problem+json"),)

STATUS: dict[type[InterlockError], int] = {
    InterlockError: 500,
    RequestError: 400,
    Refusal: 409,
    InvalidTransition: 409,
    GuardRejected: 422,
    InvalidPayload: 400,
    PayloadTooLarge: 413,
    LimitReached: 409,
    WorkflowNotFound: 404,
    TargetNotFound: 404,
    WorkflowExists: 409,
    VersionConflict: 409,
    KeyReused: 422,
    WaitFailed: 409,
    WaitTimeout: 408,
    TransactionError: 422,
    StepError: 500,
    UserCodeError: 500,
    UnavailableError: 503,
    Overloaded: 429,
    NotAuthenticated: 401,
    NotPermitted: 403,
}
"""The status of each class of errors."""

RETRY_S = 1
"""When it is worth coming back to what is not available, where nothing better is known."""


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem document."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str
    retry: str | None = None
    """When a repetition may help: "now" or "later"."""
    retry_after_s: float | None = None
    id: str | None = None
    """The workflow, in a line of a batch."""
    machine: str | None = None
    state: str | None = None
    event: str | None = None
    allowed: tuple[str, ...] | None = None
    guard: str | None = None
    guards: tuple[str, ...] | None = None
    reasons: tuple[str, ...] | None = None
    """What the guards that said no say about themselves."""
    size_bytes: int | None = None
    limit_bytes: int | None = None


class HttpProblem(RequestError):
    """Something that only HTTP knows: no such path, no key, a method that is not allowed."""

    code = "http"

    def __init__(
        self,
        status: int,
        what: str,
        *,
        code: str,
        why: str,
        fix: str,
        headers: Headers = (),
        retry_s: int | None = None,
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.status, self.headers, self.retry_s = status, headers, retry_s
        self.problem_code = code


def status_of(error: InterlockError) -> int:
    """The status that stands for an error."""
    if isinstance(error, HttpProblem):
        return error.status
    if isinstance(error, TransactionError) and error.retry == "now":
        return 409  # Others came first, more often than was tried: the same request may do next time.
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def problem_of(error: InterlockError, *, status: int | None = None, workflow: str | None = None) -> Problem:
    """The document for an error."""
    code = error.problem_code if isinstance(error, HttpProblem) else error.code
    found = Problem(
        type=f"urn:interlock:{code}",
        title=error.what,
        status=status or status_of(error),
        detail=error.why,
        code=code,
        fix=error.fix,
        retry=None if error.retry == "never" else error.retry,
        id=workflow,
    )
    if isinstance(error, Overloaded):
        found.retry_after_s = round(error.retry_after_s, 3)
    if isinstance(error, Refusal):
        found.machine, found.state, found.event, found.allowed = error.machine, error.state, error.event, error.allowed
    if isinstance(error, GuardRejected):
        found.guard, found.guards, found.reasons = error.guard, error.guards, error.reasons
    if isinstance(error, PayloadTooLarge):
        found.size_bytes, found.limit_bytes = error.size_bytes, error.limit_bytes
    return found


def answer_to(error: InterlockError, *, status: int | None = None) -> Answer:
    """The answer that tells an error."""
    problem = problem_of(error, status=status)
    headers = PROBLEM
    if isinstance(error, HttpProblem):
        headers += error.headers
    if isinstance(error, NotAuthenticated | NotPermitted):
        headers += (challenge(error),)
    retry_s = retry_after(error)
    if retry_s is not None:
        headers += ((b"retry-after", str(retry_s).encode()),)
    return Answer(problem.status, encode(problem), headers)


def retry_after(error: InterlockError) -> int | None:
    """Whole seconds, at least 1, after which it is worth coming back; None when that is not known."""
    if isinstance(error, Overloaded):
        return max(RETRY_S, math.ceil(error.retry_after_s))
    if isinstance(error, HttpProblem):
        return error.retry_s
    return RETRY_S if isinstance(error, UnavailableError) else None


def unexpected(error: BaseException, where: str) -> InterlockError:
    """An error that nobody expected: it goes to the log, and its number to the client."""
    number = RandomIds().text()
    log.error("%s failed (%s)", where, number, exc_info=error)
    return InternalError(
        f"Something unexpected happened; it is in the server's log as {number}.",
        why="It is a bug, in Interlock or in the program that it serves.",
        fix="Look it up in the log. A request with an idempotency key can be repeated safely.",
    )


def phrase(status: int) -> str:
    """What a status is called."""
    return HTTPStatus(status).phrase
