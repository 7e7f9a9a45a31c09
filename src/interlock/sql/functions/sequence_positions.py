"""Sequences while a lane is open: `nextval`, `currval`, `setval`, `lastval`, and the positions that they move.

As in PostgreSQL a number is given once, also if its transaction is rolled back. Positions are in memory, do not follow
rollbacks, and are written to `sqlite_sequence` with the group that moved them, once per group. A definition (RESTART,
DROP) changes that table itself. So memory is written before it and read again after it, and restored if its
transaction is rolled back. A position is the last number given; a sequence without one starts.
"""

from collections.abc import Callable

from interlock.errors import ConstraintViolation, DialectError
from interlock.sql.registry import ANY_NUMBER, Function
from interlock.sql.schema import POSITION_PREFIX, called_sequences, positions_in
from interlock.sql.stored_values import StoredValue
from interlock.sql.types import INT8, INTEGER_RANGE, InvalidValue

Run = Callable[..., object]
"""Runs a statement of SQLite with its values."""

_LOW, _HIGH = INTEGER_RANGE[INT8.name]
_MOVE = "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1"
_BEGIN = (
    "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, ?2 "
    "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)"
)


class Positions:
    """The last numbers of a lane's sequences. Belongs to one connection; a reader's is never used."""

    def __init__(self, look_up: Callable[[str], int | None]) -> None:
        self._look_up = look_up
        """Returns a position from `sqlite_sequence`, by its name there."""
        self._known: dict[str, int | None] = {}
        self._moved: set[str] = set()
        self._stored: set[str] = set()
        """Those that certainly have a row."""
        self._current: dict[str, int] = {}
        self._last = ""
        self._before: list[tuple[dict[str, int | None], set[str], set[str]]] = []
        """Before each definition: what was known, what of it was moved, and the sequences that it makes or rewrites."""

    # --- What the writer does with them -------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether the running group has moved a position or changed the schema."""
        return bool(self._moved or self._before)

    @property
    def mark(self) -> int:
        """The present, for `undo`."""
        return len(self._before)

    def begin(self) -> int:
        """Begin a transaction, in which no number was given yet; return its mark."""
        if self._current:
            self._current.clear()
        return len(self._before)

    def undo(self, mark: int) -> None:
        """Restore what definitions since that mark have changed. Numbers of other sequences stay given."""
        if len(self._before) > mark:
            rewritten = set[str]().union(*(names for _, _, names in self._before[mark:]))
            later = [*(known for known, _, _ in self._before[mark + 1 :]), self._known]
            self._known, self._moved, _ = self._before[mark]
            for name, position in (item for known in later for item in known.items()):
                if name not in rewritten and position is not None:
                    self._known[name] = position
                    self._moved.add(name)
            self._stored.clear()
            del self._before[mark:]

    def write(self, run: Run) -> None:
        """Write the positions that were moved, before the commit of their group."""
        self._write(run)
        self._before.clear()

    def define(self, run: Run, text: str) -> None:
        """Write them before the definition of that text, inside its transaction, and read them again after it."""
        made = {name for name in called_sequences(text) if not self._is_begun(name)}
        self._before.append((dict(self._known), set(self._moved), made | positions_in(text)))
        self._write(run)
        self._known.clear()
        self._stored.clear()

    def _is_begun(self, name: str) -> bool:
        return self._known.get(name) is not None or self._look_up(POSITION_PREFIX + name) is not None

    def _write(self, run: Run) -> None:
        for name in self._moved:
            values = (POSITION_PREFIX + name, self._known[name])
            run(_MOVE, values)
            if name not in self._stored:
                run(_BEGIN, values)
                self._stored.add(name)
        self._moved.clear()

    # --- What statements do with them ---------------------------------------------------------------------------------

    def nextval(
        self,
        name: str,
        _kind: str,
        start: int,
        increment: int,
        minimum: int,
        maximum: int,
        cycle: int,
        table: str = "",
    ) -> int:
        """Give the next number."""
        last = self._known[name] if name in self._known else self._read(name, table)
        if last is None:
            number = start
        else:
            number = last + increment
            if not minimum <= number <= maximum:
                if not cycle:
                    end = maximum if increment > 0 else minimum
                    raise InvalidValue(
                        f"the sequence {name!r} has reached {end}, its last number.",
                        fix="Use a wider type, or RESTART.",
                    )
                number = minimum if increment > 0 else maximum
        self._known[name] = self._current[name] = number
        self._moved.add(name)
        self._last = name
        return number

    def setval(self, name: str, increment: int, minimum: int, maximum: int, *values: StoredValue) -> int | None:
        """Set the last number, or the next one if it was not called."""
        number, called, table = values
        if not isinstance(number, int) or called is None:
            return None
        if not minimum <= number <= maximum:
            raise InvalidValue(
                f"{number} is outside of the sequence {name!r}, from {minimum} to {maximum}.", fix="Use another number."
            )
        position = number if called else number - increment
        if not _LOW <= position <= _HIGH:
            raise DialectError(
                f"setval of the sequence {name!r} to {number}, at the end of bigint.",
                why="A lane keeps the number before the next one.",
                fix="Leave out the third argument, or use another number.",
            )
        if name not in self._known:
            self._read(name, str(table))
        self._known[name] = position
        self._moved.add(name)
        if called:
            self._current[name] = number
        return number

    def currval(self, name: str) -> int:
        """Return the last number that this transaction was given."""
        if name not in self._current:
            raise DialectError(
                f"currval of the sequence {name!r} is not defined yet in this transaction.",
                why="Each transaction of a lane is a session of its own.",
                fix="Call nextval() before it, in the same transact().",
            )
        return self._current[name]

    def lastval(self) -> int:
        """Return the last number that nextval() gave in this transaction."""
        if self._last not in self._current:
            raise DialectError(
                "lastval is not defined yet in this transaction.",
                fix="Call nextval() before it, in the same transact().",
            )
        return self._current[self._last]

    def explicit_key(self, value: StoredValue, name: str, table: str) -> StoredValue:
        """Return a key that a statement gives to a table that SQLite numbers, whose own position moves with it."""
        if value is None:
            raise ConstraintViolation(f"the key of {table!r} is NULL.", fix="Leave it out, or pass a number.")
        if name not in self._known:
            self._read(name, table)
        return value

    def _read(self, name: str, table: str) -> int | None:
        position = self._look_up(POSITION_PREFIX + name)
        if position is None and table:
            # SQLite has numbered it so far; from now on the sequence has a position of its own.
            position = self._look_up(table) or 0
            self._moved.add(name)
        self._known[name] = position
        return position

    def functions(self) -> tuple[Function, ...]:
        """Return what to register with SQLite."""
        return (
            Function("interlock_nextval", self.nextval, ANY_NUMBER, deterministic=False),
            Function("interlock_setval", self.setval, ANY_NUMBER, deterministic=False),
            Function("interlock_currval", self.currval, 1, deterministic=False),
            Function("interlock_lastval", self.lastval, 0, deterministic=False),
            Function("interlock_explicit_key", self.explicit_key, 3, deterministic=False),
        )
