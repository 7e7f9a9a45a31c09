"""Deciding in a transaction of the caller, without a database: what is asked, in which order, and when it gives up."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from interlock.clock import SeededIds
from interlock.core.events import Event
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.caller_transactions import ATTEMPTS_MAX, TransactionCalls
from interlock.engine.internals import EngineParts
from interlock.engine.path.caller_commands import SendEvent, Start
from interlock.errors import VersionConflict
from interlock.store.protocol import LockedWorkflow, StatementGenerator
from interlock.store.records import Change, Delivered, Row
from tests.integration.postgres.transactions.machine import Note, Order, Submit, order

BOUND = BoundMachine(order)


class Book:
    """A store of one workflow, which notes what it is asked."""

    def __init__(self, *, losing: int = 0, now_us: int = 1_000) -> None:
        self.row: Row | None = None
        self.asked: list[str] = []
        self.counted: list[str] = []
        """The states of what was written, as charts count them."""
        self.losing = losing
        self.now_us = now_us

    def transactions(self) -> "Book":
        return self

    def load(self, workflow: str, *, lock: bool) -> StatementGenerator[LockedWorkflow]:
        yield "lock" if lock else "load", ()
        return LockedWorkflow(self.now_us, self.row)

    def delivered(self, workflow: str, key: str) -> StatementGenerator[Delivered | None]:
        yield "key", ()
        return None

    def write(self, change: Change, *, hint: bool) -> StatementGenerator[bool]:
        yield "hinted" if hint else "write", ()
        self.losing -= 1
        if self.losing >= 0:
            return False
        self.row = change.row
        return True


def decided(book: Book, *envelopes: SendEvent | Start) -> list[Any]:
    """The answers; what was asked stands in the book."""
    charts = SimpleNamespace(count_from_thread=lambda staged, _now_us: book.counted.append(staged.live.row.state))
    inside = SimpleNamespace(store=book, refuse_if_closed=lambda: None, machines={BOUND.name: BOUND}, charts=charts)
    calls = TransactionCalls(cast("EngineParts", inside), SeededIds(1), lambda _machine: BOUND)
    answers: list[Any] = []
    for envelope in envelopes:
        asking = calls._decide(envelope)
        try:
            question = next(asking)
            while True:
                book.asked.append(question[0])
                question = asking.send([])
        except StopIteration as end:
            answers.append(end.value)
    return answers


def start(context: Order | None = None) -> Start:
    return Start(BOUND, "o-1", context or Order())


def send(event: Event, **options: Any) -> SendEvent:  # noqa: ANN401 -- those of Send.
    return SendEvent("o-1", event, **options)


def test_a_workflow_is_locked_before_its_key_is_looked_up_and_both_before_it_is_written() -> None:
    book = Book()
    decided(book, start(), send(Note("a"), key="k"), send(Submit(5)))
    assert book.asked == ["load", "write", "lock", "key", "write", "lock", "hinted"]


def test_nothing_begins_and_what_is_owed_is_due_at_once() -> None:
    book = Book()
    decided(book, start(), send(Submit(5)))
    assert book.row is not None
    owed = BOUND.live(book.row).owed
    assert owed.run is not None
    assert (owed.run.attempts, owed.run.started) == (0, False)
    assert book.row.wake_us == book.row.updated_us == 1_000


def test_history_does_not_go_back_in_time_with_the_clock() -> None:
    book = Book(now_us=5_000)
    decided(book, start())
    book.now_us = 3_000
    decided(book, send(Note("a")))
    assert book.row is not None
    assert (book.row.created_us, book.row.updated_us) == (5_000, 5_000)


def test_a_start_that_was_overtaken_is_decided_anew() -> None:
    book = Book(losing=1)
    [view] = decided(book, start())
    assert view.version == 1
    assert book.asked == ["load", "write"] * 2
    assert len(book.counted) == 1


def test_a_start_that_is_overtaken_for_ever_gives_up() -> None:
    book = Book(losing=100)
    with pytest.raises(VersionConflict, match=f"{ATTEMPTS_MAX} times"):
        decided(book, start())
    assert book.asked == ["load", "write"] * ATTEMPTS_MAX
