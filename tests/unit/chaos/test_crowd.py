"""A crowd takes every connection; its administrator waits for a reserved one."""

import asyncio
from collections.abc import Sequence

import pytest

from interlock.chaos import scenarios as module
from interlock.chaos.scenarios import Crowd


class TooManyError(Exception):
    pass


class FakeConnection:
    def terminate(self) -> None:
        pass

    async def fetch(self, sql: str, *values: str) -> Sequence[object]:
        return [object(), object()]


class FakeDriver:
    """A server that refuses the first attempts of everybody."""

    TooManyConnectionsError: type[Exception] = TooManyError

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    async def connect(self, url: str, *, server_settings: dict[str, str]) -> FakeConnection:
        if self.refusals:
            self.refusals -= 1
            raise TooManyError
        return FakeConnection()


def push_out(refusals: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "CROWD_RETRY_S", 0.0)
    driver = FakeDriver(refusals)
    monkeypatch.setattr(module, "import_module", lambda _: driver)
    return asyncio.run(Crowd("postgresql://shop").push_out("postgresql://postgres", "shop"))


def test_the_administrator_asks_again_while_attempts_to_connect_hold_the_reserved_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert push_out(3, monkeypatch) == 2


def test_a_server_that_never_has_a_connection_for_its_administrator_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(TooManyError):
        push_out(module.CROWD_RETRIES_MAX + 1, monkeypatch)
