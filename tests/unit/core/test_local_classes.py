"""Machines built inside a function, in a module whose annotations are all texts."""

# mypy: ignore-errors
# Wrong programs, and values of every type, are what is tested here.

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import pytest

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.core.values import StepContext, StepFailure
from interlock.errors import DefinitionError


class State(Enum):
    A = "a"
    B = "b"


def test_local_classes_in_signatures_are_resolved_and_judged() -> None:
    @dataclass(frozen=True)
    class Box:
        n: int = 0

    class BoxEvent(Event):
        pass

    @dataclass(frozen=True)
    class Go(BoxEvent):
        n: int = 1

    @dataclass(frozen=True)
    class Other(BoxEvent):
        pass

    box = Machine("box", states=State, context=Box, events=BoxEvent, initial=State.A, final={State.B})

    def small(box: Box, event: Go) -> bool:
        return box.n < event.n

    def foreign(box: Box, event: Other) -> bool:
        return True

    with pytest.raises(DefinitionError) as caught:
        box.on(Go, State.A, to=State.B, when=foreign)
    assert caught.value.rule == "wrong-signature"

    @box.on(Go, State.A, to=State.B, when=small)
    def go(box: Box, event: Go) -> Box:
        return replace(box, n=event.n)

    @box.step(State.A, timeout_s=1, failed=State.B)
    async def work(box: Box, ctx: StepContext) -> Go:
        return Go()

    @work.failed
    def give_up(box: Box, failure: StepFailure) -> Box:
        return box

    assert box.compiled.steps["work"].step.returns == (Go,)
    assert box.apply(box.begin(Box()), Go(3)).context == Box(3)


def test_a_field_whose_class_is_local_is_a_mistake_that_says_where() -> None:
    @dataclass(frozen=True)
    class Item:
        n: int = 0

    @dataclass(frozen=True)
    class Box:
        item: Item = Item()

    class BoxEvent(Event):
        pass

    @dataclass(frozen=True)
    class Go(BoxEvent):
        pass

    box = Machine("box", states=State, context=Box, events=BoxEvent, initial=State.A, final={State.B})
    box.on(Go, State.A, to=State.B)
    with pytest.raises(DefinitionError) as caught:
        box.begin(Box())
    error = caught.value
    assert error.rule == "unresolvable-annotation"
    assert "Item" in error.what
    assert "annotations" in error.fix
    assert error.location.startswith(__file__)
    assert isinstance(error.__cause__, NameError)
