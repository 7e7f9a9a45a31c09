"""Errors as problem documents (RFC 9457): a status, a stable code, and the three parts of every error.

`title` names the type of the problem and never varies; `detail` says what happened and why, `what` is its first part,
and `fix` is the remedy. One table maps error classes to statuses; a subclass that is not in it has its parent's. An
unexpected exception is answered with 500 and an id under which it is logged: its text may hold a secret.
"""

from http import HTTPStatus
from typing import NamedTuple

import interlock.errors as errors  # noqa: PLR0402 -- `from interlock` would be a cycle to a type checker.
from interlock.clock import RandomIds
from interlock.redaction import bounded_text, logger_of
from interlock.wire import Problem, members_of

log = logger_of("interlock.server")

Headers = tuple[tuple[bytes, bytes], ...]

STATUS: dict[type[errors.InterlockError], int] = {
    errors.InterlockError: 500,
    errors.RequestError: 400,
    errors.Refusal: 409,
    errors.InvalidTransition: 409,
    errors.GuardRejected: 422,
    errors.InvalidPayload: 400,
    errors.PayloadTooLarge: 413,
    errors.LimitReached: 409,
    errors.WorkflowNotFound: 404,
    errors.TargetNotFound: 404,
    errors.WorkflowExists: 409,
    errors.VersionConflict: 409,
    errors.TaskClaimed: 409,
    errors.KeyReused: 422,
    errors.WaitFailed: 409,
    errors.WaitTimeout: 408,
    errors.TransactionError: 422,
    errors.StepError: 500,
    errors.UserCodeError: 500,
    errors.UnavailableError: 503,
    errors.Overloaded: 429,
    errors.NotAuthenticated: 401,
    errors.NotPermitted: 403,
}
"""The status of each class of errors."""


class HttpKind(NamedTuple):
    """A kind of problem that only HTTP has: its status, its title, and an example of what happened."""

    status: int
    title: str
    example: str


HTTP_KINDS: dict[str, HttpKind] = {
    "bad-signature": HttpKind(
        401, "The signature of the webhook is not valid.", "the delivery has no valid signature."
    ),
    "breaker-not-found": HttpKind(
        404, "The breaker does not exist.", "there is no breaker 'gatway'. Did you mean 'gateway'?"
    ),
    "database-not-found": HttpKind(404, "The database does not exist.", "there is no database 'stokc' here."),
    "head-too-large": HttpKind(
        431,
        "The head of the request is too large.",
        "the head of the request is larger than 65,536 bytes (head_bytes_max).",
    ),
    "invalid-request": HttpKind(400, "The request is not valid HTTP/1.1.", "the request is not valid HTTP/1.1."),
    "machine-not-found": HttpKind(
        404, "The machine does not exist.", "there is no machine 'ordr'. Did you mean 'order'?"
    ),
    "method-not-allowed": HttpKind(405, "The path does not take this method.", "PATCH is not allowed here; GET is."),
    "no-metrics": HttpKind(501, "The server has no metrics.", "this engine has no Prometheus exporter."),
    "not-found": HttpKind(404, "The path does not exist.", "there is nothing at '/v1/nothing'."),
    "request-timeout": HttpKind(
        408, "The request did not arrive in time.", "no piece of the body arrived for 30 s (body_s)."
    ),
    "unsupported-media-type": HttpKind(
        415, "The type of the body is not supported.", "the body has the type 'text/plain'."
    ),
    "webhook-not-found": HttpKind(
        404, "The source of webhooks does not exist.", "there is no source of webhooks 'strpe'."
    ),
}

HTTP_STATUS: dict[str, int] = {"overloaded": 429, **{code: kind.status for code, kind in HTTP_KINDS.items()}}
"""The status of each code that an `HttpProblem` may have."""

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
    "task-claimed": "Another person has claimed the task.",
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
    **{code: kind.title for code, kind in HTTP_KINDS.items()},
}
"""The title of each code."""

BUG_CHARACTERS_MAX = 2_000
"""Characters of the text of a bug, which quotes an exception."""


class HttpProblem(errors.RequestError):
    """An error that only HTTP has: an unknown path, a missing key, a method that is not allowed."""

    code = "http"

    def __init__(
        self, code: str, what: str, *, why: str, fix: str, headers: Headers = (), retry_s: int | None = None
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.problem_code, self.headers, self.retry_s = code, headers, retry_s


def status_of(error: errors.InterlockError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, HttpProblem):
        return HTTP_STATUS[error.problem_code]
    if isinstance(error, errors.TransactionError) and error.retry == "now":
        return 409  # It lost to other transactions in every attempt: the same request may succeed later.
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def problem_of(error: errors.InterlockError, *, status: int | None = None, workflow: str | None = None) -> Problem:
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
    for name in members_of(type(error)):
        if name in Problem.__struct_fields__:
            setattr(found, name, getattr(error, name))
    if isinstance(error, errors.Overloaded):
        found.retry_after_s = round(error.retry_after_s, 3)
    if isinstance(error, errors.UserCodeError):
        found.what = bounded_text(error.what, BUG_CHARACTERS_MAX)
        found.detail = f"{found.what} {error.why}"
        found.machine, found.event = error.machine or None, error.event or None
        # Its id in the log; it is logged now, unless the engine has.
        found.correlation_id = error.correlation_id or log_bug(error, exc_info=error)
    return found


def _title(error: errors.InterlockError, code: str) -> str:
    """Return the title of a code; a code that a program declares has the title of its parent class."""
    parents = (str(getattr(cls, "code", "")) for cls in type(error).__mro__)
    return TITLES.get(code) or next(TITLES[each] for each in parents if each in TITLES)


def log_bug(error: errors.UserCodeError, *, frames: str = "", exc_info: BaseException | None = None) -> str:
    """Log a bug of the program with its traceback, and return the id under which it is in the log."""
    number = error.correlation_id = RandomIds().text()
    fields = {"machine": error.machine or None, "event": error.event or None, "correlation_id": number}
    text = f"\nTraceback (most recent call last):\n{frames}" if frames else ""
    log.error("%s (correlation id %s)%s", error.what, number, text, exc_info=exc_info, extra=fields)
    return number


def log_unexpected(error: BaseException, where: str) -> errors.InterlockError:
    """Log an unexpected exception, and return the error that carries its log id to the client."""
    number = RandomIds().text()
    log.error("%s failed (%s)", where, number, exc_info=error)
    return errors.InternalError(
        f"Something unexpected happened; it is in the server's log as {number}.",
        why="It is a bug, in Interlock or in the program that it serves.",
        fix="Look it up in the log. A request with an idempotency key can be repeated safely.",
    )


def phrase(status: int) -> str:
    """Return the reason phrase of a status."""
    return HTTPStatus(status).phrase
