"""Point-in-time restore: every state that is kept comes back exactly, and what cannot come back is named."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interlock.backup import lane_copies
from interlock.errors import CorruptionError, LaneOwned, TargetNotFound, UnavailableError, UnusableFile
from interlock.lanes import file as lanes_file
from interlock.lanes.file import Ownership
from interlock.lanes.objectlog.bucket_protocol import Denied, Found, Unclear
from interlock.lanes.objectlog.format import log_key
from tests.unit.lanes.objectlog.buckets import ScriptedBucket, StillClock
from tests.unit.lanes.objectlog.histories import History, restore_from, rows_of


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Two owners, a few snapshots, nothing collected."""
    made = History(tmp_path)
    made.insert(8)
    made.open()
    made.write("UPDATE t SET b = 'changed' WHERE a = 3")
    made.insert(8)
    made.write("DELETE FROM t WHERE a < 5")
    made.insert_behind_snapshot(3)
    assert len(made.manifest.snapshots) >= 2
    return made


def at_us(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


def test_every_state_comes_back_exactly(history: History, tmp_path: Path) -> None:
    before, first = dict(history.bucket.objects), history.manifest.snapshots[0].seq
    for seq in range(first, history.last + 1):
        file = tmp_path / f"{seq}.lane"
        done = history.restore(file, seq)
        assert done.at.seq == seq
        assert rows_of(file) == history.states.get(seq, []), seq
    assert history.bucket.objects == before
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.is_file()) == [".lane"] * (
        history.last - first + 1
    )


def test_without_a_number_it_is_the_newest(history: History, tmp_path: Path) -> None:
    done = history.restore(tmp_path / "x.lane")
    assert done.at.seq == history.last
    assert rows_of(tmp_path / "x.lane") == history.owner.rows()


def test_it_begins_with_the_newest_snapshot_that_is_not_later(history: History, tmp_path: Path) -> None:
    first, second = (each.seq for each in history.manifest.snapshots[:2])
    assert history.restore(tmp_path / "b", first).snapshot == first
    assert history.restore(tmp_path / "c", second - 1).snapshot == first
    assert history.restore(tmp_path / "d", second).snapshot == second


def test_a_time_is_the_newest_state_that_is_not_later(history: History, tmp_path: Path) -> None:
    for seq, time_us in history.times_us.items():
        newest = max(each for each, other_us in history.times_us.items() if other_us <= time_us)
        if seq >= history.manifest.snapshots[0].seq:
            done = history.restore(tmp_path / f"{seq}", at_us(time_us))
            assert (done.at.seq, done.time) == (newest, at_us(time_us))
    future = history.restore(tmp_path / "future", datetime(2999, 1, 1, tzinfo=UTC))
    assert future.at.seq == history.last


def test_without_a_snapshot_the_history_begins_with_the_log(tmp_path: Path) -> None:
    history = History(tmp_path, snapshot_bytes_min=1_000_000)
    history.insert(3)
    for seq in range(1, history.last + 1):
        done = history.restore(tmp_path / str(seq), seq)
        assert (done.at.seq, done.snapshot, done.time is None) == (seq, 0, seq <= 2)
        assert rows_of(tmp_path / str(seq)) == history.states.get(seq, [])
    assert history.restore(tmp_path / "x", at_us(history.times_us[history.last])).at.seq == history.last
    with pytest.raises(TargetNotFound, match="no group that is so old"):
        history.restore(tmp_path / "past", datetime(1969, 1, 1, tzinfo=UTC))


def test_what_is_beyond_the_end_names_the_last(history: History, tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound, match=f"no state 1000; the last one is {history.last}"):
        history.restore(tmp_path / "x", 1_000)
    with pytest.raises(TargetNotFound, match=f"the last one is {history.last}"):
        history.restore(tmp_path / "x", history.last + 1)
    assert not (tmp_path / "x").exists()


def test_what_is_no_longer_kept_names_the_first(tmp_path: Path) -> None:
    history = History(tmp_path, snapshots_kept=2)
    history.insert(40)
    first = history.manifest.snapshots[0].seq
    assert history.manifest.collected, "nothing was collected: this test shows nothing"
    for asked in (1, first - 1):
        with pytest.raises(TargetNotFound, match=f"at {asked} is not there; the first that is kept is {first},"):
            history.restore(tmp_path / "x", asked)
    with pytest.raises(TargetNotFound, match=f"first that is kept is {first},"):
        history.restore(tmp_path / "x", at_us(1_000_000))
    for seq in range(first, history.last + 1):
        history.restore(tmp_path / "x", seq, force=True)
        assert rows_of(tmp_path / "x") == history.states[seq]


def test_no_database_is_told(tmp_path: Path) -> None:
    with pytest.raises(TargetNotFound, match="no database at s3://bucket/shop/stock"):
        restore_from(ScriptedBucket(), tmp_path / "x")


@pytest.mark.parametrize("error", [Unclear("no route to host"), Denied("403")])
def test_a_bucket_that_does_not_answer_is_told(history: History, tmp_path: Path, error: Exception) -> None:
    for reads in (0, 1, 12):
        history.bucket.unreadable = [*[None] * reads, error]  # type: ignore[list-item]
        with pytest.raises(UnavailableError, match=str(error)):
            history.restore(tmp_path / "x")
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_file_that_is_there_stays_unless_it_is_forced(history: History, tmp_path: Path) -> None:
    file = tmp_path / "x.lane"
    file.write_text("mine")
    with pytest.raises(UnusableFile, match="exists"):
        history.restore(file)
    assert file.read_text() == "mine"
    history.restore(file, force=True)
    assert rows_of(file) == history.owner.rows()


def test_a_file_that_comes_into_being_meanwhile_stays(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, look = tmp_path / "x.lane", lanes_file.check_target

    def comes_after_the_look(path: Path, *, force: bool) -> None:
        look(path, force=force)
        if list(tmp_path.glob(".*.copying")):
            file.write_text("mine")

    monkeypatch.setattr(lane_copies, "check_target", comes_after_the_look)
    with pytest.raises(UnusableFile, match="File exists"):
        history.restore(file)
    assert file.read_text() == "mine"
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_is_not_there_or_no_file_is_refused(history: History, tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match=r"folder .* does not exist"):
        history.restore(tmp_path / "no" / "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnusableFile, match="is not a file"):
        history.restore(tmp_path / "folder", force=True)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_log_of_another_database_of_that_name_is_refused(history: History, tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"x.lane{suffix}").write_bytes(b"log")
    with pytest.raises(UnusableFile, match=f"x.lane{suffix} is there"):
        history.restore(tmp_path / "x.lane", force=True)


def test_a_lane_that_is_open_is_not_replaced(history: History, tmp_path: Path) -> None:
    file = tmp_path / "x.lane"
    file.write_text("open")
    owner = Ownership.take(file, StillClock())
    with pytest.raises(LaneOwned):
        history.restore(file, force=True)
    assert file.read_text() == "open"
    owner.release()
    history.restore(file, force=True)


def test_every_damaged_object_on_the_way_is_named_and_no_other_matters(history: History, tmp_path: Path) -> None:
    snapshot = history.manifest.snapshots[-1].seq
    assert snapshot < history.last - 1
    damaged = log_key(snapshot + 2)
    history.flip(damaged)
    for seq in range(history.manifest.snapshots[0].seq, history.last + 1):
        file = tmp_path / str(seq)
        if seq < snapshot + 2:
            history.restore(file, seq)
            assert rows_of(file) == history.states.get(seq, [])
        else:
            with pytest.raises(CorruptionError, match=f"{damaged} cannot be used: its checksum"):
                history.restore(file, seq)
            assert not file.exists()


def test_a_hole_in_the_log_is_no_end(history: History, tmp_path: Path) -> None:
    hole = history.manifest.snapshots[-1].seq + 1
    assert hole < history.last
    del history.bucket.objects[log_key(hole)]
    for at in (None, datetime(2999, 1, 1, tzinfo=UTC)):
        with pytest.raises(CorruptionError, match=f"{log_key(hole)} cannot be used: it is missing"):
            history.restore(tmp_path / "x", at)


def test_a_damaged_snapshot_costs_only_a_longer_replay(history: History, tmp_path: Path) -> None:
    [*_, before, newest] = history.manifest.snapshots
    for key in history.bucket.keys(f"snapshot/{newest.seq:020d}"):
        history.flip(key)
    done = history.restore(tmp_path / "x")
    assert done.snapshot == before.seq
    assert rows_of(tmp_path / "x") == history.owner.rows()
    for key in history.bucket.keys("snapshot/"):
        history.bucket.objects.pop(key)
    with pytest.raises(CorruptionError, match=rf"snapshot/{newest.seq:020d}-\w+/000000 cannot be used: it is missing"):
        history.restore(tmp_path / "y")


def test_a_snapshot_of_another_history_is_not_built_upon(history: History, tmp_path: Path) -> None:
    history.change_snapshot(-1, lambda part: part._replace(at_hash=bytes(32)))
    assert history.restore(tmp_path / "x").snapshot == history.manifest.snapshots[-2].seq
    assert rows_of(tmp_path / "x") == history.owner.rows()


def test_pages_that_contradict_each_other_are_not_called_done(history: History, tmp_path: Path) -> None:
    seq = history.last

    def spoiled(number: int, page: bytes) -> bytes:
        return page if number == 1 else bytes(len(page))

    pages = tuple((number, spoiled(number, page)) for number, page in history.entry(seq).pages)
    history.change_entry(seq, lambda entry: entry._replace(pages=pages))
    with pytest.raises(CorruptionError, match=f"as it was at {seq} is damaged"):
        history.restore(tmp_path / "x", seq)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"database": "xyz"}, "not the id"),
        ({"collected": 10_000}, "no snapshot takes their place"),
    ],
)
def test_a_manifest_that_cannot_be_is_named(
    history: History, tmp_path: Path, fields: dict[str, object], told: str
) -> None:
    history.change_manifest(**fields)
    with pytest.raises(CorruptionError, match=f"manifest cannot be used: .*{told}"):
        history.restore(tmp_path / "x")


class Busy(ScriptedBucket):
    """A bucket whose owner goes on whenever somebody else reads."""

    def __init__(self) -> None:
        super().__init__()
        self.history: History | None = None
        self.turns = 0

    def get(self, key: str) -> Found | None:
        self._let_the_owner_go_on()
        return super().get(key)

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        self._let_the_owner_go_on()
        return [None if data is None else data[:bytes_max] for data in map(self.objects.get, keys)]

    def _let_the_owner_go_on(self) -> None:
        history = self.history
        if history is not None and self.turns:
            self.history = None  # The owner reads too.
            self.turns -= 1
            history.insert(3)
            self.history = history


def test_beside_an_owner_that_writes_and_collects_a_state_is_exact_or_refused(tmp_path: Path) -> None:
    outcomes = set[str]()
    bucket = Busy()
    history = History(tmp_path, bucket, snapshots_kept=2)
    history.insert(20)
    for turns in range(30):
        bucket.history = None
        seq = history.last - turns % 7
        file = tmp_path / str(turns)
        bucket.history, bucket.turns = history, turns % 11
        try:
            restore_from(bucket, file, seq)
        except UnavailableError:
            outcomes.add("too slow")
        except TargetNotFound as error:
            outcomes.add("refused" if "is not there; the first that is kept is" in error.what else error.what)
        else:
            assert rows_of(file) == history.states[seq]
            outcomes.add("exact")
    assert not list(tmp_path.glob(".*"))
    bucket.turns = 20
    done = restore_from(bucket, tmp_path / "newest")
    assert rows_of(tmp_path / "newest") == history.states[done.at.seq]
    assert {"exact", "refused"} <= outcomes <= {"exact", "refused", "too slow"}


def test_a_history_that_is_always_collected_first_is_unavailable(tmp_path: Path) -> None:
    bucket = Busy()
    history = History(tmp_path, bucket, snapshots_kept=2, snapshot_bytes_min=4_096)
    history.insert(20)
    bucket.history, bucket.turns = history, 1_000
    with pytest.raises(UnavailableError, match="owner has deleted what was just being read"):
        restore_from(bucket, tmp_path / "x")


def test_progress_is_told(history: History, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    restore_from(history.bucket, tmp_path / "x", watch=lambda *step: told.append(step))
    snapshot = history.manifest.snapshots[-1].seq
    assert (f"loading the snapshot at {snapshot}", 1, 1) in told
    assert ("replaying the log", history.last - snapshot, history.last - snapshot) in told
    assert told[-1] == ("checking the pages", 1, 1)
