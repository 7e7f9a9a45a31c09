"""An engine whose bucket was taken over while it slept: it opens again, and goes on where the other one has stopped."""

import asyncio
import uuid
from pathlib import Path

import pytest

from interlock import Engine, UnavailableError
from interlock.engine import follow_moves
from tests.integration.objects.servers import Moto
from tests.unit.engine.follow_moves.shop import Gateway, Noted, Order, Submit, problems_of, shop

LEASE_S = 0.5


@pytest.fixture(autouse=True)
def nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: callers wait."""
    monkeypatch.setattr(follow_moves, "WAITED_S", 60.0)


@pytest.mark.slow
def test_what_found_the_fence_is_decided_again_on_what_the_other_has_left(moto: Moto, tmp_path: Path) -> None:
    """G4: nothing of a group that is fenced has happened, so its callers need not know."""

    async def test() -> None:
        url = moto.url(f"following/{uuid.uuid4().hex}")
        gateway = Gateway()
        machine = shop(gateway)
        async with Engine.open(url, machines=[machine], cache=str(tmp_path / "one"), lease_s=LEASE_S) as one:
            await one.start(machine, "o-1", Order())
            async with Engine.open(url, machines=[machine], cache=str(tmp_path / "two"), lease_s=LEASE_S) as two:
                assert (await two.send("o-1", Noted())).version == 2
            assert (await one.send("o-1", Submit())).version == 3
            view = await one.wait("o-1")
            assert problems_of(view, await one.history("o-1"), gateway, notes=1) == []

    asyncio.run(test())


def test_one_that_finds_another_owner_alive_stops(moto: Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_moves, "RETAKEN_S", 0.0)

    async def test() -> None:
        url = moto.url(f"following/{uuid.uuid4().hex}")
        machine = shop(Gateway())
        async with Engine.open(url, machines=[machine], cache=str(tmp_path / "one"), lease_s=LEASE_S) as one:
            await one.start(machine, "o-1", Order())
            async with Engine.open(url, machines=[machine], cache=str(tmp_path / "two"), lease_s=6.0) as two:
                busy = asyncio.ensure_future(_busy(two))
                with pytest.raises(UnavailableError, match="has stopped"):
                    await one.send("o-1", Noted())
                busy.cancel()
                assert (await two.send("o-1", Noted())).version > 2

    asyncio.run(test())


async def _busy(engine: Engine) -> None:
    """An owner that renews its lease all the time."""
    while True:
        await engine.send("o-1", Noted())
