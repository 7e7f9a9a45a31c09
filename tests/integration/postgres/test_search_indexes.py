"""F4: the indexes of a search beside locks, crashes and other processes."""

import asyncio
import contextlib
from enum import Enum

import msgspec
import pytest

from interlock import Engine, Event, Machine
from interlock.core.search import MachineSearch, search_fields, search_of
from interlock.errors import UnavailableError
from interlock.postgres.pool import connected
from interlock.store.postgres.search_indexes import index_of
from interlock.store.postgres.store import PostgresStore
from interlock.urls import parse_postgres_url
from tests.conformance.store.samples import MACHINE, begun, run, started
from tests.integration.postgres.stores import opened


class Context(msgspec.Struct, frozen=True):
    n: int = 0


class State(Enum):
    OPEN = "open"


class CountEvent(Event):
    pass


class Touch(CountEvent):
    pass


DECLARED = MachineSearch(MACHINE, 1, search_fields(Context, ("n",), MACHINE, ""))


async def by_n(store: PostgresStore) -> list[str]:
    """The ids in the order of the field."""
    asked = search_of(
        DECLARED, where=(), updated_after=None, updated_before=None, order="-n", states=(), limit=10, cursor=None
    )
    return [row.id for row in (await store.search(asked)).rows]


def test_an_open_transaction_delays_neither_the_opening_nor_writers(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index cannot be created while it writes; it is created in the background when it has ended."""
    schema = parse_postgres_url(postgres_url).schema
    monkeypatch.setattr("interlock.store.postgres.search_indexes.SMALL_LOCK_MS", 20)

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            assert isinstance(store, PostgresStore)
            await begun(store, started("w1", context=b'{"n":1}'))
            other = (await connected(parse_postgres_url(postgres_url))).driver
            await other.execute("BEGIN")
            try:
                await other.execute(f"LOCK TABLE {schema}.workflows IN ROW EXCLUSIVE MODE")
                assert await store.declare_search([DECLARED])
                await begun(store, started("w2", context=b'{"n":2}'))
                with pytest.raises(UnavailableError, match="its index is not there"):
                    await by_n(store)
            finally:
                await other.close()
            while await store.fill_search():
                pass
            assert await by_n(store) == ["w2", "w1"]

    run(scenario)


@pytest.mark.parametrize("through", ["", "&pgbouncer=true"])
def test_an_index_that_a_crash_has_left_invalid_is_built_again(postgres_url: str, through: str) -> None:
    """Also as through a pooler, which keeps no settings of a session."""

    async def scenario() -> None:
        async with opened(f"{postgres_url}{through}") as store:
            assert isinstance(store, PostgresStore)
            assert not await store.declare_search([DECLARED])
            await begun(store, started("w1", context=b'{"n":1}'))
            fields = DECLARED.fields
            assert fields
            name = f"{store._schema}.{index_of(MACHINE, fields[0])}"
            sql = f"UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass"
            await store._pool.write(sql, ())
            with pytest.raises(UnavailableError, match="rows of its index are written"):
                await by_n(store)
            while await store.fill_search():
                pass
            assert await by_n(store) == ["w1"]

    run(scenario)


def test_an_index_that_another_process_builds_is_left_to_it(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as store:
            assert isinstance(store, PostgresStore)
            await store.declare_search([DECLARED])
            known = await store._indexes.known()
            building = {name: each._replace(valid=False, building=True) for name, each in known.items()}

            async def seen() -> dict[str, object]:
                return dict(building)

            monkeypatch.setattr(store._indexes, "known", seen)
            assert await store.fill_search()
            monkeypatch.undo()
            assert await store._indexes.known() == known
            assert not await store.fill_search()

    run(scenario)


def test_an_index_that_another_process_has_dropped_is_built_again_for_a_search(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two releases declare different fields under one version of the machine, and the earlier one is opened again."""
    monkeypatch.setattr("interlock.engine.internals.SEARCH_LOOK_S", 0.0)

    def declared(search: tuple[str, ...]) -> Machine[State, Context, CountEvent]:
        machine = Machine(
            "count",
            states=State,
            context=Context,
            events=CountEvent,
            initial=State.OPEN,
            resting={State.OPEN},
            search=search,
        )
        machine.on(Touch, State.OPEN)
        return machine

    async def scenario() -> None:
        later, earlier = declared(("n",)), declared(())
        async with Engine.open(postgres_url, machines=[later]) as engine:
            await engine.start(later, "w1", Context(n=1))
            async with Engine.open(postgres_url, machines=[earlier]) as other:
                while len(await other._store._indexes.known()) > 1:  # type: ignore[attr-defined]
                    pass
            with pytest.raises(UnavailableError, match="its index is not there"):
                await engine.find(later, order="n")
            async with asyncio.timeout(20):
                while not (found := await by_n_of(engine, later)):
                    pass
            assert found == ["w1"]

    asyncio.run(scenario())


async def by_n_of(engine: Engine, machine: Machine[State, Context, CountEvent]) -> list[str]:
    """The ids in the order of the field; none while its index is built."""
    with contextlib.suppress(UnavailableError):
        return [each.id for each in (await engine.find(machine, order="n")).items]
    return []
