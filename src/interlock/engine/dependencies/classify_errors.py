"""Classification of a step's errors, where the step has no classifier of its own (C3).

Only failures of the dependency trip its breaker. Only failures that may pass are retried. Only calls known to have had
no effect are not undone. Four kinds keep these apart. A mistake of the program is not retried and never moves a
workflow to `failed=` (C18): it is a dead letter until the program is fixed. Whether it had an effect is unknown, so it
is undone like a failure of the network.

Libraries are recognised by the names of their classes and the attributes of their errors: an HTTP status, an SQLSTATE.
Nothing is imported, so packages that are not installed are not needed. In doubt, the outcome is unknown.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import cast


class Kind(Enum):
    """The kind of an error: retried or not, counted by the breaker or not, with or without a possible effect."""

    INFRASTRUCTURE = "infrastructure"
    """The dependency failed, or may have: retried, counted by its breaker, may have had an effect."""
    BUSINESS = "business"
    """The dependency refused: not retried, not counted, known to have had no effect."""
    UNEXPECTED = "unexpected"
    """The answer or the address is wrong, perhaps for a while: retried, not counted, may have had an effect."""
    MISTAKE = "mistake"
    """The program is wrong: not retried, not counted, may have had an effect."""

    @property
    def is_operators(self) -> bool:
        """Whether giving up is a dead letter for an operator, and never the step's `failed=` (C18)."""
        return self is Kind.UNEXPECTED or self is Kind.MISTAKE


Verdict = tuple[Kind, float | None]
"""The kind, and the seconds of the dependency's Retry-After."""

_Reader = Callable[[BaseException], Verdict]

_INFRASTRUCTURE: Verdict = (Kind.INFRASTRUCTURE, None)
_BUSINESS: Verdict = (Kind.BUSINESS, None)
_UNEXPECTED: Verdict = (Kind.UNEXPECTED, None)
_MISTAKE: Verdict = (Kind.MISTAKE, None)

CLASSES_MAX = 1_024
"""The number of error classes whose rule is cached. More classes at run time clear the cache."""

RETRIED_STATUSES = frozenset({408, 425, 429})
"""HTTP statuses below 500 that are temporary; all others from 400 to 499 are refusals."""

ASKING_STATUSES = frozenset({429, 503})
"""Statuses whose Retry-After is used."""

SQLSTATES: dict[str, Kind] = {
    # The connection, the server or a conflicting transaction. 25 is also the answer of a server that became a standby.
    **dict.fromkeys(("08", "25", "40", "53", "55", "57", "58", "72", "F0", "XX"), Kind.INFRASTRUCTURE),
    # Data, constraints, rights and statements: the statement was refused, and nothing of its transaction remains.
    **dict.fromkeys(("22", "23", "28", "42501", "44"), Kind.BUSINESS),
    # The program is wrong: an invalid statement, a table or column that does not exist.
    **dict.fromkeys(("0A", "21", "24", "2B", "2D", "34", "3B", "3F", "42", "54"), Kind.MISTAKE),
    # A pooler has lost a prepared statement (26), a database is not there (3D), a function of it has raised (P0).
    **dict.fromkeys(("26", "3D", "P0"), Kind.UNEXPECTED),
}
"""Kinds by all five characters of an SQLSTATE or the first two; for others the class of the error decides."""

_DATABASE_CLASSES: dict[str, Verdict] = {
    "IntegrityError": _BUSINESS,
    "DataError": _BUSINESS,
    "ProgrammingError": _MISTAKE,
    "NotSupportedError": _MISTAKE,
    "DatabaseError": _INFRASTRUCTURE,
}
"""The names that PEP 249 gives to the errors of every driver, for errors without an SQLSTATE."""

_IN_GROUPS = (Kind.INFRASTRUCTURE, Kind.MISTAKE, Kind.UNEXPECTED, Kind.BUSINESS)
"""The kind of a group: the first of these that one of its members has."""

_SQLITE_ERROR = 1
"""The code of a statement that SQLite cannot compile: wrong syntax, no such table."""

_THROTTLED = ("Throttl", "LimitExceeded", "ThroughputExceeded", "SlowDown", "TooManyRequests", "RequestTimeout")
"""Parts of the codes of temporary errors of Amazon services with status 400."""


def kind_of(error: BaseException) -> Verdict:
    """Return the kind of an error, and the seconds of the dependency's Retry-After. Never raises."""
    rule = _remembered.get(type(error)) or _rule_of(type(error))
    return rule(error) if callable(rule) else rule


def _rule_of(cls: type[BaseException]) -> Verdict | _Reader:
    """Return the rule of the nearest base class that has one; unexpected without one, as for SystemExit."""
    if len(_remembered) >= CLASSES_MAX:
        _remembered.clear()
    rule = next((_RULES[name] for name in map(_name, cls.__mro__) if name in _RULES), _UNEXPECTED)
    _remembered[cls] = rule
    return rule


def _name(cls: type) -> tuple[str, str]:
    return str(cls.__module__).partition(".")[0], cls.__name__


def _of_group(error: BaseException) -> Verdict:
    """Classify an exception group by its most severe member (`_IN_GROUPS`), with the longest Retry-After."""
    found: set[Kind] = set()
    delays_s: list[float] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions
            continue
        kind, seconds = kind_of(each)
        found.add(kind)
        delays_s += () if seconds is None else (seconds,)
    kind = next(each for each in _IN_GROUPS if each in found)
    return kind, max(delays_s, default=None)


def _of_retry_after(error: BaseException) -> Verdict:
    return Kind.INFRASTRUCTURE, _number(_read(error, "seconds"))


def _of_overloaded(error: BaseException) -> Verdict:
    return Kind.INFRASTRUCTURE, _number(_read(error, "retry_after_s"))


def _of_wrapper(error: BaseException) -> Verdict:
    """Classify an error of SQLAlchemy by the wrapped error of the driver or of the statement's preparation."""
    if _read(error, "connection_invalidated") is True:
        return _INFRASTRUCTURE
    wrapped = _read(error, "orig")
    if isinstance(wrapped, BaseException) and _rule_of(type(wrapped)) is not _of_wrapper:
        return kind_of(wrapped)
    return _UNEXPECTED


def _of_sqlite(error: BaseException) -> Verdict:
    code = _read(error, "sqlite_errorcode")
    return _MISTAKE if code == _SQLITE_ERROR else _INFRASTRUCTURE


def _of_client_response(error: BaseException) -> Verdict:
    """Classify an error of aiohttp by its `status`."""
    return _of_status(_read(error, "status"), _read(error, "headers")) or _INFRASTRUCTURE


def _of_http_error(error: BaseException) -> Verdict:
    """Classify an error of urllib by its `code`."""
    return _of_status(_read(error, "code"), _read(error, "headers")) or _INFRASTRUCTURE


def _of_any(error: BaseException) -> Verdict:
    """Classify an error of an unknown class by its attributes; without any, as infrastructure."""
    return _of_sqlstate(error) or _of_answer(error) or _of_database_class(type(error)) or _INFRASTRUCTURE


def _of_sqlstate(error: BaseException) -> Verdict | None:
    for name in ("sqlstate", "pgcode"):
        state = _read(error, name)
        if isinstance(state, str) and (kind := SQLSTATES.get(state, SQLSTATES.get(state[:2]))) is not None:
            return kind, None
    return None


def _of_answer(error: BaseException) -> Verdict | None:
    """Classify by the status of the error's HTTP response, if it has one."""
    response = _read(error, "response")
    if isinstance(response, dict):
        return _of_amazon(cast("dict[object, object]", response))
    own = _read(error, "headers")
    return (
        _of_status(_read(response, "status_code"), _read(response, "headers"))
        or _of_status(_read(error, "status_code"), own)
        or _of_status(_read(error, "http_status"), own)
    )


def _of_amazon(response: dict[object, object]) -> Verdict | None:
    code, answered = _item(response.get("Error"), "Code"), response.get("ResponseMetadata")
    verdict = _of_status(_item(answered, "HTTPStatusCode"), _item(answered, "HTTPHeaders"))
    if isinstance(code, str) and any(part in code for part in _THROTTLED):
        return Kind.INFRASTRUCTURE, verdict and verdict[1]
    return verdict


def _of_status(status: object, headers: object) -> Verdict | None:
    if not isinstance(status, int) or not 100 <= status <= 599:  # noqa: PLR2004 -- what HTTP calls a status.
        return None
    if status >= 500 or status in RETRIED_STATUSES:  # noqa: PLR2004 -- an error of the server.
        return Kind.INFRASTRUCTURE, _retry_after(headers) if status in ASKING_STATUSES else None
    # A status below 400 does not refuse: a redirect, or an unreadable answer, may come after the effect.
    return _BUSINESS if status >= 400 else _UNEXPECTED  # noqa: PLR2004 -- an error of the caller.


def _of_database_class(cls: type[BaseException]) -> Verdict | None:
    names = [each.__name__ for each in cls.__mro__]
    if "DatabaseError" not in names or "Error" not in names:
        return None
    return next(filter(None, map(_DATABASE_CLASSES.get, names)))


def _retry_after(headers: object) -> float | None:
    """Return the seconds of a Retry-After; a date is ignored, because the two clocks need not agree."""
    for name in ("retry-after", "Retry-After"):
        value = _item(headers, name)
        if isinstance(value, str) and value.isascii() and value.strip().isdigit():
            return float(value)
    return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _read(thing: object, name: str) -> object:
    """Read an attribute of a foreign object, which may be a property that raises."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 -- an unreadable attribute decides nothing.
        return None


def _item(thing: object, name: str) -> object:
    """Read a value of a foreign mapping."""
    get = _read(thing, "get")
    if not callable(get):
        return None
    try:
        return get(name)
    except Exception:  # noqa: BLE001 -- as above.
        return None


def _rules(package: str, rule: Verdict | _Reader, names: str) -> Iterable[tuple[tuple[str, str], Verdict | _Reader]]:
    return (((package, name), rule) for name in names.split())


_RULES: dict[tuple[str, str], Verdict | _Reader] = dict(
    [
        *_rules("builtins", _of_any, "Exception"),
        *_rules("builtins", _of_group, "BaseExceptionGroup"),
        *_rules("builtins", _INFRASTRUCTURE, "OSError ConnectionError TimeoutError EOFError"),
        *_rules("builtins", _UNEXPECTED, "FileNotFoundError FileExistsError PermissionError"),
        *_rules("builtins", _UNEXPECTED, "IsADirectoryError NotADirectoryError"),
        *_rules("builtins", _MISTAKE, "TypeError AttributeError NameError AssertionError LookupError ValueError"),
        *_rules("builtins", _MISTAKE, "ArithmeticError NotImplementedError RecursionError ImportError"),
        *_rules("builtins", _MISTAKE, "SyntaxError BufferError"),
        # Subclasses of ValueError, but a failing gateway may send undecodable answers.
        *_rules("builtins", _UNEXPECTED, "MemoryError UnicodeError"),
        *_rules("json", _UNEXPECTED, "JSONDecodeError"),
        *_rules("asyncio", _INFRASTRUCTURE, "CancelledError IncompleteReadError LimitOverrunError"),
        *_rules("ssl", _INFRASTRUCTURE, "SSLError"),
        *_rules("interlock", _INFRASTRUCTURE, "Retryable UnavailableError WaitTimeout"),
        *_rules("interlock", _of_retry_after, "RetryAfter"),
        *_rules("interlock", _of_overloaded, "Overloaded"),
        *_rules("interlock", _BUSINESS, "NonRetryable ConstraintViolation"),
        *_rules("interlock", _UNEXPECTED, "RequestError"),
        # Another workflow refuses what the step sends or starts: a person decides, and retries would take minutes.
        *_rules("interlock", _MISTAKE, "Refusal WorkflowNotFound WorkflowExists KeyReused PayloadTooLarge"),
        *_rules("interlock", _MISTAKE, "DefinitionError UserCodeError InvalidPayload BadUsage DialectError"),
        *_rules("httpx", _BUSINESS, "InvalidURL UnsupportedProtocol"),
        # A redirect may come after the effect (an accepted form redirects its reader), so the outcome is unknown.
        *_rules("httpx", _UNEXPECTED, "TooManyRedirects StreamError CookieConflict"),
        *_rules("httpcore", _BUSINESS, "UnsupportedProtocol"),
        *_rules("aiohttp", _INFRASTRUCTURE, "ClientError"),
        *_rules("aiohttp", _of_client_response, "ClientResponseError"),
        *_rules("aiohttp", _BUSINESS, "InvalidURL NonHttpUrlClientError"),
        *_rules("aiohttp", _UNEXPECTED, "InvalidUrlRedirectClientError NonHttpUrlRedirectClientError"),
        *_rules("requests", _of_any, "HTTPError"),
        *_rules("requests", _BUSINESS, "InvalidURL InvalidSchema MissingSchema InvalidHeader URLRequired"),
        *_rules("requests", _UNEXPECTED, "TooManyRedirects InvalidJSONError StreamConsumedError UnrewindableBodyError"),
        *_rules("urllib3", _BUSINESS, "LocationValueError"),
        *_rules("urllib", _of_http_error, "HTTPError"),
        *_rules("http", _BUSINESS, "InvalidURL"),
        *_rules("botocore", _BUSINESS, "ParamValidationError"),
        *_rules("sqlalchemy", _UNEXPECTED, "SQLAlchemyError"),
        *_rules("sqlalchemy", _of_wrapper, "StatementError"),
        *_rules("sqlalchemy", _INFRASTRUCTURE, "TimeoutError DisconnectionError"),
        *_rules("sqlite3", _of_sqlite, "OperationalError"),
    ]
)

_remembered: dict[type[BaseException], Verdict | _Reader] = {}
