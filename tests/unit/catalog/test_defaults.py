"""Where a name lives that nobody has moved: no two names ever share a place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.catalog.catalog_entries import below
from interlock.urls import parse_postgres_url

HOME = "postgresql://u:pw@host/shop?schema=home&connections_max=5"


def test_on_a_disk_and_in_a_bucket_it_is_a_place_with_its_name() -> None:
    assert below("lanes:///var/shop/", "my stock") == "lanes:///var/shop/my%20stock"
    assert (
        below("s3://bucket/shop/?endpoint=http://x", "stock room") == "s3://bucket/shop/stock%20room?endpoint=http://x"
    )
    assert below("s3://bucket", "stock") == "s3://bucket/stock"
    assert below("memory:", "stock") == "memory:"


def test_on_postgresql_it_is_a_schema_with_its_name() -> None:
    assert below("postgresql://host/shop", "stock") == "postgresql://host/shop?schema=stock"
    assert below(HOME, "stock") == "postgresql://u:pw@host/shop?connections_max=5&schema=stock"


@pytest.mark.parametrize(
    "name",
    [
        "Stock",
        "my stock",
        "é",
        "7up",
        "home",
        "public",
        "interlock",
        "information_schema",
        "pg_x",
        "a__b",
        "x" * 64,
        "db_x",
    ],
)
def test_a_name_that_is_no_schema_of_its_own_becomes_a_digest(name: str) -> None:
    schema = parse_postgres_url(below(HOME, name)).schema
    assert schema.startswith("db_")
    assert len(schema) == 35
    assert schema != name


@pytest.mark.slow
@given(
    st.sets(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=80), max_size=8)
)
def test_no_two_names_share_a_schema(names: set[str]) -> None:
    assert len({parse_postgres_url(below(HOME, name)).schema for name in names}) == len(names)
