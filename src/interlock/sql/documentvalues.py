"""Values that become jsonb, and jsonb that becomes a value.

PostgreSQL makes a number of a number and a text of nearly everything else. The other way, only a number is cast to a
number and only a truth to a boolean; `->>` gives the text, which can be cast like any other.
"""

from collections.abc import Callable
from decimal import Decimal

from interlock.errors import TransactionError
from interlock.sql import decimals, texts, times
from interlock.sql.datatypes import INTEGER_RANGE, PLAIN, Name
from interlock.sql.documents import loaded, typeof
from interlock.sql.refusal import refuse
from interlock.sql.values import JsonNumber, StoredValue, json_text, numeric_text, out_of_range

# --- Making -----------------------------------------------------------------------------------------------------------


def build_array(*values: StoredValue) -> str:
    """jsonb_build_array, of documents; NULL is null."""
    return f"[{', '.join('null' if value is None else str(value) for value in values)}]"


def build_object(*values: StoredValue) -> str:
    """jsonb_build_object, of texts and documents by turns; of a key given twice the last one stays."""
    members: dict[str, object] = {}
    for name, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(name, str):
            raise TransactionError("a NULL as a key of a jsonb object.", fix="Use coalesce().")
        members[name] = None if value is None else loaded(str(value))
    return json_text(members)


def from_text(text: str) -> str:
    """A text as a document."""
    return json_text(text)


def from_float(value: float) -> str:
    """A float as a document: PostgreSQL writes it out and reads it as numeric."""
    return numeric_text(Decimal(texts.from_float(value)))


def from_moment(moment: int) -> str:
    """A moment as a document, in the form of ISO 8601."""
    return json_text(times.moment_text(moment, "T", ":00"))


# --- Casts ------------------------------------------------------------------------------------------------------------


def to_number(document: str, name: Name) -> str:
    """A document that is a number, as a stored numeric."""
    value = loaded(document)
    if value is None:
        raise _null(name)
    if isinstance(value, bool) or not isinstance(value, int | JsonNumber):
        raise _uncastable(document, name)
    return numeric_text(Decimal(value))


def to_integer(name: Name) -> Callable[[str], int]:
    """The cast to a whole number, half away from zero."""
    low, high = INTEGER_RANGE[name]

    def cast_document(document: str) -> int:
        number = int(decimals.rounded(Decimal(to_number(document, name)), 0))
        if not low <= number <= high:
            raise out_of_range(PLAIN[name])
        return number

    return cast_document


def to_numeric(document: str) -> str:
    """The cast to numeric."""
    return to_number(document, "numeric")


def to_float(document: str) -> float:
    """The cast to double precision."""
    return decimals.to_float(to_number(document, "float8"))


def to_bool(document: str) -> int:
    """The cast to boolean."""
    value = loaded(document)
    if value is None:
        raise _null("bool")
    if not isinstance(value, bool):
        raise _uncastable(document, "bool")
    return value


def _null(name: Name) -> Exception:
    return refuse(
        f"a cast of the jsonb null to {PLAIN[name]}.",
        why="It is NULL for PostgreSQL 18 and an error for the versions before it.",
        fix="Cast the text: (document ->> 'key')::" + f"{PLAIN[name]}.",
    )


def _uncastable(document: str, name: Name) -> TransactionError:
    return TransactionError(
        f"a jsonb {typeof(document)} where {PLAIN[name]} is needed.", fix="Test jsonb_typeof() first."
    )
