"""The page on moving a hot workload is done from top to bottom, against a real PostgreSQL, while its shop sells."""

import asyncio
import contextlib
import os
import signal
import uuid
from pathlib import Path

import asyncpg
import pytest

from tests.conformance.engines import postgres_server
from tests.docs.blocks import PageFailed
from tests.docs.sessions import Shell, run_session
from tests.docs.test_code_blocks import ROOT

PAGE = "docs/how-to/move-a-hot-workload.md"
SHOWN = "postgresql://shop@db.internal/shop?sslmode=require"


class Moving(Shell):
    """A shell in which the address of the page is that of a server that is there."""

    def __init__(self, folder: Path, postgres: str) -> None:
        super().__init__(folder)
        self._postgres = postgres

    def type(self, command: str) -> tuple[int, str, str]:
        """Type a line with the real address."""
        return super().type(command.replace(SHOWN, self._postgres))


async def made(url: str) -> str:
    """A database of its own: the page names a schema."""
    name = f"page_{uuid.uuid4().hex[:12]}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    place, _, options = url.partition("?")
    return f"{place.rpartition('/')[0]}/{name}?{options}"


@pytest.mark.slow
def test_the_page_is_done_from_top_to_bottom(tmp_path: Path) -> None:
    with postgres_server() as url, Moving(tmp_path / "reader", asyncio.run(made(url))) as shell:
        try:
            assert run_session(ROOT / PAGE, PAGE, shell) == 11
        except PageFailed as failure:
            pytest.fail(str(failure), pytrace=False)
        finally:
            left = tmp_path / "reader" / "shop.pid"
            if left.exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(left.read_text()), signal.SIGKILL)
