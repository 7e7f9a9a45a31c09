"""Programs that follow a move need the password of the target: it is tried first, and they wait for it otherwise."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock import Database
from interlock.chaos.database_servers import OwnPostgres
from interlock.cli.program import main
from interlock.database.inventory import is_absent, marks_at
from interlock.errors import UnavailableError
from interlock.relocate.mover import shown_url
from interlock.urls import without_secrets
from tests.chaos.postgres.campaign import own_postgres
from tests.integration.postgres.moving.places import contents, filled, stirred


@pytest.fixture(scope="module")
def server() -> Generator[OwnPostgres]:
    """A server that asks for a password."""
    with own_postgres() as server:
        yield server


@pytest.fixture
def target(server: OwnPostgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A schema whose password is in the address alone."""
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    return f"{server.url}?schema=c_{tmp_path.name[-20:].replace('-', '_').lower()}"


def test_nothing_is_copied_when_nobody_could_follow(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"lanes://{tmp_path}/shop"
    asyncio.run(filled(source))
    assert main(["route", source, "--to", target]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "cannot log in there" in printed
    assert f"into {tmp_path}/pgpass, here" in printed
    assert "--unchecked-credentials" in printed
    assert asyncio.run(marks_at(source)).state == "lives"
    assert asyncio.run(is_absent(target))


def test_a_password_of_the_environment_is_enough(
    target: str, server: OwnPostgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = f"lanes://{tmp_path}/shop"
    asyncio.run(filled(source))
    monkeypatch.setenv("PGPASSWORD", server._password)
    assert main(["route", source, "--to", target]) == 0


def test_a_password_of_the_service_that_the_address_names_is_enough_for_those_who_follow_too(
    target: str,
    server: OwnPostgres,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, named = f"lanes://{tmp_path}/shop", f"{target}&service=shop"
    services = tmp_path / "pg_service.conf"
    monkeypatch.setenv("PGSERVICEFILE", str(services))

    async def scenario() -> None:
        await filled(source)
        async with Database.open(source) as db:
            expected = await contents(db)
            assert await asyncio.to_thread(lambda: main(["route", source, "--to", named])) == 2
            assert f"password=PASSWORD below [shop] of {services}" in " ".join(capsys.readouterr().err.split())
            services.write_text(f"[shop]\npassword={server._password}\n")
            assert await asyncio.to_thread(lambda: main(["route", source, "--to", without_secrets(named)])) == 0
            assert await contents(db) == expected
            await stirred(db)
            assert (db.engine, db.url) == ("postgres", shown_url(without_secrets(named)))

    asyncio.run(scenario())


def test_who_follows_without_the_password_waits_and_recovers_when_it_appears(
    target: str, server: OwnPostgres, tmp_path: Path
) -> None:
    source = f"lanes://{tmp_path}/shop"

    async def scenario() -> None:
        await filled(source)
        async with Database.open(source, seal_wait_s=0.5) as db:
            expected = await contents(db)
            words = ["route", source, "--to", target, "--unchecked-credentials"]
            assert await asyncio.to_thread(lambda: main(words)) == 0
            with pytest.raises(UnavailableError, match="does not let this user in"):
                await contents(db)
            passwords = tmp_path / "pgpass"
            passwords.write_text(f"*:*:*:*:{server._password}\n")
            passwords.chmod(0o600)
            assert await contents(db) == expected
            await stirred(db)
            assert db.engine == "postgres"

    asyncio.run(scenario())
