"""The rows that a transaction wrote, collected by SQLite's preupdate hook.

The preupdate hook is called once per row, inside the statement, and may not run statements itself; so the place of a
table's key among its columns is looked up after the transaction that met the table first; until then its rows are
passed over. When tables are made or changed, all are looked up again. Only the first few rows of a transaction are
looked at: a bulk update is volume, not contention.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# apsw's stubs leave the values of SQLite partly open; mypy --strict looks at what is ours.

import apsw

from interlock.lanes.connection import OWN_PREFIX

ROWS_WATCHED_MAX = 32
TABLES_KNOWN_MAX = 10_000

RowKey = tuple[str, object]


class TouchedRows:
    """The rows that the running transaction has written so far."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._query = connection.cursor().execute
        self._rows: set[RowKey] = set()
        self._keys: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.unknown: set[str] = set()

    def clear(self) -> None:
        """Begin a transaction."""
        if self._rows:
            self._rows = set()

    def taken(self) -> set[RowKey]:
        """Return the rows of the transaction that has just ended; they are the caller's."""
        return self._rows

    def touched(self, update: apsw.PreUpdate) -> None:
        """Record a row that is about to change, as SQLite's preupdate hook."""
        table = update.table_name
        if len(self._rows) >= ROWS_WATCHED_MAX or table.startswith(OWN_PREFIX):
            return
        values = (update.new if update.op == "INSERT" else update.old) or ()
        width, columns = self._keys.get(table, (0, ()))
        if width != len(values):
            # Met for the first time, or for the first time since tables were made or changed.
            self.unknown.add(table)
            return
        if not columns:
            self._rows.add((table, update.rowid))
            return
        key = values[columns[0]] if len(columns) == 1 else tuple([values[column] for column in columns])
        self._rows.add((table, key))

    def forget_keys(self) -> None:
        """Forget all keys: a table is made, changed or dropped, or that is undone."""
        self._keys.clear()

    def learn(self) -> dict[str, tuple[str, ...]]:
        """Look up the keys of the tables that were met for the first time; return the declared types of each key."""
        types: dict[str, tuple[str, ...]] = {}
        if len(self._keys) > TABLES_KNOWN_MAX:
            self._keys.clear()  # Those that are still written to are looked up again.
        for table in self.unknown:
            rows = self._query("SELECT cid, pk, type FROM pragma_table_info(?1) ORDER BY pk", (table,)).fetchall()
            self._keys[table] = (len(rows), tuple(int(str(column)) for column, place, _ in rows if place))
            types[table] = tuple(str(declared) for _, place, declared in rows if place)
        self.unknown.clear()
        return types
