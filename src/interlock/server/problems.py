"""Errors as problem documents (RFC 9457): a status, a stable code, and the three parts of every error.

`title` names the type of the problem and never varies; `detail` says what happened and why, `what` is its first part,
and `fix` is the remedy. One table maps error classes to statuses; a subclass that is not in it has its parent's. An
unexpected exception is answered with 500 and an id under which it is logged: its text may hold a secret.
"""

import math
from http import HTTPStatus

import msgspec

from interlock.clock import RandomIds
from interlock.errors import (
    GuardRejected,
    InterlockError,
    InternalError,
    InvalidPayload,
    InvalidTransition,
    KeyReused,
    LimitReached,
    NotAuthenticated,
    NotPermitted,
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
from interlock.redaction import bounded_text, logger_of
from interlock.server.response import Answer, Headers, encode
from interlock.server.security.headers import challenge

log = logger_of("interlock.server")

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

TITLES: dict[str, str] = {
    "interlock": "The request failed.",
    "definition": "A machine, step or setting is declared wrongly.",
    "missing-extra": "An optional dependency is not installed.",
    "request": "The request cannot be carried out as it stands.",
    "refused": "The machine refuses the event.",
    "invalid-transition": "The event has no transition from the current state.",
    "guard-rejected": "A guard refuses the event.",
    "invalid-payload": "A value in the request is not valid.",
    "payload-too-large": "The body, a context or a payload is too large.",
    "limit-reached": "A limit is reached.",
    "workflow-not-found": "The workflow does not exist.",
    "workflow-exists": "The id belongs to another workflow.",
    "version-conflict": "The workflow has another version than the expected one.",
    "key-reused": "The idempotency key was used for something else.",
    "wait-failed": "The workflow ended in another state.",
    "wait-timeout": "The workflow did not reach the state in time.",
    "target-not-found": "The target does not exist.",
    "usage": "A name, an address or a setting cannot be used like this.",
    "unusable-file": "A file cannot be used.",
    "dialect": "The SQL is outside the documented subset.",
    "transaction": "The transaction did not commit.",
    "constraint-violation": "A constraint refuses the transaction.",
    "not-authenticated": "The request has no valid API key.",
    "not-permitted": "The API key does not permit the request.",
    "step": "A step failed.",
    "retryable": "A step failed, and may be retried.",
    "retry-after": "A step failed, and may be retried later.",
    "non-retryable": "A step failed for good.",
    "user-code-error": "A function of the application failed.",
    "unavailable": "The server cannot do this now.",
    "overloaded": "The server takes in no more work now.",
    "outcome-unknown": "The outcome of the request is unknown.",
    "lane-owned": "Another process owns the lane.",
    "lease-held": "Another process holds the lease.",
    "fenced": "Another owner took the lane or the lease over.",
    "moved-elsewhere": "The data moved to another place.",
    "machine-mismatch": "The process has another version of the machine.",
    "corruption": "Stored data contradict themselves.",
    "internal": "The server failed.",
    "bad-signature": "The signature of the webhook is not valid.",
    "breaker-not-found": "The breaker does not exist.",
    "database-not-found": "The database does not exist.",
    "head-too-large": "The head of the request is too large.",
    "invalid-request": "The request is not valid HTTP/1.1.",
    "machine-not-found": "The machine does not exist.",
    "method-not-allowed": "The path does not take this method.",
    "no-metrics": "The server has no metrics.",
    "not-found": "The path does not exist.",
    "request-timeout": "The request did not arrive in time.",
    "unsupported-media-type": "The type of the body is not supported.",
    "webhook-not-found": "The source of webhooks does not exist.",
}
"""The title of each code."""

BUG_CHARACTERS_MAX = 2_000
"""Characters of the text of a bug, which quotes an exception."""

RETRY_S = 1
"""Seconds after which to retry when the server is unavailable, where nothing better is known."""


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem document."""

    type: str
    title: str
    """The type of the problem: the same sentence each time."""
    status: int
    detail: str
    """What happened this time, and why."""
    code: str
    what: str
    """What happened this time: the first part of `detail`, without the reason."""
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
    """The descriptions of the guards that refused the event."""
    size_bytes: int | None = None
    limit_bytes: int | None = None
    correlation_id: str | None = None
    """The id under which the traceback of a bug is in the server's log."""


class HttpProblem(RequestError):
    """An error that only HTTP has: an unknown path, a missing key, a method that is not allowed."""

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
    """Return the HTTP status of an error."""
    if isinstance(error, HttpProblem):
        return error.status
    if isinstance(error, TransactionError) and error.retry == "now":
        return 409  # It lost to other transactions in every attempt: the same request may succeed later.
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def problem_of(error: InterlockError, *, status: int | None = None, workflow: str | None = None) -> Problem:
    """Build the problem document of an error."""
    code = error.problem_code if isinstance(error, HttpProblem) else error.code
    found = Problem(
        type=f"urn:interlock:{code}",
        title=_title(error, code),
        status=status or status_of(error),
        detail=f"{error.what} {error.why}",
        code=code,
        what=error.what,
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
    if isinstance(error, UserCodeError):
        found.what = bounded_text(error.what, BUG_CHARACTERS_MAX)
        found.detail = f"{found.what} {error.why}"
        found.machine, found.event = error.machine or None, error.event or None
        found.correlation_id = _log_id(error)
    return found


def _title(error: InterlockError, code: str) -> str:
    """Return the title of a code; a code that a program declares has the title of its parent class."""
    parents = (str(getattr(cls, "code", "")) for cls in type(error).__mro__)
    return TITLES.get(code) or next(TITLES[each] for each in parents if each in TITLES)


def _log_id(error: UserCodeError) -> str:
    """Return the id under which the error is logged, logging it now unless the engine has."""
    return error.correlation_id or log_bug(error, exc_info=error)


def log_bug(error: UserCodeError, *, frames: str = "", exc_info: BaseException | None = None) -> str:
    """Log a bug of the program with its traceback, and return the id under which it is in the log."""
    number = error.correlation_id = RandomIds().text()
    fields = {"machine": error.machine or None, "event": error.event or None, "correlation_id": number}
    text = f"\nTraceback (most recent call last):\n{frames}" if frames else ""
    log.error("%s (correlation id %s)%s", error.what, number, text, exc_info=exc_info, extra=fields)
    return number


def answer_to(error: InterlockError, *, status: int | None = None) -> Answer:
    """Build the answer that reports an error."""
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
    """Return the whole seconds, at least 1, after which to retry; None when that is not known."""
    if isinstance(error, Overloaded):
        return max(RETRY_S, math.ceil(error.retry_after_s))
    if isinstance(error, HttpProblem):
        return error.retry_s
    return RETRY_S if isinstance(error, UnavailableError) else None


def unexpected(error: BaseException, where: str) -> InterlockError:
    """Log an unexpected exception, and return the error that carries its log id to the client."""
    number = RandomIds().text()
    log.error("%s failed (%s)", where, number, exc_info=error)
    return InternalError(
        f"Something unexpected happened; it is in the server's log as {number}.",
        why="It is a bug, in Interlock or in the program that it serves.",
        fix="Look it up in the log. A request with an idempotency key can be repeated safely.",
    )


def phrase(status: int) -> str:
    """Return the reason phrase of a status."""
    return HTTPStatus(status).phrase
