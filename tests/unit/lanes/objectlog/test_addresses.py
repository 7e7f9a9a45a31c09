"""A URL names one database in one bucket, mistakes are told apart, and no secret is ever shown."""

import pytest

from interlock.errors import BadUsage
from interlock.urls import (
    BUCKET_OPTIONS,
    BUCKET_SECRETS,
    PATH_BYTES_MAX,
    BucketAddress,
    is_bucket_url,
    parse_bucket_url,
    redact_url,
)


def test_an_address_has_a_bucket_a_folder_and_a_name() -> None:
    address = parse_bucket_url("s3://bucket/shop/eu/stock")
    assert address == BucketAddress("s3", "bucket", "shop/eu", "stock", ())
    assert address.path == "shop/eu/stock"
    assert parse_bucket_url("gs://bucket/stock").path == "stock"
    assert parse_bucket_url("gs://bucket/stock").folder == ""
    assert parse_bucket_url("az://container/a/b/").name == "b"


def test_a_reserved_word_is_free_where_no_database_can_be_above_it() -> None:
    assert parse_bucket_url("s3://bucket/log/stock").path == "log/stock"
    assert parse_bucket_url("s3://bucket/shop/logs").name == "logs"


def test_names_are_decoded_once() -> None:
    assert parse_bucket_url("s3://bucket/a%20b/100%25%2525").path == "a b/100%%25"
    assert parse_bucket_url("s3://bucket/caf%C3%A9").name == parse_bucket_url("s3://bucket/café").name == "café"


def test_options_are_taken_as_they_are() -> None:
    address = parse_bucket_url(
        "s3://bucket/n?endpoint=http://127.0.0.1:9000&region=eu-central-1&access_key_id=AKIA"
        "&secret_access_key=a+b/c%3D&session_token=t&virtual_hosted=false&allow_http=true"
    )
    assert address.option("endpoint") == "http://127.0.0.1:9000"
    assert address.option("secret_access_key") == "a+b/c="
    assert address.switch("virtual_hosted") is False
    assert address.switch("allow_http") is True
    assert parse_bucket_url("s3://bucket/n").switch("allow_http") is None
    assert parse_bucket_url("az://container/n?account=shop&access_key=a%26b").option("access_key") == "a&b"


def test_databases_of_a_folder_share_a_root_and_others_do_not() -> None:
    root = parse_bucket_url("s3://bucket/shop/a?endpoint=http://one&secret_access_key=x").root
    assert root == parse_bucket_url("s3://bucket/shop/b?secret_access_key=y&endpoint=http://one").root
    for other in ("s3://bucket/shop/a", "s3://bucket/shop/b/a?endpoint=http://one", "s3://other/shop/a"):
        assert parse_bucket_url(other).root != root
    assert "x" not in root.partition("?endpoint")[2]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("lanes:///var/shop", "not the address of a database in a bucket"),
        ("s3:bucket/name", "not the address of a database in a bucket"),
        ("s3:///name", "names no bucket"),
        ("s3://?region=x", "names no bucket"),
        ("s3://bucket", "no database"),
        ("s3://bucket/", "no database"),
        ("s3://bucket:9000/name", "does not begin with the name of a bucket"),
        ("s3://b/name", "does not begin with the name of a bucket"),
        ("s3://user:hidden@bucket/name", "credentials in front of the bucket"),
        ("s3://bucket/name#hidden", "has a # in it"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket//b", "empty part"),
        ("s3://bucket/a/../b", "empty part"),
        ("s3://bucket/%2E%2E/b", "empty part"),
        ("s3://bucket/a%00b", "no key can have"),
        ("s3://bucket/a\\b", "no key can have"),
        ("s3://bucket/%ff", "no key can have"),
        ("s3://bucket/log", "has 'log' in its path, where a database keeps its own objects"),
        ("s3://bucket/shop/snapshot", "has 'snapshot' in its path"),
        ("s3://bucket/shop/manifest/", "has 'manifest' in its path"),
        ("s3://bucket/shop/%70robe", "has 'probe' in its path"),
        ("s3://bucket/shop/log/00000000000000000001", "has 'log' in its path"),
        ("s3://bucket/shop/snapshot/eu/stock", "has 'snapshot' in its path"),
        ("s3://bucket/name&secret_access_key=hidden", "an & in its path"),
        (f"s3://bucket/{'x' * (PATH_BYTES_MAX + 1)}", "more than 800 bytes"),
        ("s3://bucket/n?regoin=x", "Did you mean region?"),
        ("s3://bucket/n?secret_acces_key=hidden", "Did you mean secret_access_key?"),
        ("s3://bucket/n?account=x", "s3:// does not have, account"),
        ("gs://bucket/n?region=x", "There are endpoint, service_account, allow_http"),
        ("s3://bucket/n?secret_access_key=a&hidden+b", "does not have, ***"),
        ("s3://bucket/n?region=a&region=b", "has the option region twice"),
        ("s3://bucket/n?region", "gives region no value"),
        ("s3://bucket/n?secret_access_key=", "gives secret_access_key no value"),
        ("s3://bucket/n?allow_http=yes", "another value than true or false"),
        ("s3://bucket/n?endpoint=127.0.0.1:9000", "not the address of a server"),
        ("s3://bucket/n?endpoint=ftp://host", "not the address of a server"),
        ("s3://bucket/n?endpoint=http://host:port", "not the address of a server"),
        ("s3://bucket/n?endpoint=http://user:hidden@host", "not the address of a server"),
        ("s3://bucket/n?endpoint=http://host%3Fkey=hidden", "not the address of a server"),
        ("s3://bucket/n?endpoint=http://host&allow_http=false", "allow_http=false"),
    ],
)
def test_a_mistake_is_named(url: str, said: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_bucket_url(url)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("scheme", BUCKET_OPTIONS)
def test_no_secret_is_shown(scheme: str) -> None:
    options = [f"{name}=hidden%2B{name}" for name in BUCKET_OPTIONS[scheme] if name in BUCKET_SECRETS]
    url = f"{scheme}://bucket/shop/stock?" + "&".join(options)
    address = parse_bucket_url(url)
    for shown in (redact_url(url), str(address), repr(address), f"{address}", address.root, repr([address])):
        assert "hidden" not in shown
        assert "bucket" in shown


def test_what_is_no_secret_is_shown() -> None:
    url = "s3://bucket/shop/stock?endpoint=http://127.0.0.1:9000&region=eu&secret_access_key=hidden"
    assert redact_url(url) == url.replace("hidden", "***")
    assert redact_url("lanes:///var/shop") == "lanes:///var/shop"
    assert redact_url("memory:") == "memory:"
    there = "postgresql:///shop?host=/run/postgresql&port=5433&schema=stock"
    assert redact_url(f"{there}&password=hidden") == f"{there}&password=***", "where everything lives can be found"


def test_an_address_can_be_read_again_from_how_it_is_shown() -> None:
    url = "s3://bucket/a%20b/caf%C3%A9?region=eu"
    assert parse_bucket_url(str(parse_bucket_url(url))) == parse_bucket_url(url)


def test_which_urls_speak_of_buckets() -> None:
    assert all(is_bucket_url(f"{scheme}://") for scheme in BUCKET_OPTIONS)
    assert not any(is_bucket_url(url) for url in ("memory:", "lanes:///s3", "s3", "postgresql://s3/x", "gs"))
