"""Problem documents (RFC 9457) as Interlock's errors: the classes that the engine itself raises, by their code.

A problem's `code` is that of the error, its `what` says what happened, its `detail` adds why, and its `fix` is the
remedy. An older server has no `what`: its `title` says what happened, and its `detail` only why. Further facts of an
error (the state, the allowed events, a time to wait) are members with the names of its attributes. An error that
crosses the wire has the same class and text on the other side.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import cast

import msgspec

from interlock.access import NotAuthenticated, NotPermitted
from interlock.errors import (
    DefinitionError,
    GuardRejected,
    InterlockError,
    InternalError,
    LeaseHeld,
    MissingExtra,
    MovedElsewhere,
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

SERVER_ERRORS = 500


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
    return InternalError if status >= SERVER_ERRORS else RequestError


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
