"""Bad input, all of it in one table: the right class and code, the cause chained, and nothing changed."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pytest

from interlock.core.decide import decide
from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import Snapshot
from interlock.errors import InterlockError, InvalidPayload, InvalidTransition, PayloadTooLarge, UserCodeError
from tests.unit.core import machines


class State(Enum):
    OPEN = "open"
    CLOSED = "closed"


class Stranger(Enum):
    OPEN = "open"


@dataclass(frozen=True)
class Box:
    size: float = 0.0
    label: str = ""


class BoxEvent(Event):
    pass


@dataclass(frozen=True)
class Close(BoxEvent):
    answer: Any = True
    size: float = 0.0


@dataclass(frozen=True)
class Break(BoxEvent):
    pass


@dataclass(frozen=True)
class Shrink(BoxEvent):
    pass


@dataclass(frozen=True)
class Plain(BoxEvent):
    size: float = 0.0


class StrangeEvent(Event):
    pass


@dataclass(frozen=True)
class Odd(StrangeEvent):
    pass


class OpaqueEvent(BoxEvent):
    """Only a group."""


@dataclass(frozen=True)
class Hide(OpaqueEvent):
    pass


def guard(box: Box, event: Close):  # noqa: ANN201 -- it gives what the test wants, right or wrong.
    if event.answer == "raise":
        raise ZeroDivisionError("in the guard")
    return event.answer


def box_machine() -> Machine[State, Box, BoxEvent]:
    box = Machine("box", states=State, context=Box, events=BoxEvent, initial=State.OPEN, final={State.CLOSED})
    box.on(Close, State.OPEN, to=State.CLOSED, when=guard)
    box.on(Plain, State.OPEN, to=State.CLOSED)

    @box.on(Break, State.OPEN, to=State.CLOSED)
    def breaks(box: Box, event: Break) -> Box:
        raise KeyError("in the action")

    @box.on(Shrink, State.OPEN, to=State.CLOSED)
    def shrinks(box, event):  # noqa: ANN001, ANN202 -- it gives what it must not.
        return {"size": 1}

    return box


def simple_machine() -> Machine[State, Box, BoxEvent]:
    class SimpleEvent(Event):
        pass

    @dataclass(frozen=True)
    class Resize(SimpleEvent):
        size: float = 0.0

    simple = Machine("box", states=State, context=Box, events=SimpleEvent, initial=State.OPEN, final={State.CLOSED})

    @simple.on(Resize, State.OPEN, to=State.CLOSED)
    def resize(box: Box, event: Resize) -> Box:
        return replace(box, size=event.size)

    return simple


OPEN = Snapshot(State.OPEN, Box(size=1), 3, 2)
DEEP = b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
Attempt = Callable[[], object]

TABLE: dict[str, tuple[type[InterlockError], str, Attempt]] = {
    "unknown state": (InvalidPayload, "open", lambda: box_machine().decide(Snapshot(Stranger.OPEN, Box()), Plain())),
    "state as text": (InvalidPayload, "State.OPEN", lambda: box_machine().decide(Snapshot("open", Box()), Plain())),
    "state is nothing": (InvalidPayload, "None", lambda: box_machine().decide(Snapshot(None, Box()), Plain())),
    "stored state": (InvalidPayload, "opne", lambda: box_machine().state("opne")),
    "foreign event": (InvalidPayload, "ODD", lambda: box_machine().decide(OPEN, Odd())),
    "the alphabet": (InvalidPayload, "BOX_EVENT", lambda: box_machine().decide(OPEN, BoxEvent())),
    "a group": (InvalidPayload, "OPAQUE_EVENT", lambda: box_machine().decide(OPEN, OpaqueEvent())),
    "a class": (InvalidPayload, "class Plain", lambda: box_machine().decide(OPEN, Plain)),
    "no event": (InvalidPayload, "NoneType", lambda: box_machine().decide(OPEN, None)),
    "event as text": (InvalidPayload, "is the text 'PLAIN'", lambda: box_machine().decide(OPEN, "PLAIN")),
    "unknown event name": (InvalidPayload, "Did you mean", lambda: simple_machine().codec.decode_event("RESIZ", b"")),
    "unknown field": (InvalidPayload, "'sise'", lambda: simple_machine().codec.decode_event("RESIZE", b'{"sise": 1}')),
    "wrong type": (InvalidPayload, "size", lambda: simple_machine().codec.decode_event("RESIZE", b'{"size": "1"}')),
    "wrong type in": (InvalidPayload, "size", lambda: simple_machine().begin(Box(size="1"))),
    "NaN": (InvalidPayload, "nan", lambda: simple_machine().begin(Box(size=float("nan")))),
    "NaN as text": (InvalidPayload, "does not fit", lambda: simple_machine().codec.decode_context(b'{"size": NaN}')),
    "infinity": (InvalidPayload, "inf", lambda: simple_machine().at(State.OPEN, Box(size=float("-inf")))),
    "NUL": (InvalidPayload, "NUL", lambda: simple_machine().begin(Box(label="\x00"))),
    "surrogate": (InvalidPayload, "surrogate", lambda: simple_machine().begin(Box(label="\udfff"))),
    "deep nesting": (InvalidPayload, "deep", lambda: simple_machine().codec.decode_event("RESIZE", DEEP)),
    "10 MB": (PayloadTooLarge, "limit", lambda: simple_machine().begin(Box(label="x" * 10_000_000))),
    "10 MB in": (PayloadTooLarge, "limit", lambda: simple_machine().codec.decode_context(b" " * 10_000_000)),
    "guard raises": (UserCodeError, "guard", lambda: box_machine().decide(OPEN, Close("raise"))),
    "guard says 1": (UserCodeError, "1 (int)", lambda: box_machine().decide(OPEN, Close(1))),
    "guard says 0": (UserCodeError, "0 (int)", lambda: box_machine().decide(OPEN, Close(0))),
    "guard says nothing": (UserCodeError, "NoneType", lambda: box_machine().decide(OPEN, Close(None))),
    "guard says text": (UserCodeError, "str", lambda: box_machine().decide(OPEN, Close("yes"))),
    "action raises": (UserCodeError, "breaks", lambda: box_machine().decide(OPEN, Break())),
    "action returns a dict": (UserCodeError, "shrinks", lambda: box_machine().decide(OPEN, Shrink())),
}

RAISES = {"guard raises": ZeroDivisionError, "action raises": KeyError}


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_is_refused_by_class_and_code_and_changes_nothing(case: str) -> None:
    cls, word, attempt = TABLE[case]
    with pytest.raises(InterlockError) as caught:
        attempt()
    error = caught.value
    assert type(error) is cls
    assert error.code == cls.code
    assert error.retry == "never"
    assert word in error.what
    assert error.why
    assert error.fix
    if case in RAISES:
        assert isinstance(error.__cause__, RAISES[case])
    assert Snapshot(State.OPEN, Box(size=1), 3, 2) == OPEN


def test_the_neighbours_of_bad_input_are_good() -> None:
    assert box_machine().decide(OPEN, Close(answer=True)).snapshot.state is State.CLOSED
    simple = simple_machine()
    event = simple.codec.decode_event("RESIZE", b'{"size": 2}')
    assert simple.apply(simple.begin(Box()), event).context == Box(size=2)


class Mute(Exception):
    """An exception whose text cannot be read."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_exception_whose_text_cannot_be_read_is_an_error_of_user_code_all_the_same() -> None:
    from interlock.core.decide import user_code_error  # noqa: PLC0415 -- this test alone needs it.

    machine = box_machine()
    node = next(iter(machine.compiled.nodes.values()))
    error = user_code_error(machine.compiled, node, "BREAK", "action print", Mute())
    assert error.what.endswith("raised Mute: (its text cannot be read)")
    assert (error.machine, error.event) == (machine.name, "BREAK")


def test_a_name_in_place_of_an_event_is_answered_with_its_class() -> None:
    machine = box_machine()
    first = next(iter(machine.compiled.events.values())).__name__
    for text, example in [("CLOSE", "Close"), ("CLOSED", first)]:
        with pytest.raises(InvalidPayload, match="the event is the text") as refused:
            machine.apply(machine.begin(Box()), text)
        assert refused.value.fix == f"Send an instance: {example}(...)."
    assert "Did you mean CLOSE?" in refused.value.what


def test_what_a_step_returned_instead_of_an_event_is_answered_with_the_step_and_its_events() -> None:
    machine = machines.order_machine()
    charging = machine.at(machines.State.CHARGING, machines.Order())
    for value in ("CHARGED", None, machines.Charged):
        with pytest.raises(InvalidPayload, match="step charge returned") as refused:
            decide(machine.compiled, charging, value, result=True)  # type: ignore[arg-type]
        assert refused.value.fix == "Return Charged(...) or Again(...)."


def test_a_refusal_in_an_end_state_asks_for_no_other_event() -> None:
    machine = box_machine()
    ended = machine.apply(machine.begin(Box()), Close())
    with pytest.raises(InvalidTransition) as refused:
        machine.apply(ended, Close())
    assert refused.value.fix == "Start another workflow if this one has ended, or declare CLOSE from 'closed'."
