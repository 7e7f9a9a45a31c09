"""Every exception of Interlock, in one tree.

    InterlockError
    ├── DefinitionError            the machine is wrong: fix the code
    ├── MissingExtra               an optional dependency is not installed (an ImportError too)
    ├── RequestError               the caller's request is wrong, or comes too late
    │   ├── Refusal                the machine says no; nothing was changed
    │   │   ├── InvalidTransition      no transition for this event from this state
    │   │   └── GuardRejected          there is one, its guard said no
    │   ├── InvalidPayload         unknown state, event or field; wrong type; NaN; nested too deeply
    │   ├── PayloadTooLarge        a context or payload over its limit
    │   ├── LimitReached           another named bound of one workflow
    │   ├── WorkflowNotFound · WorkflowExists · VersionConflict · KeyReused
    │   ├── TaskClaimed            another person has claimed the task
    │   ├── WaitFailed · WaitTimeout
    │   ├── TargetNotFound · BadUsage · UnusableFile      what is named from outside
    │   ├── NotAuthenticated · NotPermitted               a server's API keys say no
    │   ├── DialectError           SQL outside the documented subset
    │   └── TransactionError       a transaction that did not commit
    │       └── ConstraintViolation
    ├── StepError                  user code, or a service that it calls
    │   ├── Retryable                  may work next time; may have happened
    │   │   └── RetryAfter             … not before `seconds` have passed
    │   ├── NonRetryable               will not work next time; is known not to have happened
    │   └── UserCodeError              a guard or action raised, or returned another type
    ├── UnavailableError           not now, or not here
    │   ├── Overloaded · OutcomeUnknown · LaneOwned · LeaseHeld · Fenced · MovedElsewhere · MachineMismatch
    ├── CorruptionError            stored bytes contradict themselves: stop and look
    └── InternalError              a bug in Interlock

Each class has a stable `code`, a `retry` advice ("never", "now", "later") and a text in three parts: *what*
happened, *why*, and how to *fix* it. A new class exists only where the reader would act differently.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Literal

RetryAdvice = Literal["never", "now", "later"]


class InterlockError(Exception):
    """The root of the tree: what happened, why, and how to fix it."""

    code: ClassVar[str] = "interlock"
    retry: ClassVar[RetryAdvice] = "never"
    default_why: ClassVar[str] = "Interlock could not do what was asked."
    default_fix: ClassVar[str] = "Read the first line: it names the value that is wrong and the ones that are allowed."

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why or self.default_why
        self.fix = fix or self.default_fix

    def __str__(self) -> str:
        return f"{self.what}\n  why: {self.why}\n  fix: {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses take other arguments than `args` holds, so an error that crosses a process boundary is
        # rebuilt from its attributes instead of its constructor.
        return _revive, (type(self), self.args, dict(self.__dict__))


def _revive(cls: type[InterlockError], args: tuple[object, ...], attributes: dict[str, object]) -> InterlockError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class DefinitionError(InterlockError):
    """A machine, step or setting is declared wrongly. `rule` is the code of the check that found it."""

    code = "definition"
    default_why = "A machine is checked when it is built, so that no workflow ever meets the mistake."
    default_fix = "Correct the declaration that is named."

    def __init__(self, what: str, *, why: str = "", fix: str = "", rule: str = "", location: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.rule, self.location = rule, location

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        rule = f" [{self.rule}]" if self.rule else ""
        return f"{where}{super().__str__().replace(self.what, self.what + rule, 1)}"


class MissingExtra(InterlockError, ImportError):
    """An optional dependency is not installed. The fix is the command that installs it."""

    code = "missing-extra"
    default_why = "It is an optional part of Interlock; the rest works without it."

    def __init__(self, what: str, *, extra: str) -> None:
        self.extra = extra
        # While Interlock is on no package index, only the first command works.
        clone, indexed = f'pip install -e ".[{extra}]"', f'pip install "interlock[{extra}]"'
        super().__init__(what, fix=f"In your clone of Interlock: {clone}. From a package index: {indexed}")


class RequestError(InterlockError):
    """The request cannot be carried out as it stands."""

    code = "request"


class Refusal(RequestError):
    """The machine says no. Nothing was changed and nothing was written but a count."""

    code = "refused"

    def __init__(self, what: str, *, machine: str, state: str, event: str, allowed: Iterable[str], fix: str) -> None:
        self.machine, self.state, self.event, self.allowed = machine, state, event, tuple(allowed)
        super().__init__(what, fix=fix)


@dataclass(frozen=True, slots=True)
class DecidedMove:
    """The move by which a person, or a timer, has decided about a task before."""

    event: str
    by: str | None
    """The actor; None for the machine's own move."""
    at: datetime
    from_state: str
    to_state: str
    version: int

    def __str__(self) -> str:
        who = f"{self.by} decided it with {self.event}" if self.by else f"it was decided with {self.event}"
        return f"{who} at {self.at:%Y-%m-%d %H:%M:%S} UTC, from {self.from_state!r} to {self.to_state!r}"


class InvalidTransition(Refusal):
    """The event has no transition from the current state."""

    code = "invalid-transition"
    decided: DecidedMove | None = None
    """How a task was decided before, where the event is one of its decisions."""
    default_why = "At any moment a workflow is in exactly one state, and only the declared events move it from there."

    def __init__(self, *, machine: str, state: str, event: str, allowed: Sequence[str]) -> None:
        what = f"{machine}: event {event} has no transition from state {state!r}; allowed here: {_listed(allowed)}."
        fix = f"Send one of the allowed events, or declare {event} from {state!r}."
        if not allowed:
            fix = f"Start another workflow if this one has ended, or declare {event} from {state!r}."
        super().__init__(what, machine=machine, state=state, event=event, allowed=allowed, fix=fix)


class GuardRejected(Refusal):
    """The event has a transition from the current state, and its guard said no."""

    code = "guard-rejected"
    default_why = "The guard is a rule of the business: it looked at the context and the event and said no."

    def __init__(
        self, *, machine: str, state: str, event: str, guards: Sequence[tuple[str, str]], allowed: Sequence[str]
    ) -> None:
        self.guards = tuple(name for name, _ in guards)
        self.reasons = tuple(reason for _, reason in guards if reason)
        self.guard = self.guards[0]
        rejections = "; ".join(f"{name} ({reason})" if reason else name for name, reason in guards)
        what = f"{machine}: event {event} in state {state!r} was rejected by guard {rejections}; "
        what += f"events with a transition here: {_listed(allowed)}."
        fix = "Send it when the condition holds, or with a payload that satisfies it."
        super().__init__(what, machine=machine, state=state, event=event, allowed=allowed, fix=fix)


class InvalidPayload(RequestError):
    """An unknown state, event or field, a value of the wrong type, NaN, NUL, or nested too deeply."""

    code = "invalid-payload"
    default_why = "Contexts and payloads are typed values; what does not fit is refused before anything changes."
    default_fix = "Correct the value that is named."


class PayloadTooLarge(RequestError):
    """A context or payload is over its limit."""

    code = "payload-too-large"
    default_why = "Every transition writes the context; a bound keeps all workflows fast."
    default_fix = "Keep large documents elsewhere and put a reference into the context, or raise context_bytes_max."

    def __init__(self, what: str, *, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes
        super().__init__(f"{what} is {size_bytes:,} bytes; the limit is {limit_bytes:,}.")


class LimitReached(RequestError):
    """A named bound of one workflow is reached (G6)."""

    code = "limit-reached"
    default_why = "Everything that can grow has a limit, so that one workflow cannot slow down the others."
    default_fix = "Let the workflow end, or split it."


class WorkflowNotFound(RequestError):
    """There is no workflow of that id."""

    code = "workflow-not-found"
    default_why = "No workflow of that id was ever started here, or it was pruned."
    default_fix = "Check the id, or start the workflow first."


class WorkflowExists(RequestError):
    """The id is taken by a workflow with another machine or other input."""

    code = "workflow-exists"
    default_why = "Starting is idempotent on the id: the same input returns the existing workflow, another is an error."
    default_fix = (
        "Use another id, or start it with the same machine and input. A field that was added to the class of the "
        "context is other input, too."
    )


class VersionConflict(RequestError):
    """The workflow moved on since the version that was expected."""

    code = "version-conflict"
    decided: DecidedMove | None = None
    """How a task was decided since then."""
    retry = "now"
    default_why = "Another transition was committed first."
    default_fix = "Read the workflow again, decide on its current state, and send again."


class TaskClaimed(RequestError):
    """Another person has claimed the task. Names who, and since when."""

    code = "task-claimed"
    retry = "later"
    default_why = "A claim tells the others that a person works on the task, so that no two do the same work."
    default_fix = "Choose another task, or ask the person; an operator can release it with force."

    def __init__(self, what: str, *, by: str, since: datetime) -> None:
        self.by, self.since = by, since
        super().__init__(what)


class KeyReused(RequestError):
    """The delivery key was used before with another payload."""

    code = "key-reused"
    default_why = "A key stands for one delivery; the same key with other content would hide one of the two."
    default_fix = "Use a new key for a new event; repeat a key only with the same event."


class WaitFailed(RequestError):
    """The workflow ended in another final state than those waited for."""

    code = "wait-failed"
    default_why = "The workflow is final and can never reach the state that was waited for."
    default_fix = "Wait for the other final states too, and look at the workflow's history."


class WaitTimeout(RequestError, TimeoutError):
    """The workflow did not reach the state in time. The workflow itself goes on."""

    code = "wait-timeout"
    retry = "later"
    default_why = "The time given to wait is over; the workflow is not affected by that."
    default_fix = "Wait longer, or look at its history and at what it is waiting for (`View.waiting`)."


class TargetNotFound(RequestError):
    """There is no such module, attribute or file."""

    code = "target-not-found"
    default_why = "Modules are looked up from the current directory and the installed packages."
    default_fix = "Check the name, and run the command from the directory that holds the code."


class BadUsage(RequestError):
    """A command, address or setting cannot be meant like this."""

    code = "usage"
    default_why = "It could be meant in more than one way, or in none, and Interlock does not guess."
    default_fix = "Correct the value that is named."


class UnusableFile(RequestError):
    """A file cannot be read or written, or does not hold what it should."""

    code = "unusable-file"
    default_why = "The file system refused."
    default_fix = "Check the path and its permissions."


class NotAuthenticated(RequestError):
    """The request has no API key, or one that is unknown, wrong, revoked or expired (401). Never shows the key."""

    code = "not-authenticated"
    default_why = "This server has API keys, so each request has to show one."
    default_fix = "Send `Authorization: Bearer ilk_…`; `interlock keys create` makes a key."

    def __init__(self, what: str, *, why: str = "", fix: str = "", presented: bool = False) -> None:
        super().__init__(what, why=why, fix=fix)
        self.presented = presented
        """Whether there was a key at all."""


class NotPermitted(RequestError):
    """The key is valid, and its scopes or its limits do not cover the request (403). Nothing was changed."""

    code = "not-permitted"
    default_why = "A key may do what its scopes say, to the machines and ids that it is limited to, and nothing else."
    default_fix = "Use a key that may, or have one made: `interlock keys create --scope …`."


class DialectError(RequestError):
    """The SQL is outside the documented subset."""

    code = "dialect"
    default_why = "A statement either means what it means on PostgreSQL, or is refused."
    default_fix = "Rewrite it within the documented subset."


class TransactionError(RequestError):
    """The transaction did not commit; nothing of it remains."""

    code = "transaction"
    default_why = "A statement failed, so the whole transaction was rolled back."
    default_fix = "Correct the statement; nothing needs to be undone."


class ConstraintViolation(TransactionError):
    """A constraint of the schema refused the transaction."""

    code = "constraint-violation"
    default_why = "The change would break a constraint that the schema declares."
    default_fix = "Change the data that violates the named constraint."


class StepError(InterlockError):
    """User code, or a service that it calls, failed."""

    code = "step"


class Retryable(StepError):
    """Raise it from a step: this attempt failed, another may work, and it may have had an effect."""

    code = "retryable"
    retry: ClassVar[RetryAdvice] = "later"
    default_why = "An infrastructure failure: the network, a timeout, a server error."
    default_fix = "Wait: the step is retried with the same key, until the attempts of its Retry are used up."


class RetryAfter(Retryable):
    """Raise it from a step: retry, but not before `seconds` have passed."""

    code = "retry-after"

    def __init__(self, seconds: float | timedelta, what: str = "") -> None:
        self.seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        super().__init__(what or f"The dependency asked to be left alone for {self.seconds:g} s.")


class NonRetryable(StepError):
    """Raise it from a step: it failed for good, and is known to have had no effect."""

    code = "non-retryable"
    default_why = "A failure that would be the same next time: validation, a decline, missing rights."
    default_fix = "Correct the input or the credentials; the step is not retried and not undone."


class UserCodeError(StepError):
    """A guard or action raised, or returned another type than it must, or a context that cannot be stored."""

    code = "user-code-error"
    default_why = "Guards return a bool and actions return the machine's context; both are pure and may not raise."
    default_fix = "Correct the function; the log has the traceback, with the correlation id. Nothing was changed."

    def __init__(self, what: str, *, why: str = "", fix: str = "", machine: str = "", event: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.machine, self.event = machine, event
        self.correlation_id = ""
        """The id under which the traceback is in the log; empty until it is logged."""


class UnavailableError(InterlockError):
    """Not now, or not here."""

    code = "unavailable"
    retry: ClassVar[RetryAdvice] = "later"


class Overloaded(UnavailableError):
    """The engine admits no more work at the moment."""

    code = "overloaded"
    default_why = "Refusing early keeps the work that was admitted fast."
    default_fix = "Come back after the time that is given."

    def __init__(self, retry_after_s: float, what: str = "") -> None:
        self.retry_after_s = retry_after_s
        super().__init__(what or f"Too much work is waiting; retry in {retry_after_s:g} s.")


class OutcomeUnknown(UnavailableError):
    """Whether the request was carried out cannot be known from here."""

    code = "outcome-unknown"
    retry = "now"
    default_why = "The connection or the disk failed while the commit was on its way."
    default_fix = "Repeat the request with the same key: it is applied at most once."


class LaneOwned(UnavailableError):
    """Another process is the single writer of this lane."""

    code = "lane-owned"
    default_why = "A lane has one writer; two would lose each other's updates."
    default_fix = "Stop the owner that is named, or send the request to it."


class LeaseHeld(UnavailableError, TimeoutError):
    """Another owner held the lease for all the time that was waited. Says who, and since when."""

    code = "lease-held"
    default_why = "A lease has one holder at a time; it ends when it is released, or not renewed in time."
    default_fix = "Wait longer (wait_s), or look at what the holder that is named is doing."

    def __init__(self, what: str, *, lease: str, owner: str, since: datetime) -> None:
        self.lease, self.owner, self.since = lease, owner, since
        super().__init__(what)


class Fenced(UnavailableError):
    """Another owner took this lane or lease over; this one can never acknowledge again."""

    code = "fenced"
    retry = "now"
    default_why = "The lease went to another owner, who has written a fence into the log."
    default_fix = "Open the lane again; the new owner has everything that was acknowledged."


class MovedElsewhere(UnavailableError):
    """The database or the machine's workflows now live at another place."""

    code = "moved-elsewhere"
    retry = "now"
    default_why = "It was routed to another store; the old place is sealed for ever."
    default_fix = "Open it by its name at the home, or at the address that is given."

    def __init__(self, what: str, *, url: str = "", epoch: int = 0) -> None:
        self.url, self.epoch = url, epoch
        super().__init__(what)


class MachineMismatch(UnavailableError):
    """Another version of the machine has stored the workflow, and this process may not decide on it."""

    code = "machine-mismatch"
    default_why = "Deciding on it here could lose or misread what the other version has stored."
    default_fix = "Send the request to a process of that version, or repeat it when the rollout is over."


class CorruptionError(InterlockError):
    """Stored bytes contradict themselves."""

    code = "corruption"
    default_why = "A checksum, a hash chain or an invariant does not hold; going on could spread the damage."
    default_fix = "Stop, keep the files, run `interlock doctor`, and restore if it says so."


class InternalError(InterlockError):
    """A bug in Interlock: an assertion about our own state failed."""

    code = "internal"
    default_why = "Something that cannot happen has happened."
    default_fix = "Please report it with the traceback."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
