"""Keys of callers become keys of the database that no other call has."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.hotrow.tables import key_of
from interlock.lanes.idempotency_keys import KEY_CHARACTERS_MAX

TEXTS = st.text(alphabet="ab:%3A", min_size=1, max_size=6)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=2, unique=True))
def test_no_two_pairs_of_name_and_key_read_the_same(pairs: list[tuple[str, str]]) -> None:
    one, other = (key_of("stock", name, key) for name, key in pairs)
    assert one != other


def test_a_plain_name_is_readable_in_its_key() -> None:
    assert key_of("stock", "sku-1", "order-7") == "stock:sku-1:order-7"
    assert key_of("stock", "sku-1", None) is None


def test_a_long_key_is_replaced_by_its_digest() -> None:
    long, longer = key_of("stock", "sku", "k" * 1_000), key_of("stock", "sku", "k" * 1_001)
    assert long != longer
    assert long is not None
    assert longer is not None
    assert max(len(long), len(longer)) <= KEY_CHARACTERS_MAX
