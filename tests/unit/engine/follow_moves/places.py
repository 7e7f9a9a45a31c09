"""Stores in memory at addresses, and a mover between them that comes at a chosen moment."""

import asyncio
import copy
from collections.abc import Callable, Mapping

import pytest

from interlock.clock import Clock, SystemClock
from interlock.engine import open_engine as engine_open
from interlock.errors import LaneOwned, MovedElsewhere, UnavailableError
from interlock.store.memory import MemoryStore, _Kept
from tests.unit.engine.shared.stores import SharedMemory


class Place(MemoryStore):
    """A store that can be left. From then on every call says where the workflows are, and nothing happens."""

    world: "World"
    url = ""
    tombstone: tuple[str, int] | None = None
    arriving: int | None = None
    fenced: Exception | None = None
    looks = 0
    moves_at: int | None = None
    """At which call the mover comes."""
    leaves: tuple[str, int] = ("", 0)
    owned = False
    left_as: _Kept | None = None

    @property
    def _kept(self) -> _Kept:
        self.looks += 1
        if self.moves_at is not None and self.looks >= self.moves_at:
            self.moves_at = None
            self.world.move(self.url, *self.leaves)
        if self.fenced is not None:
            raise self.fenced
        if self.tombstone is not None:
            url, epoch = self.tombstone
            raise MovedElsewhere(f"the workflows moved to {url}.", url=url, epoch=epoch)
        return super()._kept

    async def close(self) -> None:
        """What is kept stays, for whoever opens it again; this one has nothing any more."""
        self.owned = False

    def untouched(self) -> bool:
        """Whether nothing was written since the workflows left."""
        assert self._remembered is not None
        assert self.left_as is not None
        return self._remembered.rows == self.left_as.rows and self._remembered.history == self.left_as.history


class SharedPlace(Place, SharedMemory):
    """The same, and shared."""

    def __init__(self, clock: Clock) -> None:
        del clock
        SharedMemory.__init__(self)


class World:
    """All places, by their address; those whose address says so are shared."""

    def __init__(self, patch: pytest.MonkeyPatch, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.places: dict[str, Place] = {}
        self.opened: list[tuple[str, int | None]] = []
        self.refuses: list[Exception] = []
        """The next openings fail like this."""
        self._asked = asyncio.Event()
        patch.setattr(engine_open, "open_store", self._open)

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what an opening brings about."""
        while not reached():
            self._asked.clear()
            await self._asked.wait()

    def place(self, url: str) -> Place:
        if url not in self.places:
            kind = SharedPlace if url.startswith("shared") else Place
            place = self.places[url] = kind(self._clock)
            place.world, place.url = self, url
        return self.places[url]

    def move(self, source: str, target: str, epoch: int) -> None:
        """All of it, in one instant."""
        old, new = self.place(source), self.place(target)
        assert old._remembered is not None
        new._remembered = copy.deepcopy(old._remembered)
        new.tombstone, new.arriving = None, epoch
        old.left_as = copy.deepcopy(old._remembered)
        old.tombstone = (target, epoch)

    async def _open(
        self,
        url: str,
        *,
        clock: Clock,
        settings: Mapping[str, float] | None = None,
        cache: str | None = None,
        epoch: int | None = None,
    ) -> Place:
        del clock, settings, cache
        self.opened.append((url, epoch))
        asyncio.get_running_loop().call_soon(self._asked.set)
        if self.refuses:
            raise self.refuses.pop(0)
        place = self.place(url)
        if place.tombstone is not None:
            target, epoch = place.tombstone
            raise MovedElsewhere(f"the workflows moved to {target}.", url=target, epoch=epoch)
        if place.arriving is not None and place.arriving != epoch:
            raise UnavailableError(f"{url} is arriving.")
        if place.owned and not place.shared:
            raise LaneOwned(f"{url} is owned.")
        place.arriving, place.fenced, place.owned = None, None, True
        return place
