"""D9: one table for all sources, worst first, and one family of metrics with bounded labels."""

import re
from uuid import UUID

import pytest

from interlock.hotrow.contention_windows import (
    FAMILY,
    LABEL_CHARACTERS_MAX,
    METRIC_ROWS_MAX,
    Window,
    exposition,
    key_text,
    placed,
    worst,
)
from interlock.lanes.hot_rows import HotRow, Source


def row(key: object, handoffs: float, *, source: Source = "lane", conflicts: float = 0.0) -> HotRow:
    return HotRow(
        source=source,
        table="t",
        key=key,
        handoffs_per_s=handoffs,
        writes_per_s=handoffs,
        wait_s=0.001,
        conflicts_per_s=conflicts,
        flagged=handoffs > 50,
    )


def window(database: str, *rows: HotRow, at_s: float = 0.0) -> Window:
    return Window(
        database=database,
        url=f"lanes:///{database}",
        engine="lane",
        at_s=at_s,
        seconds=5.0,
        transactions_per_s=1.0,
        flag_threshold=50.0,
        rows=list(rows),
    )


def test_the_rows_of_all_databases_are_one_table_with_the_worst_first() -> None:
    found = worst(
        [
            window("stock", row(1, 10.0), row(2, 200.0)),
            window("workflows", row("o-1", 100.0, source="workflow"), row("o-2", 1.0, conflicts=30.0)),
        ],
        3,
    )
    assert [(each.database, each.key, each.flagged) for each in found] == [
        ("stock", 2, True),
        ("workflows", "o-1", True),
        ("workflows", "o-2", False),
    ]


def test_of_several_windows_of_a_database_the_last_one_counts() -> None:
    found = worst([window("stock", row(1, 10.0)), window("stock", row(2, 1.0), at_s=5.0)], 10)
    assert [each.key for each in found] == [2]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (7, "7"),
        ("o-1", "o-1"),
        (None, ""),
        (b"\x00\xff", "00ff"),
        (("a", 1), "('a', 1)"),
        (UUID(int=7), str(UUID(int=7))),
    ],
)
def test_a_key_is_one_text(key: object, text: str) -> None:
    assert key_text(key) == text


LINE = re.compile(
    r'^(\w+)\{database="((?:\\.|[^"\\\n])*)",source="(\w+)",table="(\w+)",key="((?:\\.|[^"\\\n])*)"\} (\S+)$'
)


def test_metrics_are_one_family_with_a_line_for_each_row() -> None:
    text = exposition([placed(row(1, 100.0), "stock"), placed(row("o-1", 2.5, source="workflow"), "workflows")])
    lines = text.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == [
        "interlock_hot_rows",
        *(name for name, _, _ in FAMILY),
    ]
    assert 'interlock_hot_rows{database="stock"} 1' in lines
    assert 'interlock_hot_rows{database="workflows"} 0' in lines
    values = {match.group(1, 3, 5): float(match[6]) for line in lines if (match := LINE.match(line))}
    assert len(values) == len(FAMILY) * 2
    assert values["interlock_row_handoffs_per_second", "workflow", "o-1"] == 2.5
    assert values["interlock_row_flagged", "lane", "1"] == 1
    assert values["interlock_row_wait_seconds", "lane", "1"] == 0.001
    assert text.endswith("\n")


def test_a_key_of_users_cannot_break_out_of_its_label() -> None:
    evil = 'a"} 1\nevil{x="\\\r\ud800'
    lines = exposition([placed(row(evil, 1.0))]).splitlines()[3:]
    assert len(lines) == len(FAMILY) * 3
    assert all(line.startswith("# ") or LINE.match(line) for line in lines)


def test_labels_are_bounded_in_number_and_length_and_never_twice_the_same() -> None:
    many = [placed(row(f"{'x' * 200}{number}", 1_000.0 - number)) for number in range(1_000)]
    assert exposition(many).count("\ninterlock_row_flagged{") == 1, "they are the same when they are cut"
    several = [placed(row(number, 1.0)) for number in range(1_000)]
    text = exposition(several)
    assert text.count("\ninterlock_row_flagged{") == METRIC_ROWS_MAX
    assert max(map(len, text.splitlines())) < 4 * LABEL_CHARACTERS_MAX


def test_nothing_hot_is_a_family_without_series() -> None:
    assert [line for line in exposition([]).splitlines() if not line.startswith("#")] == []
