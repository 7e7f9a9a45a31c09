"""A mover's connection: its transactions, the locks that it tries again, and the server that it waits for."""

import asyncio
from collections.abc import Mapping

import asyncpg
import pytest

from interlock.errors import UnavailableError
from interlock.postgres.pool import Driver, PostgresRow
from interlock.postgres.translate_errors import NotNow
from interlock.relocate import postgres_link
from interlock.relocate.postgres_link import MoverLink
from interlock.urls import PostgresAddress, parse_postgres_url
from tests.unit.postgres.test_pool import Wire

ADDRESS = parse_postgres_url("postgresql://shop@localhost/shop")
POOLED = parse_postgres_url("postgresql://shop@localhost/shop?pgbouncer=true")


class Script(Wire):
    """Writes down what it is to run; a lock fails as often as it is told."""

    def __init__(self, *, locks_refused: int = 0) -> None:
        super().__init__()
        self.ran: list[str] = []
        self._refused = locks_refused

    async def fetch(self, sql: str, /, *values: object, timeout: float | None = None) -> list[PostgresRow]:  # noqa: ASYNC109
        self.ran.append(sql)
        return []

    async def execute(self, sql: str, /, *, timeout: float | None = None) -> str:  # noqa: ASYNC109 -- the driver's.
        self.ran.append(sql)
        if sql == "LOCK" and self._refused:
            self._refused -= 1
            raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout")
        return ""


def test_a_transaction_in_a_transaction_joins_it() -> None:
    async def scenario() -> None:
        script = Script()
        link = MoverLink(script, ADDRESS)
        async with link.transaction("FIRST"), link.transaction("SECOND"):
            await link.fetch("SELECT 1")
        assert script.ran == ["BEGIN; FIRST", "SELECT 1", "COMMIT"]

    asyncio.run(scenario())


def test_a_block_may_end_its_transaction_itself() -> None:
    async def scenario() -> None:
        script = Script()
        link = MoverLink(script, ADDRESS)
        async with link.transaction():
            await link.rollback()
        async with link.transaction():
            await link.commit()
        with pytest.raises(KeyError):
            async with link.transaction():
                raise KeyError
        assert script.ran == ["BEGIN; ", "ROLLBACK", "BEGIN; ", "COMMIT", "BEGIN; ", "ROLLBACK"]

    asyncio.run(scenario())


def test_a_statement_through_a_pooler_has_a_transaction_of_its_own() -> None:
    async def scenario() -> None:
        script = Script()
        await MoverLink(script, POOLED).fetch("SELECT 1")
        assert script.ran == ["BEGIN; ", "SELECT 1", "COMMIT"]

    asyncio.run(scenario())


def test_a_lock_that_another_client_holds_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_link, "PAUSE_S", 0.0)

    async def scenario() -> None:
        script = Script(locks_refused=2)
        link = MoverLink(script, ADDRESS)
        async with link.locked(lambda: link.execute("LOCK"), "there"):
            await link.execute("LEAVE")
        assert script.ran.count("LOCK") == 3
        assert script.ran[-3:] == ["SET LOCAL lock_timeout = 10000", "LEAVE", "COMMIT"]

    asyncio.run(scenario())


def test_who_gets_no_lock_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_link, "PAUSE_S", 0.0)

    async def scenario() -> None:
        link = MoverLink(Script(locks_refused=10**9), ADDRESS)
        with pytest.raises(UnavailableError, match="the tables of there could not be locked"):
            async with link.locked(lambda: link.execute("LOCK"), "there", wait_s=0.01):
                raise AssertionError

    asyncio.run(scenario())


@pytest.mark.parametrize("patient", [False, True])
def test_a_patient_mover_waits_for_a_server_that_restarts(patient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [NotNow("the server is starting.")]

    async def connect(_address: PostgresAddress, _settings: Mapping[str, str]) -> Driver:
        if refusals:
            raise refusals.pop()
        return Script()

    monkeypatch.setattr(postgres_link, "driver_of", connect)
    monkeypatch.setattr(postgres_link, "PATIENT_PAUSE_S", 0.0)

    async def scenario() -> None:
        if not patient:
            with pytest.raises(NotNow):
                await MoverLink.opened(ADDRESS, {})
            return
        link = await MoverLink.opened(ADDRESS, {}, patient=True)
        await link.end()
        assert not link.usable

    asyncio.run(scenario())
