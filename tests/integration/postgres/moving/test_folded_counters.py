"""D11: a database whose counters have shards is moved once they were folded, by the program of the page."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from interlock import Database
from interlock.cli.program import main

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "move-a-database.md"


def printed() -> Callable[[str], Coroutine[Any, Any, None]]:
    """`fold` of the page, without what the page tries it with."""
    section = PAGE.read_text().partition("## Counters with shards")[2]
    [block] = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(block.partition("async def main")[0], found)
    return cast("Callable[[str], Coroutine[Any, Any, None]]", found["fold"])


@pytest.mark.parametrize("place", ["lane", "postgres"])
def test_what_the_page_says_makes_it_movable(
    place: str, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane = f"lanes://{tmp_path}/stock"
    source, target = (lane, postgres_url) if place == "lane" else (postgres_url, lane)

    async def use() -> None:
        async with Database.open(source) as db:
            for number in range(20):
                await db.counter("views").add(1, key=f"k-{number}")
            await db.counter("likes", kind="sharded").add(7)
            await db.counter("clicks", kind="event_log").add(3)
            await db.counter("plain", kind="exact").add(1)

    async def counted() -> dict[str, int]:
        async with Database.open(source) as db:
            return {name: await db.counter(name).value() for name in ("views", "likes", "clicks", "plain")}

    asyncio.run(use())
    expected = {"views": 20, "likes": 7, "clicks": 3, "plain": 1}
    assert main(["route", source, "--to", target]) == 2
    assert "“Counters with shards”" in " ".join(capsys.readouterr().err.split())
    fold = printed()
    for _ in range(2):  # Who was interrupted does it again.
        asyncio.run(fold(source))
        assert asyncio.run(counted()) == expected
    if place == "lane":
        (tmp_path / "stock.shards").rename(tmp_path / "stock.shards.folded")
        assert asyncio.run(counted()) == expected
    assert main(["route", source, "--to", target]) == 0
    assert asyncio.run(counted()) == expected

    async def goes_on() -> None:
        async with Database.open(source) as db:
            for _ in range(2):
                await db.counter("views").add(1, key="another")
            await db.counter("likes", kind="sharded").add(1)
            assert await db.counter("views").value() == 21
            assert await db.counter("likes").value() == 8

    asyncio.run(goes_on())
