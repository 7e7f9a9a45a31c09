"""A scenario's own things, where they are."""

import asyncio
import os
from pathlib import Path

from interlock.chaos.servers import OwnPostgres
from interlock.chaos.stage import SOCKET_BYTES_MAX, Load, Servers, Stage
from interlock.testing.faults.processes import Processes
from interlock.urls import STATEMENT_TIMEOUT_S, parse_postgres_url


def test_the_socket_of_the_world_has_a_short_path_in_any_folder_and_is_removed(tmp_path: Path) -> None:
    """C14: a temporary folder may have a long name, which no system takes for a socket."""

    async def scenario(folder: Path) -> Path:
        stage = Stage("kill-redis", folder, Servers(None, None), Load(), Processes())
        path = Path(stage.life(1, "memory:").socket)
        assert len(os.fsencode(path)) <= SOCKET_BYTES_MAX
        await stage.world.open(path)
        await stage.close()
        return path

    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    assert not asyncio.run(scenario(folder)).parent.exists()


def test_the_audit_has_more_time_than_a_worker_for_the_same_schema(tmp_path: Path) -> None:
    """A server that stands still for a moment when everything is over has broken no promise."""
    postgres = OwnPostgres(tmp_path)
    try:
        stage = Stage("kill-postgres", tmp_path, Servers(postgres, None), Load(), Processes())
        audit, worker, over_a_wire = map(
            parse_postgres_url, (stage.kept, stage.schema(), stage.schema("postgresql://a:b@c:1/d"))
        )
    finally:
        postgres.close()
    assert audit.schema == worker.schema == over_a_wire.schema == "chaos_kill_postgres"
    assert worker.statement_timeout_s < audit.statement_timeout_s == STATEMENT_TIMEOUT_S
    assert "@c:1/d" in over_a_wire.url
