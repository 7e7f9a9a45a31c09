"""Connections are known by the names of their classes, so a driver need not be there to be told from another."""

import pytest

from interlock.engine.caller_transactions import (
    AlchemyConnection,
    AsyncAlchemyConnection,
    AsyncpgConnection,
    async_adapter,
    refuse_unknown,
    sync_adapter,
)
from interlock.errors import BadUsage


def of_class(module: str, name: str, base: type = object) -> object:
    """Something that looks like it comes from a driver."""
    made: object = type(name, (base,), {"__module__": module})()
    return made


@pytest.mark.parametrize("module", ["asyncpg.connection", "asyncpg"])
def test_a_connection_is_known_by_the_top_of_its_module(module: str) -> None:
    assert isinstance(async_adapter(of_class(module, "Connection")), AsyncpgConnection)


def test_a_class_of_ones_own_is_what_it_is_derived_from() -> None:
    base = type(of_class("sqlalchemy.ext.asyncio.session", "AsyncSession"))
    adapter = async_adapter(of_class("shop.database", "ShopSession", base))
    assert isinstance(adapter, AsyncAlchemyConnection)
    assert adapter._session


def test_two_drivers_may_have_the_same_names() -> None:
    given = of_class("sqlalchemy.engine.base", "Connection")
    assert isinstance(sync_adapter(given), AlchemyConnection)
    with pytest.raises(BadUsage, match="without an event loop") as caught:
        async_adapter(given)
    assert "`with engine.transaction(connection) as tx`" in caught.value.fix


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("asyncpg.pool", "Pool", "Take a connection out of it"),
        ("psycopg_pool.pool", "ConnectionPool", "Take a connection out of it"),
        ("sqlalchemy.engine.base", "Engine", "Take a connection out of it"),
        ("psycopg2.extensions", "connection", "Use psycopg 3"),
        ("aiopg.connection", "Connection", "asyncpg or psycopg 3"),
        ("asyncpgsomething", "Connection", "asyncpg or psycopg 3"),
    ],
)
def test_what_is_not_known_is_refused_with_what_to_do(module: str, name: str, advice: str) -> None:
    for asked in (async_adapter, sync_adapter, refuse_unknown):
        with pytest.raises(BadUsage, match=f"{module}.{name} is not a connection") as caught:
            asked(of_class(module, name))
        assert advice in caught.value.fix
