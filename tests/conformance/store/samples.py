"""Sample changes: workflows of a machine that sells something, and their way through it."""

import asyncio
from collections.abc import Awaitable, Callable

from interlock.store.protocol import Store
from interlock.store.records import Change, HistoryRecord, Letter, OwedEffect, Row

MACHINE = "order"


def started(
    workflow: str = "w",
    *,
    machine: str = MACHINE,
    machine_version: int = 1,
    state: str = "new",
    at_us: int = 1_000,
    active: bool = True,
    context: bytes = b'{"n":1}',
    wake_us: int | None = None,
    key: str | None = None,
    by: str | None = None,
) -> Change:
    """A workflow begins, with one row of history."""
    row = Row(
        workflow,
        machine,
        machine_version,
        state,
        context,
        1,
        1,
        active,
        at_us,
        at_us,
        at_us,
        digest=b"\x00digest\xff",
        wake_us=wake_us,
    )
    happened = HistoryRecord(workflow, 1, "", state, "STARTED", b"", context, at_us, key, b"d" if key else b"", by)
    return Change(row, 0, (happened,))


def moved(
    before: Row,
    *,
    state: str = "paid",
    at_us: int | None = None,
    key: str | None = None,
    digest: bytes = b"\x01\x00",
    context: bytes = b'{"n":2}',
    wake_us: int | None = None,
    owed: bytes = b"\x00owed\xff",
    effects: tuple[OwedEffect, ...] = (),
    effects_done: tuple[str, ...] = (),
    letters: tuple[Letter, ...] = (),
    letters_gone: tuple[str, ...] = (),
    by: str | None = "ada ☂",
    attempts: bytes = b'[["pay-1",5,"\xe2\x98\x82:1",1]]',
) -> Change:
    """A workflow moves on to a state, with one row of history."""
    version, now_us = before.version + 1, before.updated_us + 10 if at_us is None else at_us
    row = Row(
        before.id,
        before.machine,
        before.machine_version,
        state,
        context,
        version,
        version,
        before.active,
        before.created_us,
        now_us,
        now_us,
        before.digest,
        owed,
        wake_us,
        (1, 2, 3),
        before.revision + 1,
    )
    happened = HistoryRecord(
        before.id,
        version,
        before.state,
        state,
        "Pay",
        b'{"cents":9}',
        context,
        now_us,
        key,
        digest if key else b"",
        by,
        attempts,
    )
    return Change(row, before.revision, (happened,), effects, effects_done, letters, letters_gone)


def effect(name: str, *, wake_us: int = 5_000, attempts: int = 0, workflow: str = "w") -> OwedEffect:
    """A mail that is owed."""
    return OwedEffect(name, workflow, 2, "mail", attempts, wake_us, b'{"cents":5}')


def letter(name: str, *, since_us: int = 6_000, kind: str = "effect", workflow: str = "w") -> Letter:
    """A mail that could not be sent."""
    return Letter(name, kind, workflow, "mail", 3, "refused: ☂", since_us, 2, f"key-{name}", b'{"cents":5}')


async def begun(store: Store, *changes: Change) -> list[Row]:
    """Commit changes that must not be lost; returns their rows."""
    assert await store.commit(changes) == []
    return [change.row for change in changes]


async def nothing_of(store: Store, *workflows: str) -> None:
    """Nothing is there of workflows that were never begun."""
    assert await store.load(workflows) == {}
    for each in workflows:
        assert await store.history(each) == []
    assert await store.effects(limit=10) == []
    assert await store.letters(limit=10) == []


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run an async scenario to its end."""

    async def main() -> None:
        await scenario()

    asyncio.run(main())
