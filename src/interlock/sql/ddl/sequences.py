"""Sequences: CREATE, ALTER and DROP SEQUENCE, and the sequences of serial and identity columns.

SQLite has none. A sequence of a column stands in the default of that column, as the call that gives its next number.
One of CREATE SEQUENCE is a view that makes the same call, which is never read but takes the name and ends with DROP.
The last number of each is a row of SQLite's own table `sqlite_sequence`; without a row the first number is next.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, cast

from interlock.sql.casts import column_type
from interlock.sql.from_clause import table_name
from interlock.sql.parse import Body, Node, names_of, only, quoted_name, split
from interlock.sql.schema import Numbering, NumberSequence
from interlock.sql.scope import Translation, visible
from interlock.sql.types import INT8, INTEGER_RANGE, Type, refuse, wrong

_NOTHING: Final = "SELECT 1 WHERE 0"


# --- Sequences of columns --------------------------------------------------------------------------------------------


def column_sequence(kind: Type, numbering: Numbering) -> NumberSequence:
    """Return the sequence of a column of that type; it gets its name with its table."""
    return NumberSequence("", numbering, maximum=INTEGER_RANGE[kind.name][1])


def identity(body: Body, kind: Type) -> NumberSequence:
    """Return the sequence of GENERATED … AS IDENTITY."""
    only("Constraint", body, "contype", "generated_when", "options")
    if not kind.is_integer:
        raise wrong(f"an identity column of type {kind}.", fix="Use integer or bigint.")
    sequence = column_sequence(kind, "always" if body["generated_when"] == "a" else "by default")
    made = with_options(body.get("options", ()), sequence)
    if replace(made, start=1) != sequence:
        raise refuse("an identity column that counts in another way.", fix="Leave out all but START WITH and CACHE.")
    return made


# --- Statements ------------------------------------------------------------------------------------------------------


def create_sequence(body: Body, translation: Translation) -> str:
    """Translate CREATE SEQUENCE."""
    only("CreateSeqStmt", body, "sequence", "options", "if_not_exists")
    if body["sequence"].get("relpersistence", "p") != "p":
        raise refuse("a temporary or unlogged sequence.", fix="Create an ordinary one.")
    name = table_name(body["sequence"])
    visible(name, "sequence")
    if name != name.lower():
        raise refuse(
            f"the sequence name {name!r}.", why="SQLite does not tell its case apart.", fix="Use small letters."
        )
    made = with_options(body.get("options", ()), NumberSequence(name))
    if translation.is_taken(name):
        if body.get("if_not_exists"):
            return _NOTHING
        raise wrong(f"there is a table, an index or a sequence {name!r} already.")
    return f"CREATE VIEW {quoted_name(name)} AS SELECT {made.nextval}"


def alter_sequence(body: Body, translation: Translation) -> str:
    """Translate ALTER SEQUENCE … RESTART."""
    only("AlterSeqStmt", body, "sequence", "options", "missing_ok")
    name = table_name(body["sequence"])
    if body.get("missing_ok") and name not in translation.schema.sequences:
        return _NOTHING
    return restart(translation.sequence(name), body.get("options", ()), translation)


def restart(sequence: NumberSequence, options: Iterable[Node], translation: Translation) -> str:
    """Return the statements of RESTART: the position is that of the number before."""
    [option, *more] = [node["DefElem"] for node in options]
    if more or option["defname"] != "restart":
        raise refuse(f"ALTER of the sequence {sequence.name!r} other than RESTART.", fix="Create another sequence.")
    first = sequence.start if "arg" not in option else _number(option["arg"])
    if not sequence.minimum <= first <= sequence.maximum:
        raise wrong(f"RESTART value {first} is outside of the sequence {sequence.name!r}.")
    translation.several = True
    return "; ".join(
        [
            forget([sequence]),
            f"INSERT INTO sqlite_sequence VALUES ({sequence.position}, {_before(first, sequence)})",  # noqa: S608
        ]
    )


def forget(sequences: Iterable[NumberSequence]) -> str:
    """Return the statement by which sequences begin again, or leave nothing when they are dropped."""
    return f"DELETE FROM sqlite_sequence WHERE name IN ({', '.join(each.position for each in sequences)})"  # noqa: S608


def drop_sequences(names: Iterable[str], translation: Translation, *, missing_ok: bool) -> list[str]:
    """Return the statements of DROP SEQUENCE."""
    texts: list[str] = []
    for name in names:
        if missing_ok and name not in translation.schema.sequences:
            continue
        sequence = translation.sequence(name)
        users = [
            f"{table.name}.{column.name}"
            for table in translation.schema.tables.values()
            for column in table.columns
            if column.default is not None and sequence.nextval in column.default
        ]
        if users:
            raise refuse(f"the sequence {name!r} is needed by {', '.join(users)}.", fix="Drop the default first.")
        texts += [f"DROP VIEW {quoted_name(name)}", forget([sequence])]
    return texts


# --- Options ---------------------------------------------------------------------------------------------------------


def with_options(options: Iterable[Node], sequence: NumberSequence) -> NumberSequence:
    """Return the sequence with the options of a statement, checked as PostgreSQL does."""
    found: dict[str, Node | None] = {}
    for node in options:
        option = node["DefElem"]
        if option["defname"] in found:
            raise wrong(f"{option['defname']} stands there twice.")
        found[option["defname"]] = option.get("arg")
    kind = INT8
    if "as" in found:
        kind, _ = column_type(cast("Node", found["as"])["TypeName"])
        if not kind.is_integer:
            raise wrong(f"a sequence of type {kind}.", fix="Use smallint, integer or bigint.")
    low, high = INTEGER_RANGE[kind.name]
    high = min(high, sequence.maximum)
    increment = _option(found, "increment", 1)
    minimum = _option(found, "minvalue", 1 if increment > 0 else low)
    maximum = _option(found, "maxvalue", high if increment > 0 else -1)
    start = _option(found, "start", minimum if increment > 0 else maximum)
    cycle = found.get("cycle")
    if not low <= minimum < maximum <= high or not minimum <= start <= maximum or increment == 0:
        raise wrong(f"a sequence from {minimum} to {maximum} that starts with {start} and counts by {increment}.")
    owner = found.get("owned_by")
    if owner is not None and names_of(owner["List"]["items"]) != ["none"]:
        raise refuse("OWNED BY of a sequence.", fix="Declare the column as serial or as an identity.")
    if _option(found, "cache", 1) < 1:  # Numbers in advance leave gaps, which a sequence may have anyway.
        raise wrong("CACHE of a sequence that is less than one.", fix="Leave it out.")
    unknown = sorted(set(found) - {"as", "increment", "minvalue", "maxvalue", "start", "cycle", "owned_by", "cache"})
    if unknown:
        raise refuse(f"{unknown[0].upper()} of a sequence.", fix="Leave it out.")
    made = replace(sequence, start=start, increment=increment, minimum=minimum, maximum=maximum)
    _ = _before(start, made)
    return replace(made, cycle=bool(cycle and cycle["Boolean"].get("boolval")))


def _option(found: dict[str, Node | None], name: str, otherwise: int) -> int:
    node = found.get(name)
    return otherwise if node is None else _number(node)


def _number(node: Node) -> int:
    kind, body = split(node)
    if kind == "Integer":
        return cast("int", body.get("ival", 0))
    text: str = body.get("fval", "")
    if kind != "Float" or not text.lstrip("-").isdecimal():
        raise wrong("an option of a sequence that is not a whole number.")
    return int(text)


def _before(first: int, sequence: NumberSequence) -> int:
    """Return the position after which that number is next."""
    position = first - sequence.increment
    if not INTEGER_RANGE[INT8.name][0] <= position <= INTEGER_RANGE[INT8.name][1]:
        raise refuse(f"a sequence that starts with {first} at the end of bigint.", fix="Start it elsewhere.")
    return position
