"""The page on moving a hot workload is done from top to bottom, against a real PostgreSQL, while its shop sells.

Once with its home in a folder, as it is written, and once with its home in a bucket.
"""

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
from tests.integration.objects.servers import BUCKET, Moto

PAGE = "docs/how-to/move-a-hot-workload.md"
SHOWN = "postgresql://shop@db.internal/shop?sslmode=require"


class Moving(Shell):
    """A shell in which the address of the page is that of a server that is there."""

    def __init__(self, folder: Path, postgres: str, environment: dict[str, str]) -> None:
        super().__init__(folder, environment)
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


def at_bucket(page: str, home: str) -> str:
    """The page as its section on buckets says: the home and the addresses at it are others, and nothing else."""
    folder, _, options = home.partition("?")
    stock = f"{folder}/stock?{options}"
    for before, after in (
        ('home = "lanes://./shop"', f'home = "{home}"'),
        ("HOME = f\"lanes://{Path('shop').absolute()}\"", f'HOME = "{home}"'),
        ('"lanes://$PWD/shop/stock"', f"'{stock}'"),
        ("--to lanes://…/shop/stock", "--to 's3://…/stock…"),
        ("lanes://…/shop/stock", "s3://…/stock…"),
        ("--home lanes://…", "--home 's3://…"),
        ("name   lives  verdict  target    proposed", "name   lives   verdict  target    proposed"),
        ("stock  lane   couple   postgres", "stock  object  couple   postgres"),
        ("in a lane on a local disk", "in a lane whose log is in object storage"),
    ):
        assert before in page, before
        page = page.replace(before, after)
    return page


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_the_page_is_done_from_top_to_bottom(place: str, moto: Moto, tmp_path: Path) -> None:
    page, environment = ROOT / PAGE, dict[str, str]()
    if place == "bucket":
        page = tmp_path / "page.md"
        endpoint = moto.endpoint.replace("127.0.0.1", "localhost")  # Which is not the page's server.
        home = f"s3://{BUCKET}/{uuid.uuid4().hex}/shop?endpoint={endpoint}"
        page.write_text(at_bucket((ROOT / PAGE).read_text(), home))
        environment = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "S3RVER")
        environment |= {"AWS_REGION": "us-east-1", "INTERLOCK_CACHE": str(tmp_path / "cache")}
    with (
        postgres_server() as url,
        Moving(tmp_path / "reader", asyncio.run(made(url)), environment) as shell,
    ):
        try:
            assert run_session(page, PAGE, shell) == 11
        except PageFailed as failure:
            pytest.fail(str(failure), pytrace=False)
        finally:
            left = tmp_path / "reader" / "shop.pid"
            if left.exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(left.read_text()), signal.SIGKILL)
