"""Writing rows into a draft: by COPY into a temporary table, and from there as the store writes them.

The second step is in SQL, with the same expressions that the store's own statements have: JSON is kept for people, and
letter by letter where PostgreSQL would give it back otherwise; times are exact.
"""

# ruff: noqa: S608 -- the only name put into a statement is the schema's, which `address` has checked.

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from interlock.store.moving.canonical import Aside, LeaseRow, Note, Numbered
from interlock.store.postgres.columns import EFFECTS, LETTERS
from interlock.store.postgres.statement import micros, moment, written
from interlock.store.values import Happened, Letter, OwedEffect

Values = tuple[object, ...]


class Staging(NamedTuple):
    """One table: what is copied, and how it is put in."""

    table: str
    columns: tuple[tuple[str, str], ...]
    """Of what is copied: names and types; times are microseconds, JSON is text."""
    json: tuple[str, ...] = ()
    """Columns that are also kept letter by letter."""
    plain_json: tuple[str, ...] = ()
    """Columns of JSON that PostgreSQL keeps as it was written."""

    @property
    def name(self) -> str:
        """Of the table of the transaction's own."""
        return f"staged_{self.table}"

    @property
    def names(self) -> list[str]:
        """Of what is copied."""
        return [name for name, _ in self.columns]

    def create(self) -> str:
        """Make the table; it goes with the transaction."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return f"CREATE TEMPORARY TABLE {self.name} ({columns}) ON COMMIT DROP"

    def insert(self, schema: str, *, replacing: str | None = None) -> str:
        """Put everything that was copied into the draft; `replacing` what has the same value in that column."""
        parsed = "".join(f", s.{name}::jsonb AS {name}_json" for name in self.json)
        into = [*self.names, *(f"{name}_written" for name in self.json)]
        values = [*map(self._value, self.columns), *(written(f"c.{name}") for name in self.json)]
        replaced = ""
        if replacing is not None:
            changed = ", ".join(f"{name} = excluded.{name}" for name in into if name != replacing)
            replaced = f" ON CONFLICT ({replacing}) DO UPDATE SET {changed}"
        return f"""INSERT INTO {schema}.{self.table} ({", ".join(into)})
SELECT {", ".join(values)} FROM (SELECT s.*{parsed} FROM {self.name} s OFFSET 0) c{replaced}"""

    def _value(self, column: tuple[str, str]) -> str:
        name, kind = column
        if name in self.json:
            return f"c.{name}_json"
        if name in self.plain_json:
            return f"c.{name}::json"
        return moment(f"c.{name}") if kind == "bigint" and name.endswith(("_at", "since", "until")) else f"c.{name}"


WORKFLOWS = Staging(
    "workflows",
    (
        ("number", "bigint"), ("id", "text"), ("workflow_type", "text"), ("machine_version", "bigint"),
        ("state", "text"), ("context", "text"), ("version", "bigint"), ("visit", "bigint"), ("active", "boolean"),
        ("created_at", "bigint"), ("updated_at", "bigint"), ("entered_at", "bigint"), ("digest", "bytea"),
        ("owed", "bytea"), ("wake_at", "bigint"), ("duplicates", "bigint"), ("ignored", "bigint"),
        ("refused", "bigint"), ("revision", "bigint"), ("timer_at", "bigint"),
    ),
    json=("context",),
)  # fmt: skip
EVENTS = Staging(
    "workflow_events",
    (
        ("workflow_id", "text"), ("version", "bigint"), ("from_state", "text"), ("to_state", "text"),
        ("event", "text"), ("payload", "text"), ("context", "text"), ("created_at", "bigint"), ("key", "text"),
        ("key_digest", "bytea"),
    ),
    json=("payload", "context"),
)  # fmt: skip
ASIDE = {
    "workflow_effects": Staging(
        "workflow_effects",
        (
            ("id", "text"), ("workflow_id", "text"), ("version", "bigint"), ("name", "text"), ("attempts", "bigint"),
            ("wake_at", "bigint"), ("context", "text"),
        ),
        plain_json=("context",),
    ),
    "dead_letters": Staging(
        "dead_letters",
        (
            ("id", "text"), ("kind", "text"), ("workflow_id", "text"), ("name", "text"), ("attempts", "bigint"),
            ("error", "text"), ("since", "bigint"), ("version", "bigint"), ("key", "text"), ("context", "text"),
        ),
        plain_json=("context",),
    ),
    "leases": Staging(
        "leases",
        (("name", "text"), ("owner", "text"), ("token", "bigint"), ("since", "bigint"), ("until", "bigint")),
    ),
    "notes": Staging("notes", (("name", "text"), ("text", "text"))),
}  # fmt: skip
READING = {
    "workflow_effects": EFFECTS,
    "dead_letters": LETTERS,
    "leases": f"name, owner, token, {micros('since')}, {micros('until')}",
    "notes": "name, text",
}
"""The columns of what stands aside, as they are read back."""


def staged_rows(rows: Iterable[Numbered]) -> list[Values]:
    """Workflows as they are copied."""
    return [
        (
            number, row.id, row.machine, row.machine_version, row.state, row.context.decode(), row.version, row.visit,
            row.active, row.created_us, row.updated_us, row.entered_us, row.digest, row.owed, row.wake_us,
            *row.counts, row.revision, row.timer_us,
        )
        for number, row in rows
    ]  # fmt: skip


def staged_events(events: Sequence[Happened]) -> list[Values]:
    """History as it is copied."""
    return [
        (
            each.workflow, each.version, each.from_state, each.to_state, each.event, each.payload.decode() or None,
            each.context.decode(), each.created_us, each.key, each.key_digest or None,
        )
        for each in events
    ]  # fmt: skip


def staged_aside(value: Aside) -> Values:
    """Return a record beside workflows as a row for COPY."""
    if isinstance(value, (LeaseRow, Note)):
        return tuple(value)
    assert isinstance(value, (OwedEffect, Letter))
    *values, context = msgspec.structs.astuple(value)
    return (*values, context.decode() or None)
