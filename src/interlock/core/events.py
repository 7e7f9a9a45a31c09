"""Events: the alphabet of a machine, and the typing trick that binds an event to its alphabet.

An alphabet is a direct subclass of `Event`; its events are the frozen dataclasses below it. The wire name of an
event is its class name in capitals (`PaymentFailed` -> `PAYMENT_FAILED`), or the class attribute `wire_name`.

The odd choice: `EventOf` is a covariant protocol with two class methods that `Event` answers with `Self`. Python
has no type variable bounded by another one; matching a class (or an instance) against `EventOf[X, E]` binds `X`
to the exact event and at the same time demands that it belongs to the alphabet `E`. Only type checkers use the two
methods; calling one raises TypeError.
"""

import re
from dataclasses import is_dataclass
from typing import ClassVar, Protocol, Self, TypeVar

Exact_co = TypeVar("Exact_co", covariant=True)
Alphabet_co = TypeVar("Alphabet_co", covariant=True)

STARTED = "STARTED"
STEP_FAILED = "STEP_FAILED"
TIMER = "TIMER"
UNWOUND = "UNWOUND"
RESERVED_NAMES = frozenset({STARTED, STEP_FAILED, TIMER, UNWOUND})

WHY_EVENT = "An event is written to history and sent again after a crash: a value with a fixed shape and name."
"""Why a class with a mistake cannot be an event."""

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Event:
    """The root of all alphabets: `class OrderEvent(Event): ...`, then frozen dataclasses below it."""

    __slots__ = ()

    wire_name: ClassVar[str] = ""
    """The name in history, HTTP and diagrams; empty: derived from the class name."""

    @classmethod
    def event_itself(cls) -> Self:
        """Only for type checkers: binds the exact event. See the module's docstring."""
        raise TypeError(f"{cls.__name__}.event_itself exists for type checkers and is never called")

    @classmethod
    def event_alphabet(cls) -> Self:
        """Only for type checkers: demands the machine's alphabet. See the module's docstring."""
        raise TypeError(f"{cls.__name__}.event_alphabet exists for type checkers and is never called")


class EventOf(Protocol[Exact_co, Alphabet_co]):
    """An event class or instance `Exact_co` that belongs to the alphabet `Alphabet_co`."""

    def event_itself(self) -> Exact_co:
        """See `Event.event_itself`."""
        ...

    def event_alphabet(self) -> Alphabet_co:
        """See `Event.event_alphabet`."""
        ...


def wire_name(event: type[Event]) -> str:
    """Return the event's name on the wire: `PaymentFailed` -> `PAYMENT_FAILED`."""
    return event.__dict__.get("wire_name") or _WORD_BOUNDARY.sub("_", event.__name__).upper()


def is_event(candidate: object, alphabet: type[Event]) -> bool:
    """Return whether `candidate` is a class strictly below the alphabet."""
    return isinstance(candidate, type) and issubclass(candidate, alphabet) and candidate is not alphabet


def mistake_in(event: type[Event]) -> tuple[str, str, str] | None:
    """Return (rule, what, fix) for a class that is not a valid event, or None.

    The class itself must be a dataclass: one that only inherits from a dataclass would lose its own fields.
    """
    name = event.__name__
    if "__dataclass_fields__" not in event.__dict__ or not is_dataclass(event):
        return "event-not-dataclass", f"event {name} is not a dataclass", f"Write @dataclass(frozen=True) above {name}."
    # Every dataclass has this attribute, although typeshed does not declare it.
    if not event.__dict__["__dataclass_params__"].frozen:
        return "event-not-frozen", f"event {name} can be changed after it was sent", "Write @dataclass(frozen=True)."
    declared = event.__dict__.get("wire_name") or name
    if not isinstance(declared, str) or not declared.isprintable():
        return "bad-wire-name", f"event {name} has the wire name {declared!r}, which is not a plain text", "Set a text."
    if wire_name(event) in RESERVED_NAMES:
        reserved = ", ".join(sorted(RESERVED_NAMES))
        return (
            "reserved-event",
            f"event {name} has the wire name {wire_name(event)}, which Interlock writes itself ({reserved})",
            "Rename the class, or set another wire_name.",
        )
    return None


def events_below(alphabet: type[Event]) -> list[type[Event]]:
    """Return the dataclasses below an alphabet, in definition order, without classes that only group events.

    `@dataclass(slots=True)` makes a second class and leaves the first one alive for a while, and so does a module
    that is loaded again. Of two classes with the same module and name the later one counts.
    """
    found: dict[tuple[str, str], type[Event]] = {}
    waiting = list(alphabet.__subclasses__())
    while waiting:
        event = waiting.pop(0)
        waiting.extend(event.__subclasses__())
        if "__dataclass_fields__" in event.__dict__:
            found[event.__module__, event.__qualname__] = event
    return list(found.values())
