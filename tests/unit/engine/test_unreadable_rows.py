"""A row that cannot be read is its own workflow's misfortune: listings show the others (B8)."""

import asyncio
import logging

import msgspec
import pytest

from interlock import Engine
from interlock.errors import CorruptionError
from interlock.store.records import Change
from tests.unit.engine.test_open_engine import Nothing, State, machine


def test_a_row_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        lift = machine()
        async with Engine.open("memory:", machines=[lift]) as engine:
            for each in ("a", "b", "c"):
                await engine.start(lift, each, Nothing())
            row = (await engine._store.load(["b"]))["b"]
            torn = msgspec.structs.replace(row, context=b'{"n":', revision=row.revision + 1)
            assert not await engine._store.commit([Change(torn, row.revision)])
            engine._pipeline._live.clear()
            page = await engine.find(lift, state=State.WAITING)
            assert [view.id for view in page.items] == ["a", "c"]
            assert [view.id for view in await engine.stalled(lift, older_than_s=-1)] == ["a", "c"]
            with pytest.raises(CorruptionError, match="'b'"):
                await engine.get("b")

    with caplog.at_level(logging.ERROR, "interlock.operators"):
        asyncio.run(scenario())
    assert all("workflow 'b' is left out of a listing" in message for message in caplog.messages)
    assert len(caplog.messages) == 2
