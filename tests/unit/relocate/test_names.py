"""Names of constraints are those that PostgreSQL would choose."""

from interlock.sql.schema import BYTES_MAX, chosen


def test_a_name_is_made_of_table_columns_and_kind() -> None:
    assert chosen("orders", ("item", "note"), "key") == "orders_item_note_key"
    assert chosen("orders", (), "pkey") == "orders_pkey"


def test_a_number_tells_apart_what_is_taken() -> None:
    assert chosen("t", ("a",), "fkey", {"t_a_fkey"}) == "t_a_fkey1"
    assert chosen("t", ("a",), "fkey", {"t_a_fkey", "t_a_fkey1"}) == "t_a_fkey2"


def test_the_longer_part_is_cut() -> None:
    name = chosen("t" * 60, ("column",), "key")
    assert len(name) == BYTES_MAX
    assert name.endswith("_column_key")
    assert len(chosen("ü" * 40, ("ß" * 40,), "key").encode()) <= BYTES_MAX
