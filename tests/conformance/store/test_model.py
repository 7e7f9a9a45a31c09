"""Any history of groups and lives: the store on a lane answers exactly as the store in memory, the specification does.

Changes are upon right and wrong revisions, with fresh and used keys, and now and then one that contradicts history.
After every group both are asked everything.
"""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from interlock.errors import InternalError
from interlock.store.memory import MemoryStore
from interlock.store.open_store import open_store
from interlock.store.protocol import Granted, Old, Store
from interlock.store.records import Change, Cursor, HistoryRecord, Letter, OwedEffect, Row
from tests.conformance.store.samples import started
from tests.unit.lanes.lanes import SetClock

IDS = ("a", "b", "c", "d")
KEYS = ("k", "l", "m")
STATES = ("new", "paid")
MACHINES = ("order", "other")
NAMES = ("e", "f", "g")
KINDS = ("step", "undo")

STEPS = 15
"""Each asks both stores everything, so that many short histories say more than a few long ones."""

few_us = st.integers(0, 4)
names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)


class Plan(msgspec.Struct, frozen=True):
    """A change to be made of whatever the workflow is at that time."""

    workflow: str
    wrong_by: int
    machine: str
    state: str
    at_us: int
    active: bool
    wake_us: int | None
    keys: tuple[str | None, ...]
    """One row of history for each."""
    version_by: int
    effects: list[str]
    done: list[str]
    letters: list[str]
    gone: list[str]
    kind: str

    def change(self, before: Row | None) -> Change:
        """The change upon the row that is there, or upon one that is not."""
        revision = max(0, (0 if before is None else before.revision) + self.wrong_by)
        version = (0 if before is None else before.version) + self.version_by
        context = f'"{self.state} {version}"'.encode()
        row = Row(
            self.workflow,
            self.machine if before is None else before.machine,
            1,
            self.state,
            context,
            version + len(self.keys),
            version,
            self.active,
            1,
            self.at_us,
            before.entered_us if before is not None and before.visit == version else self.at_us,
            b"digest",
            b"owed",
            self.wake_us,
            (version, 0, 1),
            revision + 1,
        )
        history = tuple(
            HistoryRecord(
                self.workflow, version + at, "", self.state, "Go", b"{}", context, self.at_us, key, b"d" * bool(key)
            )
            for at, key in enumerate(self.keys, 1)
        )
        effects = tuple(
            OwedEffect(each, self.workflow, version, "mail", version, self.at_us, b"{}") for each in self.effects
        )
        letters = tuple(
            Letter(each, self.kind, self.workflow, "mail", version, "error", self.at_us, version, each)
            for each in self.letters
        )
        return Change(row, revision, history, effects, tuple(self.done), letters, tuple(self.gone))


plans = st.builds(
    Plan,
    workflow=st.sampled_from(IDS),
    wrong_by=st.sampled_from((0, 0, 0, 0, 1, -1)),
    machine=st.sampled_from(MACHINES),
    state=st.sampled_from(STATES),
    at_us=few_us,
    active=st.booleans(),
    wake_us=st.none() | few_us,
    keys=st.lists(st.none() | st.sampled_from(KEYS), max_size=2).map(tuple),
    version_by=st.sampled_from((0, 0, 0, 0, 0, 0, -1)),
    effects=names,
    done=names,
    letters=names,
    gone=names,
    kind=st.sampled_from(KINDS),
)


async def everything(store: Store) -> list[object]:
    """Every answer that a store can give, of more than one page where there are pages."""
    answers: list[object] = [
        await store.load(IDS),
        [await store.history(each) for each in IDS],
        [await store.history(each, after=1, limit=1) for each in IDS],
        await store.delivered([(each, key) for each in IDS for key in KEYS]),
        [await store.stalled(each, dict.fromkeys(STATES, 3), limit=2) for each in MACHINES],
        await store.living(),
        await store.notes(),
    ]
    for machine in MACHINES:
        for state in (None, *STATES):
            page = await store.find(machine, state, after=None, limit=2)
            answers.append(page.rows)
            while page.cursor is not None:
                page = await store.find(machine, state, after=page.cursor, limit=2)
                answers.append(page.rows)
    answers.append(await pages(store.effects))
    answers += [await pages(lambda kind=kind, **more: store.letters(kind, **more)) for kind in (None, *KINDS)]
    return answers


async def pages(ask: Callable[..., Any]) -> list[object]:
    found: list[object] = []
    page = await ask(limit=2)
    while page:
        found.append(page)
        page = await ask(after=page[-1], limit=2)
    return found


class Stores(RuleBasedStateMachine):
    """The specification and the store, told the same."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory(prefix="interlock-store-")
        self.clock = SetClock()
        self.specification: Store = MemoryStore(self.clock)
        self.started = 0

    @initialize()
    def open(self) -> None:
        self.store: Store = self.runner.run(self.opened())

    async def opened(self) -> Store:
        return await open_store(f"lanes://{Path(self.folder.name)}/home", clock=self.clock)

    @rule(group=st.lists(plans, min_size=1, max_size=4, unique_by=lambda plan: plan.workflow))
    def commit(self, group: list[Plan]) -> None:
        async def told(store: Store, changes: list[Change]) -> object:
            try:
                return await store.commit(changes)
            except InternalError:
                return "refused"

        async def both() -> None:
            rows = await self.specification.load(IDS)
            changes = [plan.change(rows.get(plan.workflow)) for plan in group]
            assert await told(self.store, changes) == await told(self.specification, changes)

        self.runner.run(both())

    @rule(name=st.sampled_from(NAMES), text=st.sampled_from(("", "text")))
    def note(self, name: str, text: str) -> None:
        for store in (self.specification, self.store):
            self.runner.run(store.note(name, text))

    @rule(name=st.sampled_from(NAMES), owner=st.sampled_from(IDS), lease_s=st.sampled_from((600.0, -1.0)))
    def acquire(self, name: str, owner: str, lease_s: float) -> None:
        async def told(store: Store) -> object:
            answer = await store.leases.acquire(name, owner, lease_s)
            return answer if isinstance(answer, Granted) else answer.owner

        assert self.runner.run(told(self.store)) == self.runner.run(told(self.specification))

    @rule(name=st.sampled_from(NAMES), token=st.integers(1, 4), lease_s=st.sampled_from((600.0, -1.0, None)))
    def renew_or_release(self, name: str, token: int, lease_s: float | None) -> None:
        async def told(store: Store) -> bool:
            if lease_s is None:
                return await store.leases.release(name, token)
            return await store.leases.renew(name, token, lease_s)

        assert self.runner.run(told(self.store)) == self.runner.run(told(self.specification))

    @rule(
        machine=st.sampled_from(MACHINES),
        state=st.sampled_from(STATES),
        before_us=few_us,
        history_only=st.booleans(),
        owing=st.booleans(),
        dry_run=st.booleans(),
    )
    def prune(
        self, machine: str, state: str, before_us: int, *, history_only: bool, owing: bool, dry_run: bool
    ) -> None:
        old = Old(machine=machine, state=state, before_us=before_us, history_only=history_only, owing=owing)

        async def both() -> None:
            # A lane keeps the workflow that was started last of all, so there is always one that is not asked about.
            if not history_only:
                self.started += 1
                for store in (self.specification, self.store):
                    await store.commit([started(f"last {self.started}", machine="young")])
            # Each goes on from where it is itself: numbers may have gaps, and are not those of the other store.
            afters: list[Cursor | None] = [None, None]
            while True:
                batches = [
                    await store.prune(old, after=after, limit=2, dry_run=dry_run)
                    for store, after in zip((self.specification, self.store), afters, strict=True)
                ]
                first, second = [
                    (sorted(each.workflows), each.events, None if each.after is None else each.after.entered_us)
                    for each in batches
                ]
                assert first == second
                afters = [each.after for each in batches]
                if afters[0] is None:
                    return

        self.runner.run(both())

    @rule(by_s=st.sampled_from((-5.0, 0.5)))
    def time(self, by_s: float) -> None:
        self.clock.now_wall_s += by_s
        assert self.store.now_us() == self.specification.now_us()

    @rule()
    def live_again(self) -> None:
        async def again() -> Store:
            # What was given out and never stored with a group may be forgotten.
            assert self.store.now_us() == self.specification.now_us()
            await self.store.commit([])
            await self.store.close()
            return await self.opened()

        self.store = self.runner.run(again())

    @invariant()
    def the_same_answers(self) -> None:
        if hasattr(self, "store"):
            assert self.runner.run(everything(self.store)) == self.runner.run(everything(self.specification))

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.runner.run(self.store.close())
        finally:
            self.runner.close()
            self.folder.cleanup()


@pytest.mark.slow
def test_a_store_on_a_lane_answers_as_the_specification_does() -> None:
    """G1, G2, G3, B3, B5, B8."""
    run_state_machine_as_test(Stores, settings=settings(stateful_step_count=STEPS))
