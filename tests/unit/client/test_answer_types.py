"""Which types an answer has: a machine's own where it is known, plain ones elsewhere."""

from dataclasses import dataclass
from enum import Enum

import pytest

from interlock import Event, Machine
from interlock.client import workflow_requests as module
from interlock.client.workflow_requests import KnownMachines
from interlock.errors import InvalidPayload
from interlock.wire import ShownMove
from tests.unit.client.server import Server
from tests.unit.client.shop import Cancel, Note, Order, State, Submit, order
from tests.unit.client.wires import Reply, WiredClient, run


class InvoiceState(Enum):
    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True)
class Invoice:
    cents: int = 0


class InvoiceEvent(Event):
    pass


@dataclass(frozen=True)
class InvoiceNote(InvoiceEvent):
    wire_name = "NOTE"
    text: str


invoice: Machine[InvoiceState, Invoice, InvoiceEvent] = Machine(
    "invoice",
    states=InvoiceState,
    context=Invoice,
    events=InvoiceEvent,
    initial=InvoiceState.OPEN,
    final={InvoiceState.DONE},
)
invoice.on(InvoiceNote, InvoiceState.OPEN, to=InvoiceState.DONE)


def test_an_event_says_which_machine_it_is_of_unless_two_take_it() -> None:
    known = KnownMachines([order, invoice])
    moved = ShownMove(id="o-1", state="done", version=2)
    assert known.of_event(Note("x")).moved(moved).state is State.DONE
    assert known.of_event(InvoiceNote("x")).moved(moved).state is InvoiceState.DONE
    assert known.of_event("SUBMIT").moved(moved).state is State.DONE
    assert known.of_event("NOTE") is known.plain
    assert known.of_event("NEVER_HEARD_OF") is known.plain
    assert KnownMachines().of_event(Submit(5)).moved(moved).state.value == "done"


def test_machines_are_known_by_name_and_not_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """G6."""
    monkeypatch.setattr(module, "READERS_MAX", 1)
    known = KnownMachines([order])
    assert known.named("order") is known.of(order)
    assert known.named("invoice") is known.plain
    assert known.named("invoice") is not known.of(invoice)
    assert known.named("order") is known.plain


def test_a_context_of_another_version_is_told_and_can_be_had_plain() -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, machines=[order])
        await client.start(order, "o-1", Order())
        told = (
            b'{"id":"o-1","machine":"order","state":"draft","context":{"cents":"many"},"version":1,'
            b'"created_at":"2027-01-01T00:00:00Z","updated_at":"2027-01-01T00:00:00Z"}'
        )
        server.weather.extend([Reply(body=told), Reply(body=told)])
        with pytest.raises(InvalidPayload) as mismatch:
            await client.get("o-1")
        assert "client.of('order').get" in mismatch.value.fix
        assert (await client.of("order").get("o-1")).context == {"cents": "many"}

    run(test)


def test_the_machine_of_a_workflow_is_asked_for_once_and_only_if_one_is_known() -> None:
    async def test() -> None:
        server = Server()
        await WiredClient(server.net).start(order, "o-1", Order())
        server.net.got.clear()
        knowing, plain = WiredClient(server.net, machines=[order]), WiredClient(server.net)
        await plain.history("o-1")
        assert [got.path for got in server.net.got] == ["/v1/workflows/o-1/history"]
        server.net.got.clear()
        await knowing.history("o-1")
        assert [each.to for each in await knowing.allowed("o-1", Cancel())]
        assert [got.path.rpartition("/")[2] for got in server.net.got] == ["o-1", "history", "allowed"]

    run(test)
