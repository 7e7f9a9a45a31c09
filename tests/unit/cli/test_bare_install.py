"""A fresh install has no extras: every command is there all the same, and says what it lacks when it is asked."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from interlock import Database
from interlock.cli.program import COMMANDS
from tests.unit.cli.running import SOURCE, plain_environment

EXTRAS = ("asyncpg", "obstore", "zstandard", "redis")

BARE = f"""
import importlib, sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nowhere())
"""

LOAD = """
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(module, str(error).splitlines()[0])
"""

RUN = """
from interlock.cli import main
sys.exit(main(sys.argv[1:]))
"""


def bare(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A program where there are none."""
    return subprocess.run(
        [sys.executable, "-c", BARE + program, *arguments],
        env=plain_environment(PYTHONPATH=str(SOURCE)),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_every_command_can_be_loaded_without_the_extras() -> None:
    modules = sorted({*(path.partition(":")[0] for path in COMMANDS), "interlock", "interlock.database.database"})
    assert len(modules) > 12
    done = bare(LOAD, *modules)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.slow
def test_what_lives_on_a_disk_is_moved_copied_and_put_back_without_them(tmp_path: Path) -> None:
    """D10, D11: from a lane to a lane, and into a file."""

    async def fill() -> None:
        async with Database.open(f"lanes://{tmp_path}/home/shop") as db:
            await db.execute("CREATE TABLE t (id integer PRIMARY KEY)")
            await db.execute("INSERT INTO t VALUES (1)")

    asyncio.run(fill())
    home, moved, copy = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/other/shop", str(tmp_path / "copy.lane")
    for words in (
        ("route", "shop", "--to", moved, "--home", home, "--dry-run"),
        ("route", "shop", "--to", moved, "--home", home),
        ("databases", "--home", home),
        ("backup", moved, copy),
        ("restore", copy, f"lanes://{tmp_path}/again/shop"),
        ("doctor", moved),
    ):
        done = bare(RUN, *words)
        assert done.returncode == 0, (words, done.stderr)
    asked = bare(RUN, "route", "shop", "--to", "postgresql://localhost/shop", "--home", home)
    assert asked.returncode == 1
    assert 'pip install "interlock[postgres]"' in asked.stderr
