"""No secret is written down: neither in a catalog nor in a tombstone. Whoever opens a place brings it along."""

import pytest

from interlock.urls import redact_secrets, with_secrets, without_secrets

STRIPPED = [
    ("postgresql://u:p%40w@host:5432/shop?schema=stock", "postgresql://u@host:5432/shop?schema=stock"),
    ("postgresql://u@host/shop?password=pw&schema=a", "postgresql://u@host/shop?schema=a"),
    ("postgresql://host/shop?sslpassword=pw", "postgresql://host/shop"),
    ("postgresql://u:@/shop?host=/run/pg&schema=a", "postgresql://u:@/shop?host=/run/pg&schema=a"),
    ("postgresql://u:p@[::1]:5432/shop", "postgresql://u@[::1]:5432/shop"),
    (
        "s3://b/shop?access_key_id=AK&secret_access_key=SK&session_token=T&region=eu",
        "s3://b/shop?access_key_id=AK&region=eu",
    ),
    ("az://c/shop?account=a&access_key=K&sas=S", "az://c/shop?account=a"),
    ("lanes:///var/shop/stock", "lanes:///var/shop/stock"),
    ("memory:", "memory:"),
    ("", ""),
]


@pytest.mark.parametrize(("url", "stripped"), STRIPPED)
def test_an_address_at_rest_has_no_secrets(url: str, stripped: str) -> None:
    assert without_secrets(url) == stripped
    assert without_secrets(stripped) == stripped


@pytest.mark.parametrize(("url", "stripped"), STRIPPED)
def test_the_same_server_brings_them_back(url: str, stripped: str) -> None:
    found = with_secrets(stripped, "lanes:///elsewhere", "postgresql://else:where@other/x", url)
    assert without_secrets(found) == stripped
    assert sorted(found) == sorted(url), "everything is there, perhaps in another order"


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("postgresql://u@host/shop", "postgresql://u:pw@other/shop"),
        ("postgresql://u@host/shop", "postgresql://v:pw@host/shop"),
        ("postgresql://u@host:5433/shop", "postgresql://u:pw@host:5432/shop"),
        ("postgresql://u@/shop?host=/a", "postgresql://u:pw@/shop?host=/b"),
        ("s3://b/shop?access_key_id=A", "s3://b/shop?access_key_id=B&secret_access_key=K"),
        ("s3://b/shop?endpoint=http://x", "s3://b/shop?endpoint=http://y&secret_access_key=K"),
        ("gs://b/shop", "s3://b/shop?secret_access_key=K"),
    ],
)
def test_nobody_is_told_the_secret_of_somebody_else(url: str, known: str) -> None:
    assert with_secrets(url, known) == url


def test_what_has_a_secret_of_its_own_keeps_it() -> None:
    url = "postgresql://u:mine@host/shop"
    assert with_secrets(url, "postgresql://u:theirs@host/shop") == url


def test_another_database_of_the_same_server_has_the_same_password() -> None:
    assert (
        with_secrets("postgresql://u@host/b?schema=x", "postgres://u:pw@host/a") == "postgresql://u:pw@host/b?schema=x"
    )


def test_every_kind_of_address_is_shown_without_its_secrets() -> None:
    assert redact_secrets("postgresql://u:pw@host/shop?schema=a") == "postgresql://u:***@host/shop?schema=a"
    assert redact_secrets("s3://b/shop?secret_access_key=K") == "s3://b/shop?secret_access_key=***"
