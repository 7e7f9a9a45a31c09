"""Promtail's stages, as far as our pipeline uses them, by Grafana's documentation of each.

A field that a line has not is nil among what was extracted, and what is nil becomes neither label nor metadata. A line
that is no JSON goes on as it is. A time that cannot be read is a failure here: Promtail would invent one.
"""

import json
import re
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

import msgspec

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Of a label; and the only kind of path into a line that is understood here."""

RFC3339_NANO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
OPTIONS = {
    "json": {"expressions", "source", "drop_malformed"},
    "timestamp": {"source", "format", "fallback_formats", "location", "action_on_failure"},
}
"""What these stages take; the others take names."""


class Entry(msgspec.Struct):
    """A line on its way to Loki."""

    line: str
    extracted: dict[str, Any] = {}
    labels: dict[str, str] = {}
    metadata: dict[str, str] = {}
    at: datetime | None = None


def run(stages: list[dict[str, Any]], line: str) -> Entry:
    """Send a line through the stages, in their order."""
    entry = Entry(line)
    for stage in stages:
        [(kind, options)] = stage.items()
        assert set(options) <= OPTIONS.get(kind, set(options)), (kind, options)
        if kind == "json":
            _json(options, entry)
        elif kind == "timestamp":
            _timestamp(options, entry)
        elif kind == "labels":
            _named(options, entry, entry.labels)
        elif kind == "structured_metadata":
            _named(options, entry, entry.metadata)
        else:
            raise AssertionError(f"what does {kind} do?")
    return entry


def _json(options: dict[str, Any], entry: Entry) -> None:
    assert "source" not in options
    try:
        data = json.loads(entry.line)
    except ValueError:
        return
    if not isinstance(data, dict):
        return
    fields = cast("dict[str, Any]", data)
    for name, given in options["expressions"].items():
        path = given or name
        assert NAME.fullmatch(path), "another path than a name has to be understood here first"
        value = fields.get(path)
        entry.extracted[name] = json.dumps(value) if isinstance(value, dict | list) else value


def _timestamp(options: dict[str, Any], entry: Entry) -> None:
    assert options["format"] == "RFC3339Nano"
    found = entry.extracted.get(options["source"])
    if found is not None:
        assert RFC3339_NANO.fullmatch(found), found
        entry.at = datetime.fromisoformat(found)


def _named(options: dict[str, Any], entry: Entry, into: dict[str, str]) -> None:
    for name, source in options.items():
        assert NAME.fullmatch(name), name
        value = entry.extracted.get(source or name)
        if value is not None:
            into[name] = _text(value)


def _text(value: str | float | bool) -> str:
    """As Go prints it: no exponent, and no point in a whole number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    return str(value)
