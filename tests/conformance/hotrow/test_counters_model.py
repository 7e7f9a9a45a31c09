"""Counters against an int: whatever is added, repeated, rolled up, opened anew or chosen, the value is the sum."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.database.database import Database
from interlock.errors import KeyReused
from interlock.hotrow.counters import Counters, Form, Kind
from tests.conformance.hotrow.counting import FORMS, KINDS, NEVER_S, chosen
from tests.conformance.hotrow.places import run


class Add(NamedTuple):
    kind: Kind
    amount: int
    key: str | None


class Choose(NamedTuple):
    form: Form


class RollUp(NamedTuple):
    pass


class OpenAnew(NamedTuple):
    """Another process: it knows nothing yet, and may have another number of shards."""

    shard_count: int


Act = Add | Choose | RollUp | OpenAnew

ACTS: st.SearchStrategy[list[Act]] = st.lists(
    st.one_of(
        st.builds(Add, st.sampled_from(KINDS), st.integers(-9, 9).filter(bool), st.none()),
        st.builds(Add, st.sampled_from(KINDS), st.sampled_from([-1, 2]), st.sampled_from(["a", "b", "c", "d"])),
        st.builds(Choose, st.sampled_from(FORMS)),
        st.builds(RollUp),
        st.builds(OpenAnew, st.integers(1, 3)),
    ),
    max_size=20,
)


@pytest.mark.slow
@given(ACTS)
def test_a_counter_is_an_int(acts: Sequence[Act]) -> None:
    """D5, D6, D7."""
    run(lambda: follow(acts))


async def follow(acts: Sequence[Act]) -> None:
    async with Database.open("memory:") as db:
        opened = [Counters(db, shard_count=2, roll_up_every_s=NEVER_S)]
        added, keys = 0, dict[str, int]()
        for act in acts:
            here = opened[-1]
            match act:
                case Add(kind, amount, None):
                    await here.open("n", kind=kind).add(amount)
                    added += amount
                case Add(kind, amount, key):
                    assert key is not None
                    if keys.setdefault(key, amount) == amount:
                        await here.open("n", kind=kind).add(amount, key=key)
                    else:
                        with pytest.raises(KeyReused):
                            await here.open("n", kind=kind).add(amount, key=key)
                case Choose(form):
                    chosen(here.open("n"), form)
                case RollUp():
                    await here.open("n").roll_up()
                case OpenAnew(shard_count):
                    opened.append(Counters(db, shard_count=shard_count, roll_up_every_s=NEVER_S))
            assert await here.open("n").value() == added + sum(keys.values())
        for process in opened:
            await process.close()
