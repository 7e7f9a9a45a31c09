"""The suite must be able to fail: each of these lanes breaks one promise, and the check of that promise notices."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from interlock.lanes import sqlite_connection as connections
from interlock.lanes.idempotency_keys import Keys, Query
from interlock.lanes.lane import Lane, notify_waiters
from interlock.lanes.writer import Lookout, Work, Writer
from tests.sabotage import checks
from tests.sabotage.checks import Check

Sabotage = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_commit(patch: pytest.MonkeyPatch) -> None:
    execute = Lane._executed

    def executed(lane: Lane, group: Sequence[Work]) -> Writer:
        writer = execute(lane, group)
        notify_waiters(group)
        return writer

    patch.setattr(Lane, "_executed", executed)


def acknowledge_before_the_loop_commits(patch: pytest.MonkeyPatch) -> None:
    commit = Writer.commit

    def later(writer: Writer) -> None:
        try:
            asyncio.get_running_loop().call_soon(commit, writer)
        except RuntimeError:  # This is the driver.
            commit(writer)

    patch.setattr(Writer, "commit", later)


def no_sync(patch: pytest.MonkeyPatch) -> None:
    def open_writer(
        path: Path | None, *, vfs: str | None = None, check: connections.Check | None = None, sync: bool = True
    ) -> apsw.Connection:
        connection = connections.open_writer(path, vfs=vfs, check=check, sync=sync)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    patch.setattr("interlock.lanes.file.open_writer", open_writer)


def no_savepoint(patch: pytest.MonkeyPatch) -> None:
    control = Writer._control

    def careless(writer: Writer, sql: str, values: tuple[int, ...] = ()) -> None:
        if sql not in {writer._save, writer._release, writer._undo}:
            control(writer, sql, values)

    patch.setattr(Writer, "_control", careless)


def no_look_for_a_vanished_group(patch: pytest.MonkeyPatch) -> None:
    class Blind:
        in_transaction = True

        def __init__(self, connection: apsw.Connection) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    init = Writer.__init__

    def blinded(writer: Writer, *args: object, **named: object) -> None:
        init(writer, *args, **named)  # type: ignore[arg-type]
        writer.connection = Blind(writer.connection)  # type: ignore[assignment]

    patch.setattr(Writer, "__init__", blinded)


def control_statements_without_the_mark(patch: pytest.MonkeyPatch) -> None:
    init = Writer.__init__

    def unmarked(writer: Writer, *args: object, **named: object) -> None:
        init(writer, *args, **named)  # type: ignore[arg-type]
        for name in ("_begin", "_commit", "_save", "_release", "_undo"):
            setattr(writer, name, getattr(writer, name).partition(" -- ")[0])

    patch.setattr(Writer, "__init__", unmarked)


def hand_off_ignored(patch: pytest.MonkeyPatch) -> None:
    write = Lane._write

    def careless(lane: Lane, group: Sequence[Work]) -> None:
        lane._log, kept = None, lane._log
        write(lane, group)
        lane._log = kept

    patch.setattr(Lane, "_write", careless)


def reads_that_skip_g7(patch: pytest.MonkeyPatch) -> None:
    async def at_once(_lane: Lane, _groups: int) -> None:
        pass

    patch.setattr(Lane, "durable_up_to", at_once)


def interactive_among_others(patch: pytest.MonkeyPatch) -> None:
    submit = Lane.submit

    def together(lane: Lane, work: Work, *, alone: bool = False) -> asyncio.Future[object]:
        del alone
        return submit(lane, work)

    patch.setattr(Lane, "submit", together)


def keys_in_another_transaction(patch: pytest.MonkeyPatch) -> None:
    remember, commit = Keys.remember, Writer.commit
    pending: list[tuple[Keys, Query, int, str, bytes, object]] = []

    def later(keys: Keys, query: Query, now_us: int, key: str, digest: bytes, result: object) -> None:
        pending.append((keys, query, now_us, key, digest, result))

    def both(writer: Writer) -> None:
        commit(writer)
        writer._control(writer._begin)
        with writer._wall.down():
            for work in pending:
                remember(*work)
        pending.clear()
        commit(writer)

    patch.setattr(Keys, "remember", later)
    patch.setattr(Writer, "commit", both)


def no_look_for_a_tombstone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lookout, "look", lambda _lookout: None)


def a_look_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    def careless(writer: Writer) -> None:
        with writer._wall.down():
            writer._lookout.look()
        writer._control(writer._begin)

    patch.setattr(Writer, "_open_group", careless)


SABOTAGES: list[tuple[Sabotage, Check]] = [
    (acknowledge_before_commit, checks.acknowledged_survives_power_cuts),
    (acknowledge_before_the_loop_commits, checks.what_a_loop_wrote_survives_power_cuts),
    (no_sync, checks.acknowledged_survives_power_cuts),
    (no_sync, checks.what_a_loop_wrote_survives_power_cuts),
    (keys_in_another_transaction, checks.acknowledged_survives_power_cuts),
    (no_savepoint, checks.a_failure_stays_alone),
    (no_look_for_a_vanished_group, checks.a_vanished_group_is_run_again),
    (control_statements_without_the_mark, checks.a_commit_inside_is_refused),
    (hand_off_ignored, checks.no_acknowledgement_before_the_hand_off),
    (reads_that_skip_g7, checks.no_read_before_the_hand_off),
    (reads_that_skip_g7, checks.no_interactive_read_before_the_hand_off),
    (interactive_among_others, checks.no_acknowledgement_waits_for_an_interactive_transaction),
    (no_look_for_a_tombstone, checks.nothing_happens_at_a_place_that_was_left),
    (a_look_before_the_lock, checks.nothing_happens_at_a_place_that_was_left),
]
CHECKS = list(dict.fromkeys(check for _, check in SABOTAGES))


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_the_lane_holds(tmp_path: Path, check: Check) -> None:
    asyncio.run(_run(check, tmp_path))


@pytest.mark.campaign
@pytest.mark.parametrize(("sabotage", "check"), SABOTAGES, ids=[sabotage.__name__ for sabotage, _ in SABOTAGES])
def test_sabotage_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, check: Check) -> None:
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        asyncio.run(_run(check, tmp_path))


async def _run(check: Check, folder: Path) -> None:
    await check(folder)
