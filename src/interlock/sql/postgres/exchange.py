"""Convert values for PostgreSQL and back: the same Python types as on a lane, and the same refusals.

A parameter is checked by the lane's own encoder of its type before the driver sees it, so that what one engine takes
the other takes too, and what is refused is refused in the same words. The driver keeps JSON as text; here it is a
document. Types that a lane does not have are left to the driver.
"""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final, Protocol, cast
from uuid import UUID

from interlock.errors import TransactionError
from interlock.sql.datatypes import PLAIN, Name
from interlock.sql.values import TIME_MAX, TIME_MIN, Encoder, encoder, json_text, refuse_dumped

Send = Callable[[object, int], object]
Receive = Callable[[object], object]


class TypeOf(Protocol):
    """A type, as the driver tells it."""

    @property
    def name(self) -> str:
        """PostgreSQL's name of it."""
        ...


def sends(kinds: Sequence[TypeOf]) -> tuple[Send | None, ...]:
    """Return the conversion of each parameter for the driver; None for one that needs none."""
    return tuple([_send(kind.name) for kind in kinds])


def receives(kinds: Sequence[TypeOf]) -> tuple[Receive | None, ...] | None:
    """Return the conversion of each column; None when no column needs one."""
    found = tuple([_RECEIVED.get(kind.name) for kind in kinds])
    return found if any(found) else None


def sent(args: Sequence[object], how: tuple[Send | None, ...]) -> list[object]:
    """The arguments as the driver takes them, checked against the parameters' number and types."""
    if len(args) != len(how):
        raise TransactionError(
            f"the statement has {len(how)} parameters and was given {len(args)} values.",
            why="Every $n needs exactly one value.",
            fix="Pass as many values as the highest $n.",
        )
    return [
        value if send is None or value is None else send(value, place)
        for place, (value, send) in enumerate(zip(args, how, strict=True), start=1)
    ]


def _send(name: str) -> Send | None:
    if name == "json":
        return _send_json
    element = name.removesuffix("[]")
    if element not in PLAIN or element == "unknown":
        return None
    if element != name:
        return lambda value, place: _send_list(value, place, element)
    check = encoder(PLAIN[cast("Name", element)])
    if name in {"jsonb", "float8"}:
        return check  # A document is text on a lane, and to the driver too.
    sending = {"numeric": _send_numeric, "timestamptz": _send_time}.get(name, _checked)
    return lambda value, place: sending(value, place, check)


def _send_numeric(value: object, place: int, check: Encoder) -> object:
    return Decimal(cast("str", check(value, place)))


def _send_time(value: object, place: int, check: Encoder) -> object:
    # The driver takes the first and the last moment for infinity.
    if check(value, place) in {TIME_MIN, TIME_MAX}:
        raise TransactionError(
            f"${place} is {value}, which would become infinity on its way to PostgreSQL.",
            fix="Use any other moment, or None for NULL.",
        )
    return value


def _checked(value: object, place: int, check: Encoder) -> object:
    _ = check(value, place)
    return value


def _send_json(value: object, place: int) -> object:
    refuse_dumped(value, place)
    try:
        return json_text(value)
    except ValueError as error:
        raise TransactionError(f"${place} is not a JSON document: {error}.") from error


def _send_list(value: object, place: int, element: str) -> object:
    if not isinstance(value, list | tuple):
        raise TransactionError(
            f"${place} must be a list ({element}[]), not {type(value).__name__}.",
            why="PostgreSQL would refuse it; a lane does, too.",
            fix="Pass a list, or None for NULL.",
        )
    send = _send(element)
    items = cast("list[object]", value)
    return [item if item is None or send is None else send(item, place) for item in items]


_RECEIVED: Final[dict[str, Receive]] = {
    "jsonb": lambda value: None if value is None else json.loads(cast("str", value)),
    "json": lambda value: None if value is None else json.loads(cast("str", value)),
    "uuid": lambda value: None if value is None else UUID(int=cast("UUID", value).int),
}
