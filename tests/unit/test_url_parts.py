"""Parts of addresses: the schema that one names, options, names in its path."""

import pytest

from interlock.urls import (
    extend_path,
    has_schema,
    is_lane_url,
    last_name,
    parse_database_url,
    with_option,
    with_schema,
)


@pytest.mark.parametrize(
    ("url", "schema"),
    [
        ("postgresql://db/shop", "public"),
        ("postgresql://db/shop?schema=orders", "orders"),
        ("postgresql://db/shop?sslmode=require&schema=orders", "orders"),
        # The text stands in the value of another option.
        ("postgresql://db/shop?application_name=schema=orders", "public"),
    ],
)
def test_a_database_without_a_schema_in_its_address_is_in_public(url: str, schema: str) -> None:
    assert parse_database_url(url).schema == schema
    assert has_schema(url) is (schema != "public")


def test_an_option_takes_the_place_of_one_of_its_name() -> None:
    assert with_schema("postgresql://db/shop", "orders") == "postgresql://db/shop?schema=orders"
    assert with_option("postgresql://db/s?a=1&b=2", "a", "3") == "postgresql://db/s?b=2&a=3"


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("lanes:///var/shop/", "lanes:///var/shop/stock"),
        (
            "s3://bucket/shop?region=eu&endpoint=http://localhost",
            "s3://bucket/shop/stock?region=eu&endpoint=http://localhost",
        ),
    ],
)
def test_a_path_is_extended_before_the_options(url: str, there: str) -> None:
    assert extend_path(url, "/stock") == there


def test_the_last_name_is_decoded() -> None:
    assert last_name("lanes:///var/shop/caf%C3%A9/") == "café"
    assert last_name("s3://bucket/shop/stock?region=eu") == "stock"


def test_an_address_of_a_local_lane_is_a_text_with_its_scheme() -> None:
    assert is_lane_url("lanes:///var/shop")
    assert not is_lane_url("lanes://var/shop")
    assert not is_lane_url("s3://bucket/shop")
    assert not is_lane_url(None)
