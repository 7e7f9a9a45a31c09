"""The metrics of hot rows, in Prometheus's text format.

Labels are bounded: only the worst rows have a series, and a long key is cut. An absent row is cold. Nothing here is a
counter: rates decay by themselves.
"""

from collections.abc import Iterable

from interlock.hotrow.signal.windows import Hot, key_text

ROWS_MAX = 20
LABEL_CHARACTERS_MAX = 80

FAMILY: tuple[tuple[str, str], ...] = (
    ("interlock_row_handoffs_per_second", "Writes of the row that had to wait for another write of it."),
    ("interlock_row_conflicts_per_second", "Writes of the row that had to be done again because another came first."),
    ("interlock_row_wait_seconds", "The mean time that a write of the row waited for another one."),
    ("interlock_row_flagged", "1 when the row is above contention_flag_threshold."),
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(rows: Iterable[Hot], *, limit: int = ROWS_MAX) -> str:
    """Return the metrics of the first `limit` rows; pass them worst first."""
    series: dict[str, Hot] = {}
    for row in rows:
        if len(series) >= limit:
            break
        series.setdefault(_labels(row), row)
    lines: list[str] = []
    for name, what in FAMILY:
        lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {_value(name, row)}" for labels, row in series.items()]
    return "\n".join(lines) + "\n"


def _value(name: str, row: Hot) -> str:
    match name:
        case "interlock_row_handoffs_per_second":
            return f"{row.handoffs_per_s:.6g}"
        case "interlock_row_conflicts_per_second":
            return f"{row.conflicts_per_s:.6g}"
        case "interlock_row_wait_seconds":
            return f"{row.wait_s:.6g}"
        case _:
            return str(int(row.flagged))


def _labels(row: Hot) -> str:
    labels = {"database": row.database, "source": row.source, "table": row.table, "key": key_text(row.key)}
    return "{" + ",".join(f'{name}="{_label(value)}"' for name, value in labels.items()) + "}"


def _label(value: str) -> str:
    """Escape a user's text, so that it cannot end its label or begin a line; invalid UTF-8 is replaced."""
    if len(value) > LABEL_CHARACTERS_MAX:
        value = f"{value[: LABEL_CHARACTERS_MAX - 1]}…"
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
