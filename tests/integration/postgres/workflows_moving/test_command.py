"""D11: one command moves a machine's workflows; it shows before what it will be, and a rehearsal changes nothing."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock.catalog.catalog import workflows_at
from interlock.clock import SystemClock
from interlock.database.database import Database
from interlock.errors import MovedElsewhere
from interlock.store.open_store import open_store
from interlock.urls import redact_secrets
from tests.conformance.store.samples import begun, started
from tests.integration.postgres.stores import opened
from tests.integration.postgres.workflows_moving.moves import Died, dying_at, move
from tests.integration.postgres.workflows_moving.test_everything_arrives import contents, filled
from tests.unit.cli.running import run_program

OK, USAGE, NOT_FOUND, UNAVAILABLE = 0, 2, 4, 5


async def _filled(home: str) -> tuple[list[str], list[object]]:
    store = await open_store(home, clock=SystemClock())
    try:
        ids = [row.id for row in await filled(store)]
        return ids, await contents(store, ids)
    finally:
        await store.close()


@pytest.mark.slow
def test_the_command_moves_all_workflows_of_the_home_and_says_so(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"
    ids, before = asyncio.run(_filled(home))
    alone = run_program("route", "order", "--to", postgres_url, "--home", home, folder=tmp_path)
    assert alone.code == USAGE, "the other machine would come along"
    refused = " ".join(alone.err.split())
    assert "20 of 'order', 10 of 'other'" in refused
    assert "A machine that has to move alone needs its own home." in refused
    words = ("route", "order", "--all", "--to", postgres_url, "--home", home)

    files = {path: path.read_bytes() for path in (tmp_path / "home").iterdir() if path.suffix == ".lane"}
    rehearsed = run_program(*words, "--dry-run", "-o", "json", folder=tmp_path)
    assert rehearsed.code == OK, rehearsed.err
    plan = json.loads(rehearsed.out)
    assert {each["table"]: each["rows"] for each in plan["amounts"]}["workflows"] == len(ids)
    assert any("20 of 'order', 10 of 'other'" in note for note in plan["notes"])
    assert {path: path.read_bytes() for path in files} == files

    done = run_program(*words, folder=tmp_path)
    assert done.code == OK, done.err
    assert f"--home {home} --to {home}" in done.out.replace("\n", "")

    async def scenario() -> None:
        with pytest.raises(MovedElsewhere):
            await open_store(home, clock=SystemClock())
        async with opened(postgres_url) as store:
            assert await contents(store, ids) == before
        assert await workflows_at(home, ["order"]) == await workflows_at(home, ["other"]) != home

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("middle", ["lane", "postgres"])
def test_a_home_that_workflows_came_to_is_moved_on_by_its_own_address(
    middle: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its catalog knows no move. With the number of the first one again, the second would not be followed."""
    home, last = f"lanes://{tmp_path}/home", f"lanes://{tmp_path}/last"
    there = f"lanes://{tmp_path}/there" if middle == "lane" else str(request.getfixturevalue("postgres_url"))
    ids, before = asyncio.run(_filled(home))
    assert run_program("route", "workflows", "--to", there, "--home", home, folder=tmp_path).code == OK
    onward = run_program("route", "workflows", "--to", last, "--home", there, folder=tmp_path)
    assert (onward.code, "as move 2" in onward.out) == (OK, True), onward.err
    for place in (home, there, last):
        shown = run_program("show", ids[0], "--home", place, folder=tmp_path)
        assert shown.code == OK, shown.err
    if middle == "postgres":
        migrated = run_program("migrate", there, "--dry-run", folder=tmp_path)
        assert (migrated.code, "since move 2" in migrated.err) == (UNAVAILABLE, True), migrated.err

    async def scenario() -> None:
        with pytest.raises(MovedElsewhere) as left:
            await open_store(there, clock=SystemClock())
        assert (left.value.url, left.value.epoch) == (last, 2)
        store = await open_store(last, clock=SystemClock())
        assert await contents(store, ids) == before
        await store.close()

    asyncio.run(scenario())


@pytest.mark.slow
def test_schedules_and_pauses_move_with_the_only_machine_of_a_home(tmp_path: Path, postgres_url: str) -> None:
    """Every engine has the machines of schedules and pauses. They are not other machines that could be forgotten."""
    home = f"lanes://{tmp_path}/home"

    async def begin() -> None:
        store = await open_store(home, clock=SystemClock())
        own = (started("nightly", machine="interlock.schedule"), started("held", machine="interlock.pause"))
        await begun(store, started("o-1", machine="order"), *own)
        await store.close()

    asyncio.run(begin())
    done = run_program("route", "order", "--to", postgres_url, "--home", home, folder=tmp_path)
    assert done.code == OK, done.err
    assert "1 of 'interlock.pause', 1 of 'interlock.schedule', 1 of 'order'" in " ".join(done.out.split())


@pytest.mark.slow
def test_a_move_that_is_over_is_no_error(tmp_path: Path, postgres_url: str) -> None:
    """An engine that followed has told the catalog, and the mover was killed: the same command says that it is done."""
    home = f"lanes://{tmp_path}/home"
    asyncio.run(_filled(home))
    stays = run_program("route", "workflows", "--to", home, "--home", home, folder=tmp_path)
    assert stays.code == USAGE, "nothing has ever moved"
    for number, place in enumerate((postgres_url, home), 1):
        words = ("route", "workflows", "--to", place, "--home", home)
        first = run_program(*words, folder=tmp_path)
        assert first.code == OK, first.err
        again = run_program(*words, "-o", "json", folder=tmp_path)
        assert again.code == OK, again.err
        done = json.loads(again.out)
        assert (done["resumed"], done["epoch"]) == (True, number)
        rehearsed = run_program(*words, "--dry-run", folder=tmp_path)
        assert (rehearsed.code, rehearsed.out) == (OK, "")
        ended = run_program(*words, "--abandon", folder=tmp_path)
        assert ended.code == USAGE
        assert "live at" in ended.err


@pytest.mark.slow
def test_a_catalog_that_was_not_told_does_not_lie(tmp_path: Path, postgres_url: str) -> None:
    """The mover died behind its last step: whoever names another place, or the old one, is told where they live."""
    home = f"lanes://{tmp_path}/home"
    asyncio.run(_filled(home))
    with pytest.raises(Died):
        asyncio.run(move(home, postgres_url, at=dying_at("leave")))
    for place in (home, f"{postgres_url}_further"):
        refused = run_program("route", "workflows", "--to", place, "--home", home, folder=tmp_path)
        assert refused.code == UNAVAILABLE, refused.err
        assert f"live at {redact_secrets(postgres_url)} since move 1" in " ".join(refused.err.split())
    finished = run_program("route", "workflows", "--to", postgres_url, "--home", home, folder=tmp_path)
    assert finished.code == OK, finished.err


@pytest.mark.slow
def test_a_name_that_nobody_has_and_one_that_two_have(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"
    asyncio.run(_filled(home))

    async def placed() -> None:
        async with Database.open("order", home=home) as database:
            await database.execute("CREATE TABLE t (id bigint PRIMARY KEY)")

    missing = run_program("route", "nobody", "--to", postgres_url, "--home", home, folder=tmp_path)
    assert missing.code == NOT_FOUND, missing.err
    assert "nobody" in missing.err
    asyncio.run(placed())
    either = run_program("route", "order", "--to", postgres_url, "--home", home, folder=tmp_path)
    assert either.code == USAGE, either.err
    assert "'order' is a machine and a database" in either.err


@pytest.mark.slow
def test_the_tombstone_and_the_catalog_keep_no_password(tmp_path: Path, postgres_url: str) -> None:
    home = f"lanes://{tmp_path}/home"
    asyncio.run(_filled(home))
    secret = "never-written-down"
    mark = "&" if "?" in postgres_url else "?"
    words = ("route", "workflows", "--to", f"{postgres_url}{mark}password={secret}", "--home", home)
    done = run_program(*words, folder=tmp_path)
    assert done.code == OK, done.err
    assert secret not in done.out + done.err
    again = run_program(*words, folder=tmp_path)
    assert secret not in again.out + again.err
    for path in (tmp_path / "home").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path
