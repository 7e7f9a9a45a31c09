"""F2: tasks wait for a person with a role: listed by urgency, claimed, released, and decided once, on every store."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum

import pytest

from interlock import Engine, Event, InvalidTransition, Machine, Task, TaskClaimed, VersionConflict, WorkflowNotFound
from interlock.engine.bound_machine import NOTHING, decode_owed
from interlock.engine.operators import tasks as module
from interlock.errors import BadUsage, InvalidPayload
from interlock.store.lane_store import FIND_IN_STATE, SqliteStore
from interlock.store.postgres.store import PostgresStore
from interlock.store.records import RowsPage
from tests.conformance.engine.places import Place, SetClock, run, settled


class Review(Enum):
    OPEN = "open"
    ESCALATED = "escalated"
    PAYING = "paying"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Refund:
    cents: int = 0
    customer: str = ""
    days: int = 1


class RefundEvent(Event): ...


class Approve(RefundEvent):
    note: str = ""


class Reject(RefundEvent): ...


class Escalate(RefundEvent): ...


class Reopen(RefundEvent): ...


class Comment(RefundEvent):
    text: str = ""


RefundMachine = Machine[Review, Refund, RefundEvent]


def refunds(
    name: str = "refund", due: timedelta | Callable[[Refund], timedelta | None] | None = timedelta(days=1)
) -> RefundMachine:
    machine = Machine(
        name,
        states=Review,
        context=Refund,
        events=RefundEvent,
        initial=Review.OPEN,
        final={Review.REJECTED},
        resting={Review.PAYING},
    )
    machine.on(Approve, Review.OPEN, Review.ESCALATED, to=Review.PAYING)
    machine.on(Reject, Review.OPEN, Review.ESCALATED, to=Review.REJECTED)
    machine.on(Escalate, Review.OPEN, to=Review.ESCALATED)
    machine.on(Reopen, Review.PAYING, to=Review.OPEN)

    @machine.on(Comment, Review.OPEN)
    def commented(refund: Refund, event: Comment) -> Refund:
        return replace(refund, customer=event.text)

    machine.task(Review.OPEN, role="clerk", title="Refund {cents} to {customer}", events=(Approve, Reject), due=due)
    machine.task(Review.ESCALATED, role="manager", title="Decide {{now}}", events=(Approve, Reject))
    return machine


async def listed(engine: Engine, *, limit: int = 100, **chosen: str) -> list[Task]:
    """All tasks, page by page."""
    found: list[Task] = []
    cursor = None
    while True:
        page = await engine.tasks(role=chosen.get("role"), by=chosen.get("by"), limit=limit, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


def names(tasks: list[Task]) -> list[str]:
    return [task.workflow for task in tasks]


def test_a_task_is_listed_with_all_that_a_person_needs(place: Place) -> None:
    async def scenario() -> None:
        machine, clock = refunds(), SetClock()
        async with place.engine(machine, clock=clock) as engine:
            await engine.start(machine, "r-1", Refund(4_200, "ada"))
            await engine.send("r-1", Comment("ada l."))
            view = await engine.get("r-1")
            [task] = (await engine.tasks()).items
            assert (task.id, task.workflow, task.machine, task.state) == ("r-1@1", "r-1", "refund", "open")
            assert (task.version, task.role, task.title) == (view.version, "clerk", "Refund 4200 to ada l.")
            assert (task.since, task.due_at) == (view.created_at, view.created_at + timedelta(days=1))
            assert (task.claimed_by, task.claimed_at, task.overdue) == (None, None, False)
            assert task.events == ("APPROVE", "REJECT")
            assert await engine.task("r-1@1") == task
            await engine.send("r-1", Approve(), expect_version=task.version, by="ada")
            assert await listed(engine) == []

    run(scenario)


def test_the_most_urgent_come_first_and_pages_neither_hide_nor_repeat(place: Place) -> None:
    async def scenario() -> None:
        slow, quick = refunds("slow", timedelta(days=3)), refunds("quick", timedelta(hours=1))
        async with place.engine(slow, quick) as engine:
            for number in range(4):
                await engine.start(slow, f"s-{number}", Refund())
                await engine.start(quick, f"q-{number}", Refund())
            # Without a due time: last.
            await engine.send("q-0", Escalate())
            await engine.send("s-0", Escalate())
            expected = ["q-1", "q-2", "q-3", "s-1", "s-2", "s-3", "q-0", "s-0"]
            for limit in (1, 2, 3, 7, 8, 100):
                assert names(await listed(engine, limit=limit)) == expected
            assert names(await listed(engine, role="manager", limit=1)) == ["q-0", "s-0"]
            assert names(list((await engine.tasks(machine=slow)).items)) == ["s-1", "s-2", "s-3", "s-0"]
            assert await listed(engine, role="nobody") == []
            # Between two pages one ends and another begins: the rest is neither hidden nor shown twice.
            first = await engine.tasks(limit=2)
            await engine.send("q-2", Approve())
            await engine.start(quick, "q-9", Refund())
            rest = await engine.tasks(cursor=first.cursor)
            assert names([*first.items, *rest.items]) == ["q-1", "q-2", "q-3", "q-9", *expected[3:]]

    run(scenario)


def test_tasks_that_began_at_once_are_in_one_order(place: Place) -> None:
    async def scenario() -> None:
        one, two = refunds("one"), refunds("two")
        async with place.engine(one, two) as engine:
            starts = [
                engine.start(machine, f"{machine.name}-{n}", Refund()) for n in range(6) for machine in (one, two)
            ]
            await asyncio.gather(*starts)
            whole = names(await listed(engine))
            assert sorted(whole) == sorted(f"{name}-{n}" for n in range(6) for name in ("one", "two"))
            for limit in (1, 2, 5):
                assert names(await listed(engine, limit=limit)) == whole

    run(scenario)


def test_a_computed_due_time_is_that_of_each_task_and_the_order_is_that_of_entry(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    def due(refund: Refund) -> timedelta | None:
        return timedelta(days=4 // refund.days) if refund.days < 4 else None

    async def scenario() -> None:
        machine = refunds(due=due)
        async with place.engine(machine) as engine:
            for number, days in enumerate((1, 2, 9, 0)):
                await engine.start(machine, f"r-{number}", Refund(days=days))
            found = await listed(engine, limit=1)
            assert names(found) == ["r-0", "r-1", "r-2", "r-3"]
            lengths = [None if task.due_at is None else task.due_at - task.since for task in found]
            # A function that raises hides no task.
            assert lengths == [timedelta(days=4), timedelta(days=2), None, None]
            assert "the due time of the task of workflow 'r-3' cannot be computed" in caplog.text

    run(scenario)


def test_an_overdue_task_is_marked_and_is_stalled(owned: Place) -> None:
    async def scenario() -> None:
        machine, clock = refunds(due=timedelta(hours=1)), SetClock()
        async with owned.engine(machine, clock=clock, worker=False) as engine:
            await engine.start(machine, "r-1", Refund())
            assert not (await engine.task("r-1@1")).overdue
            assert await engine.stalled(machine) == []
            clock.now_s += 3_601
            assert (await engine.task("r-1@1")).overdue
            assert [view.id for view in await engine.stalled(machine)] == ["r-1"]

    run(scenario)


def test_a_claim_names_its_holder_and_is_not_a_move(place: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            view = await engine.start(machine, "r-1", Refund())
            claimed = await engine.claim_task("r-1@1", by="ada")
            assert (claimed.claimed_by, claimed.version) == ("ada", view.version)
            assert claimed.claimed_at is not None
            assert claimed.claimed_at >= claimed.since
            # The same person again changes nothing.
            assert await engine.claim_task("r-1@1", by="ada") == claimed
            with pytest.raises(
                TaskClaimed, match=r"'r-1@1' cannot be claimed: ada has claimed it at 2\d{3}-"
            ) as refused:
                await engine.claim_task("r-1@1", by="bob")
            assert (refused.value.by, refused.value.since) == ("ada", claimed.claimed_at)
            assert (
                "It waits for a person with the role 'clerk': 'Refund 0 to '. ada claimed it"
                in (await engine.why("r-1")).text
            )
            assert len(await engine.history("r-1")) == 1
            assert (await engine.get("r-1")).version == 1
            # A claim goes on through moves that do not leave the state, and refuses no decision.
            await engine.send("r-1", Comment("c"))
            [task] = await listed(engine)
            assert (task.claimed_by, task.claimed_at) == ("ada", claimed.claimed_at)
            await engine.send("r-1", Approve(), by="bob")
            assert (await engine.history("r-1"))[-1].by == "bob"

    run(scenario)


def test_a_release_is_the_holders_or_forced(place: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            assert (await engine.release_task("r-1@1", by="ada")).claimed_by is None
            await engine.claim_task("r-1@1", by="ada")
            with pytest.raises(TaskClaimed, match="cannot be released: ada has claimed it"):
                await engine.release_task("r-1@1", by="bob")
            assert (await engine.release_task("r-1@1", by="ada")).claimed_by is None
            assert (await engine.claim_task("r-1@1", by="bob")).claimed_by == "bob"
            assert (await engine.release_task("r-1@1", by="ada", force=True)).claimed_by is None
            assert (await engine._store.load(["r-1"]))["r-1"].owed == b""

    run(scenario)


def test_a_claim_ends_with_its_visit(place: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            await engine.claim_task("r-1@1", by="ada")
            await engine.send("r-1", Approve(), by="ada")
            await engine.send("r-1", Reopen())
            [task] = await listed(engine)
            assert (task.id, task.claimed_by) == ("r-1@3", None)
            # An old id is never taken for the later visit of the same state.
            for call in (
                engine.claim_task("r-1@1", by="ada"),
                engine.release_task("r-1@1", by="ada"),
                engine.task("r-1@1"),
            ):
                with pytest.raises(VersionConflict, match=r"has ended.*ada decided it with APPROVE") as ended:
                    await call
                assert ended.value.decided is not None
                assert (ended.value.decided.by, ended.value.decided.version) == ("ada", 2)
            for unknown in ("r-1@2", "r-1@4", "r-1", "r-1@x", "r-1@0", "r-2@1", "@1"):
                with pytest.raises((WorkflowNotFound, VersionConflict), match=r"there is no task|has ended"):
                    await engine.task(unknown)

    run(scenario)


def test_a_claim_survives_a_restart(kept: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with kept.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            claimed = await engine.claim_task("r-1@1", by="ada")
        async with kept.engine(machine) as engine:
            assert await engine.task("r-1@1") == claimed
            with pytest.raises(TaskClaimed):
                await engine.claim_task("r-1@1", by="bob")

    run(scenario)


def test_of_two_claims_at_once_one_wins(place: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            claims = [engine.claim_task("r-1@1", by=f"p-{number}") for number in range(8)]
            answers = await asyncio.gather(*claims, return_exceptions=True)
            [won] = [each for each in answers if isinstance(each, Task)]
            lost = [each for each in answers if isinstance(each, TaskClaimed)]
            assert len(lost) == 7
            assert {each.by for each in lost} == {won.claimed_by}

    run(scenario)


def test_the_tasks_of_a_person_are_found_among_those_of_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_MAX", 4)
    monkeypatch.setattr(module, "CHUNK_MAX", 3)

    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            for number in range(10):
                await engine.start(machine, f"r-{number}", Refund())
            for number in (1, 5, 9):
                await engine.claim_task(f"r-{number}@1", by="ada")
            await engine.claim_task("r-6@1", by="bob")
            for limit in (1, 2, 100):
                assert names(await listed(engine, by="ada", limit=limit)) == ["r-1", "r-5", "r-9"]
            assert names(await listed(engine, by="bob")) == ["r-6"]
            assert (await engine.tasks(by="bob")).cursor is not None  # Four were looked at, and none is theirs.

    run(scenario)


def decide(engine: Engine, event: RefundEvent, by: str, *, expect_version: int | None) -> Awaitable[object]:
    return engine.send("r-1", event, by=by, expect_version=expect_version)


@pytest.mark.parametrize("expect_version", [1, None])
def test_of_two_decisions_at_once_one_wins_and_the_other_is_told_who(place: Place, expect_version: int | None) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            answers = await asyncio.gather(
                decide(engine, Approve("n"), "ada", expect_version=expect_version),
                decide(engine, Reject(), "bob", expect_version=expect_version),
                return_exceptions=True,
            )
            [lost] = [each for each in answers if isinstance(each, VersionConflict | InvalidTransition)]
            winner = (await engine.history("r-1"))[-1]
            assert winner.by in {"ada", "bob"}
            assert lost.decided is not None
            assert (lost.decided.by, lost.decided.event) == (winner.by, winner.event)
            assert (lost.decided.at, lost.decided.version) == (winner.created_at, 2)
            assert (lost.decided.from_state, lost.decided.to_state) == ("open", winner.to_state.value)
            assert f"Before that, {winner.by} decided it with {winner.event} at 2" in str(lost)

    run(scenario)


def test_a_late_decision_is_told_of_the_decision_and_not_of_later_moves(place: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            await engine.send("r-1", Comment("c"))
            await engine.send("r-1", Escalate())
            with pytest.raises(VersionConflict, match=r"it was decided with ESCALATE at .* from 'open' to 'escalated'"):
                await decide(engine, Reject(), "bob", expect_version=1)
            await decide(engine, Approve(), "ada", expect_version=None)
            await settled(engine)
            with pytest.raises(InvalidTransition, match="ada decided it with APPROVE"):
                await decide(engine, Reject(), "bob", expect_version=None)
            # Events that decide nothing are refused as ever.
            with pytest.raises(InvalidTransition) as plain:
                await engine.send("r-1", Comment("c"))
            assert plain.value.decided is None
            with pytest.raises(VersionConflict) as outdated:
                await engine.send("r-1", Reopen(), expect_version=4 - 1)
            assert outdated.value.decided is not None
            await engine.start(machine, "r-2", Refund())
            await engine.send("r-2", Comment("c"))
            with pytest.raises(VersionConflict) as moved:
                await engine.send("r-2", Approve(), expect_version=1)
            assert moved.value.decided is None

    run(scenario)


def test_a_claim_needs_a_name_and_a_cursor_its_listing(place: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            with pytest.raises(BadUsage, match="does not name a person"):
                await engine.claim_task("r-1@1", by="")
            with pytest.raises(InvalidPayload, match="not the name of an actor"):
                await engine.claim_task("r-1@1", by="a\nb")
            for cursor in ("", "x", "2.1.1.a", "0.1.1."):
                with pytest.raises(InvalidPayload, match="is not a cursor"):
                    await engine.tasks(cursor=cursor)

    run(scenario)


async def plans_of(engine: Engine) -> list[str]:
    """The plan of the query that reads the tasks of a state."""
    store = engine._store
    if isinstance(store, SqliteStore):
        queries = [
            f"{FIND_IN_STATE} AND entered_at = ? AND number > ? ORDER BY number LIMIT ?",
            f"{FIND_IN_STATE} AND entered_at > ? ORDER BY entered_at, number LIMIT ?",
        ]
        values: list[tuple[object, ...]] = [("refund", "open", 0, 0, 9), ("refund", "open", 0, 9)]
        found = [
            await store._all(f"EXPLAIN QUERY PLAN {sql}", *each) for sql, each in zip(queries, values, strict=True)
        ]
        return ["\n".join(str(row[-1]) for row in rows) for rows in found]
    assert isinstance(store, PostgresStore)
    sql = f"EXPLAIN {store._queries.find_in_state}"
    return ["\n".join(row[0] for row in await store._pool.read(sql, "refund", "open", 0, 0, 9))]


def test_a_page_reads_no_more_than_it_shows_and_by_an_index(kept: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        machine, other = refunds(), refunds("other", None)
        async with kept.engine(machine, other) as engine:
            starts = [engine.start(each, f"{each.name}-{n}", Refund()) for n in range(400) for each in (machine, other)]
            await asyncio.gather(*starts)
            for plan in await plans_of(engine):
                assert "workflows_by_state" in plan, plan
                assert "Seq Scan" not in plan, plan
                assert "SCAN" not in plan, plan
                assert "TEMP B-TREE" not in plan, plan
                assert "Sort" not in plan.replace("Incremental Sort", ""), plan
            read: list[int] = []
            find = engine._store.find

            async def counted(name: str, state: str | None, *, after: str | None, limit: int) -> RowsPage:
                page = await find(name, state, after=after, limit=limit)
                read.append(len(page.rows))
                return page

            monkeypatch.setattr(engine._store, "find", counted)
            first = await engine.tasks(limit=10)
            second = await engine.tasks(limit=10, cursor=first.cursor)
            assert (len(first.items), len(second.items)) == (10, 10)
            assert sum(read) <= 2 * 2 * 15  # Two pages of two states with tasks there, each a little ahead.

    run(scenario)


def test_the_tasks_of_a_home_go_with_it(place: Place) -> None:
    """What a claim is stored in is the row: a copy of the row has it."""

    async def scenario() -> None:
        machine = refunds()
        async with place.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            await engine.claim_task("r-1@1", by="ada")
            row = (await engine._store.load(["r-1"]))["r-1"]
            assert decode_owed(row.owed).claim is not None
            assert (row.version, row.wake_us) == (1, None)
            # A release that knows no claims leaves it out; the rest is as it was.
            assert decode_owed(row.owed.replace(b"claim", b"later")) == NOTHING

    run(scenario)


def test_a_restored_version_of_the_machine_may_have_no_task(kept: Place) -> None:
    async def scenario() -> None:
        machine = refunds()
        async with kept.engine(machine) as engine:
            await engine.start(machine, "r-1", Refund())
            await engine.claim_task("r-1@1", by="ada")
        without = refunds()
        without.declarations.tasks.clear()
        async with kept.engine(without) as engine:
            assert await listed(engine) == []
            with pytest.raises(WorkflowNotFound, match="there is no task 'r-1@1'"):
                await engine.task("r-1@1")
            assert (await engine.send("r-1", Approve())).version == 2

    run(scenario)
