"""Channels have names that PostgreSQL takes, one for each schema."""

from interlock.store.postgres.store import CHANNEL_BYTES_MAX, channel


def test_a_channel_is_named_after_its_schema() -> None:
    assert channel("shop") == "interlock_shop"


def test_long_names_fit_and_stay_apart() -> None:
    one, two = channel("s" * 62 + "a"), channel("s" * 62 + "b")
    assert one != two
    assert len(one) == len(two) == CHANNEL_BYTES_MAX
    assert one.startswith("interlock_sss")
    assert len(channel("s" * 53)) == CHANNEL_BYTES_MAX
    assert channel("s" * 53) == "interlock_" + "s" * 53
