"""The form in which two places are compared: what it sees, and how its checksum is kept up to date."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from interlock.relocate.workflow_records import Aside, Digests, LeaseRow, Note, arriving, digest_of
from tests.conformance.store.samples import effect, letter, moved, started

ROW = moved(started().row, owed=b'{"run":{"key":"k","started":true},"timers":[{"at_us":9},{"at_us":4}]}').row


def test_the_next_timer_stands_beside_a_workflow_that_arrives() -> None:
    assert arriving(1, ROW).row.timer_us == 4
    assert arriving(1, started().row).row.timer_us is None
    assert arriving(1, moved(started().row, owed=b"\x00no JSON").row).row.timer_us is None


def test_every_field_counts() -> None:
    first = digest_of(arriving(1, ROW))
    assert digest_of(arriving(2, ROW)) != first
    for name in ROW.__struct_fields__:
        if name in {"lease", "holder", "timer_us"}:  # A lane has none of them.
            continue
        more = {bytes: b"1", str: "1", int: 1, bool: 1, tuple: (1,)}
        value = getattr(ROW, name)
        other = 7 if value is None else value + more[type(value)]
        assert digest_of(arriving(1, msgspec.structs.replace(ROW, **{name: other}))) != first, name
    aside: tuple[Aside, ...] = (effect("a"), letter("a"), Note("a", "b"), LeaseRow("a", "b", 1, 2, None))
    assert len({digest_of(each) for each in aside}) == len(aside)


steps = st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 3)), max_size=40)


@given(steps)
def test_a_checksum_that_is_kept_up_to_date_is_that_of_what_is_there(changes: list[tuple[int, int]]) -> None:
    kept, fresh = Digests(), Digests()
    for number, digest in changes:
        kept.put_row(number, digest)
        kept.put_aside("notes", str(number), digest)
    for number, digest in dict(changes).items():
        if digest:
            fresh.put_row(number, digest)
            fresh.put_aside("notes", str(number), digest)
    assert (kept.checksum, kept.workflows, kept.aside("notes")) == (
        fresh.checksum,
        fresh.workflows,
        fresh.aside("notes"),
    )


def test_history_is_taken_away_as_it_was_added() -> None:
    digests = Digests()
    before = digests.checksum
    digests.add_events(2, 2**128 - 1)
    digests.add_events(-2, -(2**128 - 1))
    assert (digests.checksum, digests.events) == (before, 0)
