"""An engine that cannot log in where its workflows went keeps its callers waiting, and recovers with the password."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock import Engine, MovedElsewhere
from interlock.chaos.database_servers import OwnPostgres
from interlock.engine import follow_moves
from tests.chaos.postgres.campaign import own_postgres
from tests.integration.postgres.workflows_following.flowing import made
from tests.integration.postgres.workflows_moving.moves import move
from tests.integration.postgres.workflows_returning.test_orders import follower_of
from tests.unit.engine.follow_moves.shop import State, order


@pytest.fixture(scope="module")
def server() -> Generator[OwnPostgres]:
    """A server that asks for a password."""
    with own_postgres() as server:
        yield server


@pytest.mark.slow
def test_an_engine_without_the_password_waits_and_recovers_when_it_appears(
    server: OwnPostgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passwords = tmp_path / "pgpass"
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.setattr(follow_moves, "WAITED_S", 1.0)
    home, target = f"lanes://{tmp_path}/home", f"{server.url}?schema=orders"

    async def scenario() -> None:
        _, machine = made()
        async with Engine.open(home, machines=[machine], drain_s=0) as engine:
            await order(engine, machine, "o-1", keyed=True)
            await asyncio.to_thread(lambda: asyncio.run(move(home, target)))
            with pytest.raises(MovedElsewhere, match="does not let this user in"):
                await order(engine, machine, "o-2", keyed=True)
            entered = asyncio.Event()
            follower_of(engine).entered.append(lambda _: entered.set())
            passwords.write_text(f"*:*:*:*:{server._password}\n")
            passwords.chmod(0o600)
            await entered.wait()
            await order(engine, machine, "o-3", keyed=True)
            assert (await engine.get("o-1")).state is State.DONE

    asyncio.run(scenario())
