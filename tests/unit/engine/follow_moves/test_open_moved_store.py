"""An engine that is opened at a place that the workflows have left opens the one where they are."""

import asyncio
from pathlib import Path

import pytest

from interlock import BlockingEngine, Engine
from interlock.catalog.catalog import Catalog
from interlock.engine.follow_moves import HOPS_MAX, StoreRoute
from interlock.errors import CorruptionError, MovedElsewhere, UnavailableError
from tests.unit.engine.follow_moves.places import World
from tests.unit.engine.follow_moves.shop import Gateway, Order, shop


def test_tombstones_are_followed_and_the_arrival_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        async with Engine.open("a", machines=[machine]) as engine:
            await engine.start(machine, "o-1", Order())
        world.move("a", "b", 1)
        async with Engine.open("a", machines=[machine]) as engine:
            assert (await engine.get("o-1")).version == 1
            await engine.start(machine, "o-2", Order())
        world.move("b", "c", 2)
        async with Engine.open("a", machines=[machine]) as engine:
            assert (await engine.get("o-2")).version == 1
        assert world.opened == [("a", None), ("a", None), ("b", 1), ("a", None), ("b", 1), ("c", 2)]
        world.place("d").arriving = 3
        with pytest.raises(UnavailableError, match="is arriving"):
            await Engine.open("d", machines=[machine])

    asyncio.run(test())


def test_the_engine_for_code_that_is_not_async_follows_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    world, machine = World(monkeypatch), shop(Gateway())
    world.move("a", "b", 1)
    with BlockingEngine.open("a", machines=[machine]) as engine:
        engine.start(machine, "o-1", Order())
        world.move("b", "c", 2)
        assert engine.start(machine, "o-2", Order()).version == 1
        assert engine.get("o-1").version == 1
    assert world.place("b").untouched()


def test_a_circle_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs only grow: two tombstones that name each other are not to be followed for ever."""

    async def test() -> None:
        world, machine = World(monkeypatch), shop(Gateway())
        world.move("a", "b", 1)
        world.move("b", "a", 1)
        world.place("a").tombstone = ("b", 1)
        with pytest.raises(CorruptionError, match="epoch 1"):
            await Engine.open("a", machines=[machine])
        assert len(world.opened) == 2

    asyncio.run(test())


def test_a_chain_has_a_bound_and_a_tombstone_an_address() -> None:
    trail = StoreRoute("place-0")
    for number in range(1, HOPS_MAX + 1):
        trail.follow(MovedElsewhere("on.", url=f"place-{number}", epoch=number))
    assert (trail.url, trail.seen_epoch) == (f"place-{HOPS_MAX}", HOPS_MAX)
    with pytest.raises(CorruptionError):
        trail.follow(MovedElsewhere("on.", url="further", epoch=HOPS_MAX + 1))
    asyncio.run(trail.arrive())
    trail.follow(MovedElsewhere("on.", url="further", epoch=HOPS_MAX + 1))
    with pytest.raises(CorruptionError):
        StoreRoute("here").follow(MovedElsewhere("nowhere.", epoch=1))


def test_the_catalog_is_asked_first_and_told_what_the_tombstones_said(tmp_path: Path) -> None:
    """A machine with an entry of its own keeps it; the others have the one that stands for all."""

    async def test() -> None:
        home = f"lanes://{tmp_path}"
        catalog = Catalog(home)
        await catalog.enter("shop", "postgresql://user@host/shop", 1, kind="workflows")
        trail = StoreRoute(home, ["shop"])
        await trail.begin()
        assert (trail.url, trail.seen_epoch) == ("postgresql://user@host/shop", None)
        opened: list[str] = []

        async def opens(place: StoreRoute) -> str:
            opened.append(place.url)
            if len(opened) == 1:
                raise MovedElsewhere("on.", url="postgresql://user@host/other", epoch=2)
            return place.url

        assert await trail.open(opens) == "postgresql://user@host/other"
        assert (await catalog.entry("shop", kind="workflows")).url == "postgresql://user@host/other"
        assert (await catalog.entry("workflows", kind="workflows")).url == "", "the others are where they were"

    asyncio.run(test())


def test_a_secret_comes_along_to_another_place_of_the_same_user() -> None:
    """A tombstone has none (it may be read by whoever reads the file)."""
    trail = StoreRoute("postgresql://user:secret@host/shop?schema=a")
    trail.follow(MovedElsewhere("on.", url="postgresql://user@host/shop?schema=b", epoch=1))
    assert trail.url == "postgresql://user:secret@host/shop?schema=b"
    assert "secret" not in trail.masked_url
