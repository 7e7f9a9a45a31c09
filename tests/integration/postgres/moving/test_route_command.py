"""`interlock route` from the command line: the plan, the move, its undoing, and what it refuses."""

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from interlock import Database
from interlock.cli.program import main
from interlock.relocate.mover import is_same
from tests.integration.postgres.moving.places import Died, Dying, Pair, filled, moved, pair


@pytest.fixture
def places(postgres: str, tmp_path: Path) -> Pair:
    """A database at a home, and a schema for it."""
    found = Pair(f"lanes://{tmp_path}/shop", pair("lane-to-postgres", postgres, tmp_path).target)
    asyncio.run(filled(found.source))
    return found


def test_a_name_is_moved_there_and_back(places: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = f"lanes://{tmp_path}"
    assert main(["route", "shop", "--to", places.target, "--home", home, "--dry-run", "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {each["table"]: each["rows"] for each in plan["amounts"]} == {
        "article": 30,
        "sale": 60,
        "interlock_keys": 1,
    }
    assert main(["route", "shop", "--to", places.target, "--home", home]) == 0
    said = capsys.readouterr().out
    assert "91 rows, checksum " in said
    assert "writers waited " in said
    undo = said.partition("To undo it: interlock ")[2].split()
    assert undo == ["route", "shop", "--home", home, "--to", places.source]
    assert main(undo) == 0
    said = capsys.readouterr().out
    assert "as move 2" in said
    again = shlex.split(said.partition("To undo it: interlock ")[2])
    assert is_same(again.pop(), places.target), "it has an ampersand, and comes through a shell in one piece"
    assert again == ["route", "shop", "--home", home, "--to"]

    async def look() -> None:
        async with Database.open("shop", home=home) as db:
            assert db.engine == "lane"
            assert await db.query("SELECT count(*) FROM sale") == [(60,)]

    asyncio.run(look())


def test_the_same_command_goes_on_and_another_one_ends_it(
    places: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["route", "shop", "--to", places.target, "--home", f"lanes://{tmp_path}"]
    with pytest.raises(Died):
        asyncio.run(moved(places, Dying("copy/index")))
    assert main([*words, "--abandon"]) == 0
    assert "The move was ended: shop stays at " in capsys.readouterr().err
    assert main([*words, "--abandon"]) == 0
    assert "No move was begun" in capsys.readouterr().err
    with pytest.raises(Died):
        asyncio.run(moved(places, Dying("leave")))  # The source has left; only the arrival is missing.
    assert main([*words, "-o", "json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["resumed"], done["epoch"]) == (True, 1)
    assert main([*words, "--abandon"]) == 2  # It is there already.


def test_a_move_that_is_over_is_no_error(places: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who runs the same command again until it says 0 is not told that they are wrong."""
    home = f"lanes://{tmp_path}"
    for number, place in enumerate((places.target, places.source), 1):
        words = ["route", "shop", "--to", place, "--home", home]
        assert main(words) == 0
        assert main([*words, "--dry-run"]) == 0
        assert "There is no move to plan: everything lives at " in capsys.readouterr().err
        assert main(words) == 0
        said = capsys.readouterr().out
        assert "It had arrived already." in said
        assert "undo" not in said
        assert main([*words, "-o", "json"]) == 0
        done = json.loads(capsys.readouterr().out)
        assert (done["resumed"], done["epoch"]) == (True, number)
    assert main(["route", places.source, "--to", places.source]) == 0
    assert "It had arrived already." in capsys.readouterr().out


@pytest.mark.slow
def test_a_place_that_was_left_is_gone_back_to_by_any_of_the_addresses(
    places: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old places name the target in their tombstones. It has moved on since, and is brought there again."""
    last = f"lanes://{tmp_path}/last"
    for place in (places.target, last, places.target, places.source):
        assert main(["route", places.source, "--to", place]) == 0
        assert "91 rows, checksum " in capsys.readouterr().out

    async def look() -> None:
        async with Database.open(last) as db:
            assert db.url == places.source
            assert await db.query("SELECT count(*) FROM sale") == [(60,)]

    asyncio.run(look())


@pytest.mark.campaign
@pytest.mark.parametrize("direction", ["lane-to-postgres", "postgres-to-lane", "lane-to-lane"])
def test_what_has_not_arrived_is_not_moved_on_as_a_draft(
    direction: str, postgres: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mover died behind its last step, and another place is named: everything is there, and nothing is lost."""
    first = pair(direction, postgres, tmp_path)
    asyncio.run(filled(first.source))
    third = f"lanes://{tmp_path}/third"
    for earlier in ((), (first, Pair(first.target, first.source))):  # Also where the place was left before.
        for each in earlier:
            asyncio.run(moved(each))
        with pytest.raises(Died):
            asyncio.run(moved(first, Dying("leave")))
        capsys.readouterr()
        assert main(["route", first.source, "--to", third, "--dry-run"]) == 5
        assert "has not arrived" in capsys.readouterr().err
        for place in (third, first.source):
            assert main(["route", first.source, "--to", place]) == 0
            assert "91 rows, checksum " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["missing", "--to", "{target}", "--home", "{home}"], 4),
        (["shop", "--to", "{target}"], 2),
        (["shop", "--to", "elsewhere", "--home", "{home}"], 2),
        (["shop", "--to", "memory:", "--home", "{home}"], 2),
        (["shop", "--to", "{source}", "--home", "{home}"], 2),
        (["shop", "--to", "{target}&pgbouncer=true", "--home", "{home}"], 2),
    ],
)
def test_what_cannot_be_done_has_its_exit_code(
    words: list[str], code: int, places: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [word.format(target=places.target, source=places.source, home=f"lanes://{tmp_path}") for word in words]
    assert main(["route", *chosen]) == code
    assert "fix:" in capsys.readouterr().err


def test_a_stream_that_the_database_has_not_is_named_by_its_key(
    places: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", places.source, "--stream", "customer 7", "--to", places.target]) == 4
    said = capsys.readouterr().err
    assert f"{places.source} has no stream 'customer 7'" in said
    assert "db_per_write_stream" in said
