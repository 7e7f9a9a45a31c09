"""C3: what an error says about the dependency. Whatever may have had an effect must never be called business (G5)."""

import asyncio
import concurrent.futures
import email.message
import http.client
import json
import socket
import sqlite3
import ssl
import subprocess
import sys
import urllib.error

import asyncpg
import botocore.exceptions
import httpx
import psycopg
import pytest
import requests
import sqlalchemy
import sqlalchemy.exc
import urllib3.exceptions
from sqlalchemy.orm.exc import StaleDataError

from interlock import errors
from interlock.engine.dependencies import classify_errors
from interlock.engine.dependencies.classify_errors import CLASSES_MAX, Kind, kind_of
from tests.unit.cli.running import plain_environment

INFRASTRUCTURE, BUSINESS, UNEXPECTED, MISTAKE = Kind


def foreign(module: str, name: str, *bases: type[BaseException]) -> type[BaseException]:
    """A class as a library that is not installed here has it."""
    return type(name, bases or (Exception,), {"__module__": module})


def carrying(error: BaseException, **values: object) -> BaseException:
    for name, value in values.items():
        setattr(error, name, value)
    return error


ClientError = foreign("aiohttp.client_exceptions", "ClientError")
ClientResponseError = foreign("aiohttp.client_exceptions", "ClientResponseError", ClientError)
InvalidURL = foreign("aiohttp.client_exceptions", "InvalidURL", ClientError, ValueError)
InvalidUrlRedirect = foreign("aiohttp.client_exceptions", "InvalidUrlRedirectClientError", InvalidURL)
MySQLError = foreign("pymysql.err", "Error")
MySQLDatabaseError = foreign("pymysql.err", "DatabaseError", MySQLError)
ValidationError = type("ValidationError", (ValueError,), {})
Declined = type("Declined", (errors.NonRetryable,), {})


class Unreadable(Exception):
    """An error whose every attribute is a trap."""

    @property
    def response(self) -> object:
        raise RuntimeError("no response")

    @property
    def sqlstate(self) -> object:
        raise RuntimeError("no state")


def answered(status: int, headers: dict[str, str] | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://gateway.test/charges")
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError("answered", request=request, response=response)


def requests_error(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("answered", response=response)


def urllib_error(status: int, **headers: str) -> urllib.error.HTTPError:
    message = email.message.Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://gateway.test", status, "answered", message, None)


def amazon_error(status: int, code: str) -> botocore.exceptions.ClientError:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
    return botocore.exceptions.ClientError(response, "PutItem")


def wrapped(orig: BaseException, *, disconnected: bool = False) -> BaseException:
    return sqlalchemy.exc.DBAPIError("INSERT", None, orig, connection_invalidated=disconnected)


def unicode_error() -> UnicodeError:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def certificate_error() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, "certificate verify failed")


OWN = [
    (errors.Retryable("busy"), INFRASTRUCTURE),
    (errors.RetryAfter(3), INFRASTRUCTURE),
    (errors.NonRetryable("declined"), BUSINESS),
    (Declined("declined"), BUSINESS),
    (errors.Overloaded(2), INFRASTRUCTURE),
    (errors.OutcomeUnknown("lost"), INFRASTRUCTURE),
    (errors.WaitTimeout("slow"), INFRASTRUCTURE),
    (errors.ConstraintViolation("unique"), BUSINESS),
    (errors.WorkflowNotFound("o-1"), MISTAKE),
    (errors.WorkflowExists("o-1"), MISTAKE),
    (errors.KeyReused("o-1"), MISTAKE),
    (errors.InvalidTransition(machine="order", state="done", event="PAY", allowed=()), MISTAKE),
    (errors.VersionConflict("o-1"), UNEXPECTED),
    (errors.BadUsage("an engine was entered with `with`"), MISTAKE),
    (errors.InvalidPayload("cents"), MISTAKE),
    (errors.UserCodeError("a guard"), MISTAKE),
    (errors.MissingExtra("x", extra="redis"), MISTAKE),
    (errors.InternalError("a bug"), INFRASTRUCTURE),
]
STANDARD = [
    (TimeoutError(), INFRASTRUCTURE),
    (concurrent.futures.CancelledError(), INFRASTRUCTURE),
    (ConnectionRefusedError(), INFRASTRUCTURE),
    (ConnectionResetError(), INFRASTRUCTURE),
    (BrokenPipeError(), INFRASTRUCTURE),
    (OSError("no route to host"), INFRASTRUCTURE),
    (socket.gaierror(-2, "name or service not known"), INFRASTRUCTURE),
    (ssl.SSLError(1, "handshake"), INFRASTRUCTURE),
    (certificate_error(), INFRASTRUCTURE),
    (asyncio.IncompleteReadError(b"", 4), INFRASTRUCTURE),
    (asyncio.LimitOverrunError("long", 4), INFRASTRUCTURE),
    (asyncio.CancelledError(), INFRASTRUCTURE),
    (EOFError(), INFRASTRUCTURE),
    (FileNotFoundError(), UNEXPECTED),
    (PermissionError(), UNEXPECTED),
    (IsADirectoryError(), UNEXPECTED),
    (NotADirectoryError(), UNEXPECTED),
    (TypeError(), MISTAKE),
    (AttributeError(), MISTAKE),
    (NameError(), MISTAKE),
    (UnboundLocalError(), MISTAKE),
    (AssertionError(), MISTAKE),
    (LookupError(), MISTAKE),
    (KeyError("x"), MISTAKE),
    (IndexError(), MISTAKE),
    (ZeroDivisionError(), MISTAKE),
    (NotImplementedError(), MISTAKE),
    (RecursionError(), MISTAKE),
    (ImportError(), MISTAKE),
    (ModuleNotFoundError(), MISTAKE),
    (ValueError(), MISTAKE),
    (ValidationError(), MISTAKE),
    (unicode_error(), UNEXPECTED),
    (json.JSONDecodeError("not JSON", "<html>", 0), UNEXPECTED),
    (KeyboardInterrupt(), UNEXPECTED),
    (SystemExit(1), UNEXPECTED),
    (Exception("who knows"), INFRASTRUCTURE),
    (RuntimeError("who knows"), INFRASTRUCTURE),
    (foreign("shop.gateway", "GatewayError")("who knows"), INFRASTRUCTURE),
    (Unreadable("who knows"), INFRASTRUCTURE),
]
CLIENTS = [
    (httpx.ConnectError("refused"), INFRASTRUCTURE),
    (httpx.ConnectTimeout("slow"), INFRASTRUCTURE),
    (httpx.ReadTimeout("slow"), INFRASTRUCTURE),
    (httpx.PoolTimeout("slow"), INFRASTRUCTURE),
    (httpx.RemoteProtocolError("cut"), INFRASTRUCTURE),
    (httpx.DecodingError("garbage"), INFRASTRUCTURE),
    (httpx.InvalidURL("no host"), BUSINESS),
    (httpx.UnsupportedProtocol("ftp"), BUSINESS),
    (httpx.TooManyRedirects("round and round"), UNEXPECTED),
    (httpx.ResponseNotRead(), UNEXPECTED),
    (ClientError("cut"), INFRASTRUCTURE),
    (carrying(ClientResponseError(), status=503, headers=None), INFRASTRUCTURE),
    (carrying(ClientResponseError(), status=404, headers=None), BUSINESS),
    (carrying(ClientResponseError(), status=200, headers=None), UNEXPECTED),
    (carrying(ClientResponseError(), status=0, headers=None), INFRASTRUCTURE),
    (InvalidURL("no host"), BUSINESS),
    (InvalidUrlRedirect("no host"), UNEXPECTED),
    (requests.ConnectionError("refused"), INFRASTRUCTURE),
    (requests.ReadTimeout("slow"), INFRASTRUCTURE),
    (requests.exceptions.SSLError("handshake"), INFRASTRUCTURE),
    (requests_error(502), INFRASTRUCTURE),
    (requests_error(402), BUSINESS),
    (requests.HTTPError("without its answer"), INFRASTRUCTURE),
    (requests.exceptions.MissingSchema("no scheme"), BUSINESS),
    (requests.TooManyRedirects("round and round"), UNEXPECTED),
    (requests.exceptions.JSONDecodeError("not JSON", "<html>", 0), UNEXPECTED),
    (urllib3.exceptions.ProtocolError("cut"), INFRASTRUCTURE),
    (urllib3.exceptions.LocationParseError("no host"), BUSINESS),
    (urllib.error.URLError("refused"), INFRASTRUCTURE),
    (urllib_error(500), INFRASTRUCTURE),
    (urllib_error(422), BUSINESS),
    (http.client.BadStatusLine("x"), INFRASTRUCTURE),
    (http.client.InvalidURL("no host"), BUSINESS),
    (botocore.exceptions.EndpointConnectionError(endpoint_url="x"), INFRASTRUCTURE),
    (botocore.exceptions.ReadTimeoutError(endpoint_url="x"), INFRASTRUCTURE),
    (botocore.exceptions.ParamValidationError(report="x"), BUSINESS),
    (amazon_error(500, "InternalError"), INFRASTRUCTURE),
    (amazon_error(400, "ThrottlingException"), INFRASTRUCTURE),
    (amazon_error(400, "ConditionalCheckFailedException"), BUSINESS),
    (amazon_error(403, "AccessDenied"), BUSINESS),
    (botocore.exceptions.ClientError({}, "PutItem"), INFRASTRUCTURE),
    (carrying(foreign("stripe", "CardError")("declined"), http_status=402), BUSINESS),
    (carrying(foreign("stripe", "APIConnectionError")("cut"), http_status=None), INFRASTRUCTURE),
    (carrying(foreign("openai", "APIStatusError")("busy"), status_code=529), INFRASTRUCTURE),
]
DATABASES = [
    (asyncpg.UniqueViolationError("orders_pkey"), BUSINESS),
    (asyncpg.ForeignKeyViolationError("x"), BUSINESS),
    (asyncpg.NumericValueOutOfRangeError("x"), BUSINESS),
    (asyncpg.InvalidPasswordError("x"), BUSINESS),
    (asyncpg.UndefinedTableError("x"), MISTAKE),
    (asyncpg.InvalidSQLStatementNameError("a pooler has lost it"), UNEXPECTED),
    (asyncpg.InsufficientPrivilegeError("x"), BUSINESS),
    (asyncpg.ConnectionDoesNotExistError("x"), INFRASTRUCTURE),
    (asyncpg.SerializationError("x"), INFRASTRUCTURE),
    (asyncpg.DeadlockDetectedError("x"), INFRASTRUCTURE),
    (asyncpg.TooManyConnectionsError("x"), INFRASTRUCTURE),
    (asyncpg.LockNotAvailableError("x"), INFRASTRUCTURE),
    (asyncpg.AdminShutdownError("x"), INFRASTRUCTURE),
    (asyncpg.ReadOnlySQLTransactionError("a standby now"), INFRASTRUCTURE),
    (asyncpg.InternalServerError("x"), INFRASTRUCTURE),
    (asyncpg.RaiseError("a function of the database says so"), UNEXPECTED),
    (asyncpg.FeatureNotSupportedError("x"), MISTAKE),
    (asyncpg.InterfaceError("connection is closed"), INFRASTRUCTURE),
    (asyncpg.exceptions._base.DataError("an argument that cannot be sent"), MISTAKE),
    (asyncpg.PostgresError("without a state"), INFRASTRUCTURE),
    (psycopg.errors.UniqueViolation("x"), BUSINESS),
    (psycopg.errors.SerializationFailure("x"), INFRASTRUCTURE),
    (psycopg.errors.QueryCanceled("x"), INFRASTRUCTURE),
    (psycopg.OperationalError("the connection is lost"), INFRASTRUCTURE),
    (psycopg.InterfaceError("the connection is closed"), INFRASTRUCTURE),
    (psycopg.IntegrityError("x"), BUSINESS),
    (psycopg.ProgrammingError("1 placeholder and 2 parameters"), MISTAKE),
    (carrying(foreign("psycopg2", "Error")("x"), pgcode="23505"), BUSINESS),
    (foreign("pymysql.err", "IntegrityError", MySQLDatabaseError)(1062, "duplicate"), BUSINESS),
    (foreign("pymysql.err", "OperationalError", MySQLDatabaseError)(2006, "gone away"), INFRASTRUCTURE),
    (carrying(foreign("mysql", "DatabaseError", MySQLError)(), sqlstate="HY000"), INFRASTRUCTURE),
    (sqlite3.OperationalError("database is locked"), INFRASTRUCTURE),
    (sqlite3.IntegrityError("UNIQUE constraint failed"), BUSINESS),
    (sqlite3.ProgrammingError("Cannot operate on a closed database."), MISTAKE),
    (sqlite3.DatabaseError("malformed"), INFRASTRUCTURE),
    (wrapped(asyncpg.UniqueViolationError("x")), BUSINESS),
    (wrapped(asyncpg.UniqueViolationError("x"), disconnected=True), INFRASTRUCTURE),
    (wrapped(psycopg.OperationalError("x")), INFRASTRUCTURE),
    (sqlalchemy.exc.StatementError("x", None, None, ValueError("a bind")), MISTAKE),
    (sqlalchemy.exc.StatementError("x", None, None, None), UNEXPECTED),
    (sqlalchemy.exc.StatementError("x", None, None, wrapped(TypeError())), UNEXPECTED),
    (sqlalchemy.exc.TimeoutError("the pool"), INFRASTRUCTURE),
    (sqlalchemy.exc.NoResultFound(), UNEXPECTED),
    (StaleDataError("another was faster"), UNEXPECTED),
]


@pytest.mark.parametrize(
    ("error", "kind"),
    [*OWN, *STANDARD, *CLIENTS, *DATABASES],
    ids=lambda each: each.value if isinstance(each, Kind) else f"{type(each).__module__}.{type(each).__name__}",
)
def test_every_error_is_of_its_kind(error: BaseException, kind: Kind) -> None:
    assert kind_of(error)[0] is kind
    assert kind_of(error)[0] is kind, "and the same when its class is remembered"


@pytest.mark.parametrize("status", range(100, 600))
def test_a_status_of_http_is_a_refusal_only_where_nothing_can_have_happened(status: int) -> None:
    expected = BUSINESS if 400 <= status < 500 else UNEXPECTED
    if status in {408, 425, 429} or status >= 500:
        expected = INFRASTRUCTURE
    assert kind_of(answered(status))[0] is expected


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        *((state, INFRASTRUCTURE) for state in ("08006", "40001", "53300", "55P03", "57P01", "58030", "XX000")),
        *((state, BUSINESS) for state in ("22003", "23505", "28P01", "42501")),
        *((state, MISTAKE) for state in ("0A000", "42P01", "42703", "42601")),
        *((state, INFRASTRUCTURE) for state in ("99999", "", "2", "x")),
    ],
)
def test_a_sqlstate_decides_where_there_is_one(state: str, kind: Kind) -> None:
    assert kind_of(carrying(foreign("driver", "Error")(), sqlstate=state))[0] is kind


@pytest.mark.parametrize(
    ("error", "asked_s"),
    [
        (errors.RetryAfter(2.5), 2.5),
        (errors.Overloaded(4), 4),
        (errors.Retryable("busy"), None),
        (answered(429, {"Retry-After": "120"}), 120),
        (answered(503, {"retry-after": " 7 "}), 7),
        (answered(503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
        (answered(429, {"Retry-After": "1.5"}), None),
        (answered(429, {"Retry-After": "-3"}), None),
        (answered(429, {"Retry-After": ""}), None),
        (answered(429), None),
        (answered(500, {"Retry-After": "120"}), None),
        (answered(404, {"Retry-After": "120"}), None),
        (urllib_error(503, Retry_After="9"), 9),
        (carrying(ClientResponseError(), status=429, headers={"Retry-After": "6"}), 6),
        (carrying(foreign("stripe", "RateLimitError")(), http_status=429, headers={"Retry-After": "5"}), 5),
        (ExceptionGroup("", [errors.RetryAfter(2), answered(429, {"Retry-After": "3"}), OSError()]), 3),
    ],
    ids=repr,
)
def test_the_wait_that_was_asked_for_is_read(error: BaseException, asked_s: float | None) -> None:
    assert kind_of(error) == (INFRASTRUCTURE if asked_s is not None else kind_of(error)[0], asked_s)


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ([errors.NonRetryable("x"), answered(404)], BUSINESS),
        ([errors.NonRetryable("x"), ValueError()], MISTAKE),
        ([errors.NonRetryable("x"), MemoryError()], UNEXPECTED),
        ([MemoryError(), ValueError()], MISTAKE),
        ([errors.NonRetryable("x"), ValueError(), OSError()], INFRASTRUCTURE),
        ([ValueError(), ExceptionGroup("", [TypeError(), ExceptionGroup("", [OSError()])])], INFRASTRUCTURE),
        ([ExceptionGroup("", [errors.NonRetryable("x")]), answered(422)], BUSINESS),
        ([asyncio.CancelledError(), errors.NonRetryable("x")], INFRASTRUCTURE),
    ],
)
def test_a_group_is_a_refusal_only_if_all_of_it_is(members: list[BaseException], kind: Kind) -> None:
    assert kind_of(BaseExceptionGroup("several", members))[0] is kind


def test_a_group_nested_deeper_than_the_stack_is_read() -> None:
    group: BaseException = errors.NonRetryable("x")
    for _ in range(5_000):
        group = BaseExceptionGroup("", [group])
    assert kind_of(group)[0] is BUSINESS


def test_nothing_is_loaded_that_the_user_has_not() -> None:
    program = (
        "import sys; from interlock.engine.dependencies.classify_errors import kind_of;"
        "kind_of(ValueError()); kind_of(Exception());"
        "print({'httpx', 'requests', 'aiohttp', 'asyncpg', 'psycopg', 'sqlalchemy', 'botocore'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_classes_that_are_made_at_run_time_do_not_fill_the_memory() -> None:
    for number in range(CLASSES_MAX + 10):
        assert kind_of(type(f"Error{number}", (KeyError,), {})())[0] is MISTAKE
    assert len(classify_errors._remembered) <= CLASSES_MAX
