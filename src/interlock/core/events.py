"""Events: the alphabet of a machine, and the typing trick that binds an event to its alphabet.

An alphabet is a direct subclass of `Event`; its events are the classes below it. A class without a decorator becomes a
frozen dataclass at its first use, and not when it is defined, because `@dataclass(slots=True)` may still follow. Frozen
dataclasses, msgspec structs and pydantic models are events as they are. The wire name of an event is its class name in
capitals (`PaymentFailed` -> `PAYMENT_FAILED`), or the class attribute `wire_name`.

The odd choice: `EventOf` is a covariant protocol with two class methods that `Event` answers with `Self`. Python
has no type variable bounded by another one; matching a class (or an instance) against `EventOf[X, E]` binds `X`
to the exact event and at the same time demands that it belongs to the alphabet `E`. Only type checkers use the two
methods; calling one raises TypeError.
"""

import inspect
import re
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar, dataclass_transform

import msgspec

from interlock.errors import DefinitionError

Exact_co = TypeVar("Exact_co", covariant=True)
Alphabet_co = TypeVar("Alphabet_co", covariant=True)

STARTED = "STARTED"
STEP_FAILED = "STEP_FAILED"
TIMER = "TIMER"
UNWOUND = "UNWOUND"
CHILDREN_JOINED = "CHILDREN_JOINED"
FORKED = "FORKED"
REWINDING = "REWINDING"
REWOUND = "REWOUND"
RESERVED_NAMES = frozenset({STARTED, STEP_FAILED, TIMER, UNWOUND, CHILDREN_JOINED, FORKED})
REWIND_NAMES = frozenset({REWINDING, REWOUND})
"""Names that history also uses. A machine may have an event of that name, and its workflows cannot be rewound then."""

WHY_EVENT = "An event is written to history and sent again after a crash: a value with a fixed shape and name."
"""Why a class with a mistake cannot be an event."""

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Event:
    """The root of all alphabets: `class OrderEvent(Event): ...`, then `class Submit(OrderEvent): cents: int`."""

    __slots__ = ()

    wire_name: ClassVar[str] = ""
    """The name in history, HTTP and diagrams; empty: derived from the class name."""

    if not TYPE_CHECKING:  # pragma: no branch

        def __init__(self, *arguments: object, **named: object) -> None:
            # Only the first instance of an undecorated class comes here; after that the class has its own __init__.
            if is_model(type(self)) or is_group(type(self)) or _is_alphabet(type(self)):
                super().__init__(*arguments, **named)  # Machines refuse an instance of an alphabet or a group.
                return
            _demand_value(type(self))
            self.__init__(*arguments, **named)

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for base in cls.__bases__:
            if issubclass(base, Event) and not _is_value(base) and _has_fields(base):
                _demand_value(base)  # A dataclass inherits the fields of dataclasses only.
        if cls.__init__ is not Event.__init__ and "__init__" not in cls.__dict__ and not is_model(cls):
            # The inherited __init__ does not know the fields of this class.
            cls.__new__ = _first_instance  # type: ignore[assignment]

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


# --- Values ----------------------------------------------------------------------------------------------------------

_lock = RLock()


def is_model(cls: type[object]) -> bool:
    """Return whether it is a msgspec struct or a pydantic model, which are values by themselves."""
    return issubclass(cls, msgspec.Struct) or hasattr(cls, "model_validate")


def is_group(event: type[Event]) -> bool:
    """Return whether the class only groups the events below it: it has no decorator and no fields."""
    return not _is_value(event) and bool(event.__subclasses__()) and not _has_fields(event)


def _is_alphabet(event: type[Event]) -> bool:
    return Event in event.__bases__ and not _has_fields(event)


def _is_value(event: type[Event]) -> bool:
    return "__dataclass_fields__" in event.__dict__ or is_model(event)


def _has_fields(event: type[Event]) -> bool:
    """Return whether the class itself declares fields."""
    return any("ClassVar" not in str(annotation) for annotation in inspect.get_annotations(event).values())


def _make_value(event: type[Event]) -> tuple[str, str, str] | None:
    """Make an undecorated class a frozen dataclass. Return (rule, what, fix) if that is impossible, or None."""
    with _lock:
        if _is_value(event):
            return None
        if "__init__" in event.__dict__:
            what = f"event {event.__name__} is not a dataclass and has an __init__ of its own"
            return "event-not-dataclass", what, f"Declare fields instead: `class {event.__name__}(...): cents: int`."
        try:
            dataclass(frozen=True)(event)
        except (TypeError, ValueError) as error:
            if "__dataclass_fields__" in event.__dict__:
                del event.__dataclass_fields__  # type: ignore[attr-defined]  # Half made: it must not count as made.
            what = f"event {event.__name__} cannot be made a frozen dataclass: {error}"
            return "event-not-dataclass", what, "Correct its fields, or those of the class that it is below."
    return None


def _demand_value(event: type[Event]) -> None:
    mistake = _make_value(event)
    if mistake is not None:
        rule, what, fix = mistake
        raise DefinitionError(f"{what}.", why=WHY_EVENT, fix=fix, rule=rule)


def _first_instance(cls: type[Event], *arguments: object, **named: object) -> Event:
    del arguments, named
    _demand_value(cls)
    return object.__new__(cls)


def mistake_in(event: type[Event]) -> tuple[str, str, str] | None:
    """Return (rule, what, fix) for a class that is not a valid event, or None."""
    name = event.__name__
    if is_group(event):
        what = f"event {name} only groups the events below it"
        return "event-not-dataclass", what, f"Name one of them, or give {name} fields or @dataclass(frozen=True)."
    mistake = _make_value(event)
    if mistake is not None:
        return mistake
    if not _is_frozen(event):
        return "event-not-frozen", f"event {name} can be changed after it was sent", "Make it frozen (frozen=True)."
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


def _is_frozen(event: type[Event]) -> bool:
    if issubclass(event, msgspec.Struct):
        return event.__struct_config__.frozen
    if is_model(event):
        return getattr(event, "model_config", {}).get("frozen") is True
    # Every dataclass has this attribute, although typeshed does not declare it.
    return bool(event.__dict__["__dataclass_params__"].frozen)


def events_below(alphabet: type[Event]) -> list[type[Event]]:
    """Return the events below an alphabet, in definition order, without classes that only group events.

    `@dataclass(slots=True)` makes a second class and leaves the first one alive for a while, and so does a module
    that is loaded again. Of two classes with the same module and name the later one counts.
    """
    found: dict[tuple[str, str], type[Event]] = {}
    waiting = list(alphabet.__subclasses__())
    while waiting:
        event = waiting.pop(0)
        waiting.extend(event.__subclasses__())
        if not is_group(event):
            found[event.__module__, event.__qualname__] = event
    return list(found.values())
