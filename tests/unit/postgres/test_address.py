"""Addresses of PostgreSQL: what is ours is taken out, what nobody reads is refused, and no secret is shown."""

import pytest

from interlock.errors import BadUsage
from interlock.urls import CONNECTIONS_MAX, is_postgres_url, parse_postgres_url, redact_postgres_url


def test_an_address_without_options_has_the_defaults() -> None:
    address = parse_postgres_url("postgresql://shop@db.internal:5432/shop")
    assert address.url == address.redacted_url == "postgresql://shop@db.internal:5432/shop"
    assert (address.schema, address.pgbouncer, address.connections_max) == ("interlock", False, CONNECTIONS_MAX)


def test_our_options_are_read_and_the_others_are_the_driver_s() -> None:
    """C15, C16: a socket's folder, a schema, a pooler, a cap."""
    address = parse_postgres_url(
        "postgresql://user:@/shop?host=/run/sockets&schema=stock&pgbouncer=true&connections_max=7"
        "&statement_timeout_s=2.5&sslmode=disable"
    )
    assert address.url == "postgresql://user:@/shop?host=/run/sockets&sslmode=disable"
    assert (address.schema, address.pgbouncer, address.connections_max) == ("stock", True, 7)
    assert address.statement_timeout_s == 2.5


WRONG = [
    ("postgresql://h/d?schema=Stock", "schema 'Stock'"),
    ("postgresql://h/d?schema=", "schema ''"),
    ("postgresql://h/d?schema=a;drop", "schema 'a;drop'"),
    ("postgresql://h/d?schema=pg_mine", "schema 'pg_mine'"),
    (f"postgresql://h/d?schema={'s' * 64}", "names a schema"),
    ("postgresql://h/d?shema=stock", "Did you mean schema?"),
    ("postgresql://h/d?pgbouncer=maybe", "pgbouncer='maybe'"),
    ("postgresql://h/d?connections_max=0", "connections_max='0'"),
    ("postgresql://h/d?connections_max=1.5", "connections_max='1.5'"),
    ("postgresql://h/d?statement_timeout_s=-1", "statement_timeout_s='-1'"),
    ("postgresql://h/d#x", "has a #"),
    ("mysql://h/d", "does not begin with postgresql://"),
    ("postgresql://[::1/d", "cannot be read"),
]


@pytest.mark.parametrize(("url", "told"), WRONG)
def test_what_cannot_be_meant_is_refused_with_the_reason(url: str, told: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_postgres_url(url)
    assert told in f"{caught.value.what} {caught.value.fix}"
    assert caught.value.fix


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:secret@host/shop",
        "postgresql://user:sec@ret@host/shop",
        "postgresql://host/shop?password=secret&schema=x",
        "postgresql://host/shop?pasword=secret",
        "postgresql://user:secret@host/shop#secret",
        "postgresql://user:secret@host/shop?schema=Secret",
    ],
)
def test_no_secret_is_shown(url: str) -> None:
    """Also not a misspelt one, and not in an error."""
    shown = redact_postgres_url(url.replace("Secret", "x"))
    assert "secret" not in shown
    assert "ret@" not in shown
    if "pasword" in url or "#" in url:
        with pytest.raises(BadUsage) as caught:
            parse_postgres_url(url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "answer"),
    [("postgresql://h/d", True), ("postgres:///d", True), ("postgresql:", False), ("lanes:///x", False), ("", False)],
)
def test_the_scheme_tells_what_it_is(url: str, answer: bool) -> None:
    assert is_postgres_url(url) is answer
