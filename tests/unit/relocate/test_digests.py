"""A digest changes with every row that is lost, doubled or changed, and with nothing else."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from interlock.relocate.rows import Digest, StoredRow, checksum, digest

VALUES = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=20)


@given(ROWS, st.integers())
def test_the_order_of_rows_does_not_matter(rows: list[StoredRow], seed: int) -> None:
    shuffled = list(rows)
    Random(seed).shuffle(shuffled)
    assert digest(shuffled) == digest(rows)


@given(ROWS.filter(bool), st.data())
def test_a_lost_a_doubled_and_a_changed_row_change_it(rows: list[StoredRow], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    lost = rows[:place] + rows[place + 1 :]
    doubled = [*rows, rows[place]]
    column = data.draw(st.integers(0, 2))
    other = data.draw(VALUES.filter(lambda value: repr(value) != repr(rows[place][column])))
    row = rows[place]
    changed = [*lost, (*row[:column], other, *row[column + 1 :])]
    assert len({digest(each) for each in (rows, lost, doubled, changed)}) == 4


def test_one_bit_changes_it() -> None:
    for number in (0, 2**40, -1):
        assert digest([(1, number)]) != digest([(1, number ^ 1)])
    assert digest([(b"\x00",)]) != digest([(b"\x01",)])


def test_values_that_change_places_change_it() -> None:
    rows: list[StoredRow] = [(1, "a", 10), (2, "b", 20)]
    between_rows: list[StoredRow] = [(1, "b", 10), (2, "a", 20)]
    between_columns: list[StoredRow] = [(10, "a", 1), (2, "b", 20)]
    assert len({digest(rows), digest(between_rows), digest(between_columns)}) == 3


def test_types_are_told_apart() -> None:
    values: list[StoredRow] = [(1,), (1.0,), ("1",), (b"1",), (None,), ("",), (b"",), (0,)]
    assert len({digest([row]) for row in values}) == len(values)
    assert digest([(("ab"), "c")]) != digest([("a", "bc")])


@given(ROWS, ROWS)
def test_it_is_kept_up_to_date_by_what_changes(before: list[StoredRow], after: list[StoredRow]) -> None:
    kept = Digest()
    kept.add(before)
    kept.remove(before[::2])
    kept.add(after)
    fresh = Digest(digest([*before[1::2], *after]), len(before[1::2]) + len(after))
    assert kept == fresh
    assert hash(kept) == hash(fresh)
    assert repr(kept) == repr(fresh)


def test_the_checksum_of_a_database_tells_tables_apart() -> None:
    one, other = Digest(5, 1), Digest(6, 1)
    assert checksum({"a": one, "b": other}) == checksum({"b": other, "a": one})
    assert checksum({"a": one, "b": other}) != checksum({"a": other, "b": one})
    assert checksum({"a": one}) != checksum({"a": one, "b": Digest()})
