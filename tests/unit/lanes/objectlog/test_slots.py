"""D3, G2, G9: the append rule. Whatever the bucket answers, a slot gets exactly one object, and we know whose."""

import pytest

from interlock.errors import CorruptionError, OutcomeUnknown
from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Denied, Unclear
from interlock.lanes.objectlog.format import NO_HASH, LogObject, encode_entry, log_key
from interlock.lanes.objectlog.slots import Position, read_slots, write_slot
from tests.unit.lanes.objectlog.buckets import ScriptedBucket, StillClock, lost, still_world, stored_and_lost, told

DATABASE = b"d" * 16
ERRORS: list[BucketError] = [ConditionFailed("exists"), Unclear("500"), Unclear("timeout"), Denied("403")]


def group(
    seq: int, previous: bytes = NO_HASH, *, epoch: int = 1, nonce: bytes = b"1" * 16, fill: bytes = b"x"
) -> LogObject:
    return LogObject("group", DATABASE, epoch, seq, previous, nonce, 0, 512, 1, ((1, fill * 512),))


@pytest.mark.parametrize("error", ERRORS)
def test_our_own_object_behind_a_lost_answer_is_done(error: BucketError) -> None:
    bucket = ScriptedBucket()
    bucket.faults = [stored_and_lost(error)]
    stored = write_slot(bucket, group(1), still_world(), 30)
    assert stored.entry.nonce == b"1" * 16
    assert bucket.calls == [("create", log_key(1)), ("get", log_key(1))]


@pytest.mark.parametrize("error", ERRORS)
def test_an_empty_slot_gets_the_same_bytes_again(error: BucketError) -> None:
    bucket = ScriptedBucket()
    sent: list[bytes] = []
    bucket.faults = [told(sent, lost(error)), told(sent, lost(error)), told(sent, None)]
    stored = write_slot(bucket, group(1), still_world(), 30)
    assert stored.entry.nonce == b"1" * 16
    assert len(sent) == 3
    assert len(set(sent)) == 1
    assert {key for call, key in bucket.calls if call == "create"} == {log_key(1)}


def test_somebody_elses_object_is_reported_and_left_alone() -> None:
    bucket = ScriptedBucket()
    bucket.objects[log_key(1)] = theirs = encode_entry(group(1, epoch=2, nonce=b"2" * 16))
    stored = write_slot(bucket, group(1), still_world(), 30)
    assert (stored.entry.epoch, stored.entry.nonce) == (2, b"2" * 16)
    assert bucket.objects == {log_key(1): theirs}


def test_a_late_first_request_does_no_harm() -> None:
    bucket = ScriptedBucket()

    def lands_before_the_second(bucket: ScriptedBucket, _call: str, key: str, data: bytes) -> None:
        bucket.store(key, data)

    bucket.faults = [lost(Unclear("hang")), lands_before_the_second]
    assert write_slot(bucket, group(1), still_world(), 30).entry.nonce == b"1" * 16


def test_past_the_deadline_the_outcome_is_unknown() -> None:
    bucket, clock = ScriptedBucket(), StillClock()
    bucket.faults = [lost(Unclear("no route"))] * 1_000
    bucket.unreadable = [Unclear("no route")] * 1_000
    begun_s = clock.now_s
    with pytest.raises(OutcomeUnknown, match="no route") as caught:
        write_slot(bucket, group(1), still_world(clock=clock), 30)
    assert "same key" in caught.value.fix
    assert 30 <= clock.now_s - begun_s < 33
    assert sum(call == "create" for call, _ in bucket.calls) < 200, "a busy loop is not patience"


def chain(bucket: ScriptedBucket, count: int, start: Position | None = None) -> Position:
    position = start or Position()
    for number in range(count):
        entry = group(position.seq + 1, position.hash, nonce=number.to_bytes(16))
        position = write_slot(bucket, entry, still_world(), 30).position
    return position


def test_the_log_is_read_to_its_end_and_checked_link_by_link() -> None:
    bucket = ScriptedBucket()
    end = chain(bucket, 70)
    found = list(read_slots(bucket, DATABASE, Position()))
    assert [stored.entry.seq for stored in found] == list(range(1, 71))
    assert found[-1].position == end
    assert list(read_slots(bucket, DATABASE, found[66].position)) == found[67:]
    assert list(read_slots(bucket, DATABASE, Position(), until=3)) == found[:3]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (group(3, b"z" * 32), "hash chain"),
        (group(3)._replace(database=b"e" * 16), "belongs to database"),
        (group(7), "says that it is number 7"),
    ],
)
def test_a_link_that_does_not_fit_is_corruption(entry: LogObject, why: str) -> None:
    bucket = ScriptedBucket()
    end = chain(bucket, 2)
    if entry.previous == NO_HASH:
        entry = entry._replace(previous=end.hash)
    bucket.objects[log_key(3)] = encode_entry(entry)
    with pytest.raises(CorruptionError, match=why):
        list(read_slots(bucket, DATABASE, Position()))


def test_an_epoch_that_goes_back_is_corruption() -> None:
    bucket = ScriptedBucket()
    first = write_slot(bucket, group(1, epoch=5), still_world(), 30).position
    write_slot(bucket, group(2, first.hash, epoch=4), still_world(), 30)
    with pytest.raises(CorruptionError, match="epoch 4 is lower"):
        list(read_slots(bucket, DATABASE, Position()))


def test_a_slot_written_while_the_log_was_read_is_not_missed() -> None:
    bucket = ScriptedBucket()
    chain(bucket, 5)
    third = bucket.objects.pop(log_key(3))
    real = bucket.get

    def get(key: str) -> object:
        found = real(key)
        if key == log_key(4):
            bucket.objects[log_key(3)] = third
        return found

    bucket.get = get  # type: ignore[method-assign,assignment]
    assert [stored.entry.seq for stored in read_slots(bucket, DATABASE, Position())] == [1, 2, 3, 4, 5]


def test_a_hole_in_a_history_that_must_be_whole_is_named() -> None:
    bucket = ScriptedBucket()
    chain(bucket, 5)
    del bucket.objects[log_key(3)]
    with pytest.raises(CorruptionError, match="00003 cannot be used: it is missing"):
        list(read_slots(bucket, DATABASE, Position(), until=5))
