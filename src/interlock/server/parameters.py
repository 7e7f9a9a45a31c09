"""SQL parameters of types that JSON lacks, written as an object with one member that names the type.

    {"$numeric": "19.90"}    {"$timestamptz": "2026-11-16T10:00:00Z"}    {"$uuid": "6ba7…"}    {"$bytes": "aGVsbG8="}

Every other value stands for itself: a text, a whole number, a float, a truth value, null, and lists and objects as
jsonb. A number with a fraction is a float, as in JSON; money is therefore sent as `$numeric`. An object whose only
member begins with another `$` is refused, so that a spelling mistake is not stored as a document.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import cast
from uuid import UUID

from interlock.errors import InvalidPayload


def _numeric(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment


_TYPES: dict[str, tuple[Callable[[str], object], str]] = {
    "$numeric": (_numeric, "a decimal number as text"),
    "$timestamptz": (_moment, "a moment in ISO 8601 with its offset"),
    "$uuid": (UUID, "a UUID"),
    "$bytes": (lambda text: base64.b64decode(text, validate=True), "bytes in base64"),
}


def parameter(value: object) -> object:
    """Convert a JSON value to the parameter it stands for. Raises InvalidPayload."""
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    name = next(iter(members), "") if len(members) == 1 else ""
    if not name.startswith("$"):
        return members
    known = _TYPES.get(name)
    if known is None:
        raise InvalidPayload(
            f"{name!r:.50} is not a type of a parameter; the types are {', '.join(_TYPES)}.",
            why="An object with one member that begins with $ names a type that JSON does not have.",
            fix="Correct the name; a document that looks like this goes as text: $1::text::jsonb.",
        )
    read, expected = known
    text = members[name]
    try:
        if not isinstance(text, str):
            raise TypeError(name)  # noqa: TRY301 -- one error for every invalid value.
        return read(text)
    except (ValueError, TypeError, InvalidOperation, binascii.Error) as error:
        raise InvalidPayload(
            f"{text!r:.100} is not {expected}.",
            why=f"A parameter of the type {name} is a text of that form.",
            fix=f"Correct the text of {name}.",
        ) from error
