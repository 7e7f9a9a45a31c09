"""Where experiments have their databases: what is there already is refused, and nothing of their own stays (D12)."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from interlock.bench.load import Ground, ground
from interlock.database.database import Database
from interlock.errors import BadUsage, UnavailableError
from tests.integration.objects.servers import Moto

ROWS = "CREATE TABLE rows (id integer PRIMARY KEY)"


async def used(url: str | None, *names: str) -> tuple[Ground, list[str]]:
    """Make a database of each name; the addresses."""
    async with ground(url) as place:
        addresses = [place.address(name) for name in names]
        for address in addresses:
            async with Database.open(address, cache=str(place.cache)) as db:
                await db.execute(ROWS)
    return place, addresses


def test_without_an_address_the_place_is_a_temporary_folder_that_is_gone() -> None:
    place, [address] = asyncio.run(used(None, "one"))
    assert place.kind == "lane"
    assert not Path(address.removeprefix("lanes://")).parent.exists()


def test_lanes_are_made_below_the_address_and_removed(tmp_path: Path) -> None:
    place, addresses = asyncio.run(used(f"lanes://{tmp_path}/here", "one", "two"))
    assert (place.kind, place.public_url) == ("lane", f"lanes://{tmp_path}/here")
    assert addresses == [f"lanes://{tmp_path}/here/one", f"lanes://{tmp_path}/here/two"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["here.lane", "here.lane.lock", "here"])
def test_what_is_there_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(BadUsage, match="already"):
        asyncio.run(used(f"lanes://{tmp_path}/here", "one"))
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(name, b"mine")]


def test_every_database_in_memory_is_a_new_one() -> None:
    place, addresses = asyncio.run(used("memory:", "one", "two"))
    assert (place.kind, addresses) == ("memory", ["memory:", "memory:"])


def test_what_fails_in_between_leaves_nothing_either(tmp_path: Path) -> None:
    async def fail() -> None:
        async with ground(f"lanes://{tmp_path}/here") as place, Database.open(place.address("one")) as db:
            await db.execute(ROWS)
            raise ValueError("in between")

    with pytest.raises(ValueError, match="in between"):
        asyncio.run(fail())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_bucket_is_emptied_and_its_neighbours_are_not(moto: Moto, folder: str) -> None:
    async def main() -> None:
        await used_and_kept(moto.url(f"{folder}/mine"))
        place, [address] = await used(moto.url(f"{folder}/here"), "one")
        assert place.kind == "bucket"
        assert "/here/one?" in address
        assert "S3RVER" not in place.public_url.partition("secret_access_key")[2]
        # The folder is free again, and the neighbour is still taken.
        await used(moto.url(f"{folder}/here"), "one")
        with pytest.raises(BadUsage, match="already"):
            await used(moto.url(f"{folder}/mine"), "one")

    async def used_and_kept(url: str) -> None:
        async with ground(None) as place, Database.open(url, cache=str(place.cache)) as db:
            await db.execute(ROWS)

    asyncio.run(main())


def test_a_bucket_that_cannot_be_reached_is_told_as_such() -> None:
    url = "s3://nowhere/here?endpoint=http://127.0.0.1:1&access_key_id=a&secret_access_key=b&region=x"
    with pytest.raises(UnavailableError, match="cannot be listed"):
        asyncio.run(used(url, "one"))


async def schemas(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    try:
        return {row[0] for row in await connection.fetch("SELECT nspname FROM pg_namespace")}
    finally:
        await connection.close()


def test_schemas_are_made_behind_the_name_and_dropped(postgres: str) -> None:
    async def main() -> None:
        before = await schemas(postgres)
        place, addresses = await used(f"{postgres}&schema=grounds_one", "a", "b")
        assert place.kind == "postgres"
        assert [address.partition("schema=")[2] for address in addresses] == ["grounds_one_a", "grounds_one_b"]
        _, [address] = await used(postgres, "a")
        assert "schema=interlock_bench_" in address
        assert await schemas(postgres) == before

    asyncio.run(main())


def test_a_schema_that_exists_is_refused_and_left_alone(postgres: str) -> None:
    async def main() -> None:
        connection = await asyncpg.connect(postgres)
        await connection.execute(
            "CREATE SCHEMA grounds_two; CREATE SCHEMA grounds_three_x; CREATE SCHEMA groundsXfour_x"
        )
        await connection.close()
        for taken in ("grounds_two", "grounds_three"):
            with pytest.raises(BadUsage, match="already"):
                await used(f"{postgres}&schema={taken}", "a")
        await used(f"{postgres}&schema=grounds_four", "a")
        assert {"grounds_two", "grounds_three_x", "groundsxfour_x"} <= await schemas(postgres)

    asyncio.run(main())


def test_a_name_that_leaves_no_room_is_refused(postgres: str) -> None:
    with pytest.raises(BadUsage, match="too long"):
        asyncio.run(used(f"{postgres}&schema={'x' * 41}", "a"))
