"""Versions of one machine: version 2 adds a field to the context, version 3 stores what version 1 stores."""

# ruff: noqa: ANN401 -- the context is of another class in another version.

import asyncio
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from interlock import Event, Machine, StepContext
from tests.conformance.engine.places import AnyMachine


class State(Enum):
    OPEN = "open"
    PACKING = "packing"
    DONE = "done"


@dataclass(frozen=True)
class Order:
    notes: int = 0


@dataclass(frozen=True)
class RichOrder:
    notes: int = 0
    currency: str = "EUR"


class OrderEvent(Event):
    pass


@dataclass(frozen=True)
class Note(OrderEvent):
    pass


@dataclass(frozen=True)
class Pack(OrderEvent):
    pass


@dataclass(frozen=True)
class Packed(OrderEvent):
    pass


@dataclass
class Warehouse:
    """The world outside: which versions packed and told, and gates that attempts of a version wait for."""

    packed: list[int] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    gates: dict[int, asyncio.Event] = field(default_factory=dict)


def order(version: int, warehouse: Warehouse | None = None, *, after_s: float | None = None) -> AnyMachine:
    """The machine of a version. An event that version 2 handles leaves dollars in the context."""
    world = warehouse or Warehouse()
    machine: AnyMachine = Machine(
        "order",
        states=State,
        context=RichOrder if version == 2 else Order,
        events=OrderEvent,
        initial=State.OPEN,
        final={State.DONE},
        version=version,
    )

    @machine.on(Note, State.OPEN, State.PACKING)
    def note(order: Any, _event: Note) -> Any:
        return replace(order, notes=order.notes + 1, **({"currency": "USD"} if version == 2 else {}))

    machine.on(Pack, State.OPEN, to=State.PACKING)
    machine.on(Packed, State.PACKING, to=State.DONE)

    @machine.step(State.PACKING, timeout_s=600)
    async def pack(order: Any, ctx: StepContext) -> Packed:
        world.packed.append(version)
        world.begun.set()
        if version in world.gates:
            await world.gates[version].wait()
        return Packed()

    @machine.effect(State.DONE)
    async def tell(order: Any, ctx: StepContext) -> None:
        world.told.append(version)

    if after_s is not None:
        machine.after(State.OPEN, after_s=after_s, send=Pack())
    return machine
