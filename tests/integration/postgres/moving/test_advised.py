"""D10, D11: what `interlock advise --apply` has begun can be undone, also when it was killed at any point."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from interlock import Database
from interlock.cli.program import main
from interlock.database.inventory import marks_at
from tests.integration.postgres.moving.places import Died, Dying, Pair, filled, moved
from tests.unit.hotrow.placement_advice.windows import row, window

TOOL = "[tools.stock]\nwrite_latency_budget = 0.02\naggregate_write_rate = 500\nlatency_critical = true\n"


@pytest.mark.parametrize("point", ["copy/index", "leave"])
def test_what_was_killed_is_undone(
    point: str, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = f"lanes://{tmp_path}/home"
    places = Pair(f"{home}/stock", postgres_url)
    monkeypatch.chdir(tmp_path)
    Path("interlock.toml").write_text(TOOL)
    Path("seen.json").write_bytes(msgspec.json.encode([window(row(400), p99_s=0.030, coupled=900)] * 6))
    asyncio.run(filled(places.source))

    async def dies(*_: object, **__: object) -> None:
        await moved(places, Dying(point))

    with monkeypatch.context() as patch:
        patch.setattr("interlock.cli.route.move_along", dies)
        with pytest.raises(Died):
            main(["advise", "stock", "--evidence", "seen.json", "--home", home, "--to", places.target, "--apply", "-y"])
    before = asyncio.run(marks_at(places.source))
    assert before.state == ("moving" if point == "copy/index" else "left")
    assert main(["advise", "--undo", "stock", "--home", home, "--to", places.target, "--yes"]) == 0
    assert asyncio.run(marks_at(places.source)).state == "lives"
    assert main(["advise", "--undo", "stock", "--home", home, "--to", places.target, "--yes"]) == 4

    async def look() -> None:
        async with Database.open("stock", home=home) as db:
            assert db.engine == "lane"
            assert await db.query("SELECT count(*) FROM sale") == [(60,)]

    asyncio.run(look())
