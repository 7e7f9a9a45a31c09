"""URLs with a relative path or `~` mean an absolute one wherever a URL is taken; others are refused with a guess."""

import asyncio
from pathlib import Path

import pytest

from interlock import Client, Database, Engine
from interlock.catalog.catalog import Catalog, FolderCatalog
from interlock.catalog.catalog_entries import below
from interlock.dbapi import connect
from interlock.errors import BadUsage
from interlock.examples.order import order
from interlock.server.security.stores import security_at
from interlock.settings import configured_program
from interlock.store.open_store import open_store
from interlock.testing import VirtualClock
from interlock.urls import lane_path, parse_bucket_url, resolve_url

OTHERS = (
    "lanes:///var/shop", "s3://bucket/shop", "postgresql://host/shop", "memory:", "shop", "", "lanes:", "lanes://shop",
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a b%20c" / "here"  # A path is quoted where it becomes part of a URL.
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", f"{tmp_path}/people/ada")
    return folder


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("lanes://./shop", "{here}/shop"),
        ("lanes:./shop/", "{here}/shop"),
        ("lanes:shop", "{here}/shop"),
        ("lanes:shop/eu", "{here}/shop/eu"),
        ("lanes://../shop/./eu", "{here}/../shop/eu"),
        ("lanes:~/shop", "{home}/shop"),
        ("lanes://~/shop", "{home}/shop"),
        ("lanes:/var/shop", "/var/shop"),
        ("lanes:caf%C3%A9", "{here}/café"),
    ],
)
def test_a_relative_path_becomes_absolute(here: Path, tmp_path: Path, url: str, path: str) -> None:
    found = lane_path(resolve_url(url))
    expected = Path(path.format(here=here, home=tmp_path / "people/ada") + ".lane").resolve()
    assert found == expected
    assert resolve_url(resolve_url(url)) == resolve_url(url)


def test_options_stay_and_any_other_text_too() -> None:
    assert resolve_url("lanes:./shop?partitions=8").endswith("/here/shop?partitions=8")
    assert resolve_url("memory://") == "memory:"
    assert [resolve_url(url) for url in OTHERS] == list(OTHERS)


def test_engines_databases_and_connections_take_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        async with Engine.open("lanes:./shop", machines=[order], worker=False):
            pass
        async with Engine.open("memory://", machines=[order], worker=False):
            pass
        async with Database.open("lanes://./shop/stock") as db:
            assert db.url == f"{resolve_url('lanes:.')}/shop/stock"
        async with Database.open("prices", home="lanes:shop") as db:
            monkeypatch.chdir("/")  # What is open stays where it is.
            await db.execute("CREATE TABLE t (n int PRIMARY KEY)")
            monkeypatch.chdir(here)
        assert set(await Catalog("lanes:shop").names()) >= {"prices"}
        store = await open_store("lanes:./shop", clock=VirtualClock())
        await store.close()
        await security_at("lanes:./shop", clock=VirtualClock()).close()

    asyncio.run(use())
    with connect("lanes:./shop/prices") as connection:
        connection.cursor().execute("INSERT INTO t VALUES (1)")
    assert {"workflows.lane", "stock.lane", "prices.lane"} <= {path.name for path in (here / "shop").iterdir()}
    assert FolderCatalog("lanes:./shop").folder == here / "shop"


@pytest.mark.parametrize("home", ["lanes://./data", "lanes:data"])
def test_a_relative_home_in_the_settings_is_beside_the_file(tmp_path: Path, home: str) -> None:
    (tmp_path / "interlock.toml").write_text(f'home = "{home}"\n', encoding="utf-8")
    assert configured_program(environment={}, folder=tmp_path) == {"home": f"lanes://{tmp_path}/data"}


@pytest.mark.parametrize(
    ("url", "guess"),
    [
        ("./shop", "Did you mean lanes://./shop?"),
        ("shop", "Did you mean lanes://./shop?"),
        ("~/shop", "Did you mean lanes://~/shop?"),
        ("/var/shop", "Did you mean lanes:///var/shop?"),
        ("file:///var/shop", "Did you mean lanes:///var/shop?"),
        ("lanes://shop", "Did you mean lanes://./shop, or with three slashes the absolute path lanes:///shop?"),
        ("sqlite:///shop.db", "Did you mean lanes://./shop?"),
        ("sqlite:////var/shop.sqlite3", "Did you mean lanes:///var/shop?"),
        ("sqlite:///:memory:", "Did you mean memory:?"),
        ("sqlite://", "Did you mean memory:?"),
        ("sqlite+aiosqlite://", "Did you mean memory:?"),
        ("memory:///", "Did you mean memory:?"),
        ("memory", "Did you mean memory:?"),
        ("postgresql+asyncpg://ada@db/shop", "Did you mean postgresql://***@db/shop? It needs no driver."),
        ("postgre://db/shop", "Did you mean postgresql://db/shop?"),
        ("S3://bucket/shop", "Did you mean s3://bucket/shop?"),
        ("s3:/bucket/shop", "Did you mean s3://bucket/shop?"),
        ("gcs://bucket/shop", "Did you mean gs://bucket/shop?"),
        ("redis://host", "A Redis is passed as redis= or --redis"),
        ("http://127.0.0.1:8080", "A server is asked with Client(url)"),
        ("mysql://db/shop", "in a folder, lanes:///var/shop, in a bucket or in PostgreSQL"),
        ("", "Write lanes:// and a path: lanes://./shop, or lanes:///var/shop."),
        ("lanes:///var/shop?partition=8", "A folder takes no options. Did you mean lanes:///var/shop?"),
        ("lanes:///var/shop#x", "A folder takes no options. Did you mean lanes:///var/shop?"),
        ("Lanes://./shop", "Did you mean lanes://./shop?"),
        ("postgresql:/db/shop", "Did you mean postgresql://db/shop?"),
        ("foo:bar", "Write lanes:// and a path: lanes://./shop, or lanes:///var/shop."),
    ],
)
def test_another_url_is_refused_with_a_guess(url: str, guess: str) -> None:
    for opened in (lambda: asyncio.run(open_store(url, clock=VirtualClock())), lambda: FolderCatalog(url)):
        with pytest.raises(BadUsage) as caught:
            opened()
        assert guess in caught.value.fix
    with pytest.raises(BadUsage) as caught:
        lane_path(url)
    assert guess.removesuffix("shop.").removesuffix("/var/") in caught.value.fix


def test_the_guess_shows_no_secret() -> None:
    with pytest.raises(BadUsage) as caught:
        FolderCatalog("postgresql+psycopg://ada:secret@db/shop?password=hidden")
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_bucket_without_a_name_is_said_to_have_none() -> None:
    with pytest.raises(BadUsage, match="names no bucket"):
        parse_bucket_url(below("s3://", "workflows"))
    assert below("s3://bucket//", "workflows") == "s3://bucket/workflows"


def test_a_client_takes_the_url_of_a_server_only() -> None:
    with pytest.raises(BadUsage, match="http"):
        Client("lanes:./shop")
    with pytest.raises(BadUsage) as refused:
        Client("127.0.0.1:8080")
    assert refused.value.fix == "Did you mean http://127.0.0.1:8080?"


def test_a_tilde_after_three_slashes_is_refused_and_makes_no_folder() -> None:
    with pytest.raises(BadUsage) as caught:
        resolve_url("lanes:///~/shop")
    assert "three slashes" in caught.value.what
    assert caught.value.fix == "Write lanes://~/shop."
