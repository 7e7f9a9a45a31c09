"""A scenario's own things, where they are."""

import asyncio
import os
from pathlib import Path

from interlock.chaos.stage import SOCKET_BYTES_MAX, Load, Servers, Stage
from interlock.testing.faults.processes import Processes


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
