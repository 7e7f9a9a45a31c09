"""`Statement`: SQLite's text, with the encoders of its parameters and the decoders of its results.

It is immutable and shared by everything that runs the same SQL at the same version of the schema. `encode` is the only
way in for values, so nothing a caller passes is ever part of the text. The odd choice: some results are checked when
they are decoded, because SQLite answers an overflow with a float where PostgreSQL answers with an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from interlock.errors import TransactionError
from interlock.sql.datatypes import Type
from interlock.sql.rows import Row, row_class
from interlock.sql.values import Decoder, Encoder, StoredValue, decoder, encoder

# A query that asks for locks is no "read": it must run in the writer, where it has them all.
Kind = Literal["read", "lock", "write", "schema"]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result: its name and type. `checked` asks decode() to verify the range, too."""

    name: str
    type: Type
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of PostgreSQL as SQLite runs it."""

    text: str
    kind: Kind
    parameters: tuple[Type, ...] = ()
    columns: tuple[ResultColumn, ...] = ()
    _encoders: tuple[tuple[int, Encoder], ...] = field(init=False, repr=False, compare=False)
    _decoders: tuple[Decoder | None, ...] | None = field(init=False, repr=False, compare=False)
    _row: type[Row] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        decoders = tuple(decoder(column.type, checked=column.checked) for column in self.columns)
        object.__setattr__(self, "_encoders", tuple(enumerate(map(encoder, self.parameters))))
        object.__setattr__(self, "_decoders", decoders if any(decoders) else None)
        object.__setattr__(self, "_row", row_class(tuple(column.name for column in self.columns)))

    @property
    def returns_rows(self) -> bool:
        """Return whether running it gives rows: a query, or a change with RETURNING."""
        return bool(self.columns)

    def encode(self, args: Sequence[object]) -> tuple[StoredValue, ...]:
        """The arguments as SQLite stores them, checked against the parameters' number and types."""
        if len(args) != len(self._encoders):
            raise TransactionError(
                f"the statement has {len(self._encoders)} parameters and was given {len(args)} values.",
                why="Every $n needs exactly one value.",
                fix="Pass as many values as the highest $n.",
            )
        return tuple(
            [None if (value := args[index]) is None else encode(value, index + 1) for index, encode in self._encoders]
        )

    def decode(self, row: Sequence[StoredValue]) -> Row:
        """One row of SQLite's as Python values, with names."""
        if self._decoders is None:
            return self._row(row)
        return self._row(
            [
                value if decode is None or value is None else decode(value)
                for decode, value in zip(self._decoders, row, strict=True)
            ]
        )
