"""The doctor for a database in a bucket: every kind of damage is found and named, and nothing else is."""

from pathlib import Path

import pytest

from interlock.errors import TargetNotFound, UnavailableError
from interlock.lanes.objectlog import bucket_doctor as doctors
from interlock.lanes.objectlog import manifest as manifests
from interlock.lanes.objectlog.bucket_protocol import Denied, Unclear
from interlock.lanes.objectlog.doctor_report import BucketReport
from interlock.lanes.objectlog.format import LogObject, SnapshotPart, decode_part, encode_entry, encode_part, log_key
from interlock.testing.lane_simulation.bucket import MemoryBucket
from tests.unit.lanes.objectlog.buckets import ScriptedBucket
from tests.unit.lanes.objectlog.histories import History, examined


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Three owners, three snapshots at least, and groups below the first that were collected."""
    made = History(tmp_path)
    made.insert(8)
    made.open()
    made.insert(9)
    made.open()
    made.insert_behind_snapshot(3)
    assert len(made.manifest.snapshots) >= 3
    assert made.manifest.collected > 2
    return made


def codes(report: BucketReport) -> list[str]:
    return [finding.code for finding in report.findings]


def parts_of(history: History, place: int) -> list[str]:
    """The keys of one snapshot's parts."""
    return history.bucket.keys(f"snapshot/{history.manifest.snapshots[place].seq:020d}")


def test_a_healthy_database_is_told_in_full_and_left_alone(history: History) -> None:
    before, manifest = dict(history.bucket.objects), history.manifest
    report = history.examine()
    assert history.bucket.objects == before
    assert (report.healthy, report.findings, report.lost) == (True, [], [])
    assert (report.database, report.revision, report.epoch) == (manifest.database, manifest.revision, 3)
    assert report.owner is not None
    assert report.owner.pid > 0
    first = manifest.snapshots[0].seq
    assert report.log_objects == history.last - first + 1
    assert report.log_bytes == sum(len(before[log_key(seq)]) for seq in range(first, history.last + 1))
    assert report.fences + report.fences_below == 3
    assert report.fences_below >= 1
    assert report.replay_objects == 3
    assert [each.objects_behind for each in report.snapshots] == [history.last - at.seq for at in manifest.snapshots]
    assert report.first is not None
    assert report.last is not None
    assert (report.first.seq, report.last.seq) == (first, history.last)
    assert report.pages is not None
    assert report.tables == 1


def test_without_owner_and_snapshots_it_is_as_healthy(tmp_path: Path) -> None:
    history = History(tmp_path, snapshot_bytes_min=1_000_000)
    history.insert(40)
    history.owner.close()
    report = history.examine()
    assert (codes(report), report.healthy, report.owner, report.snapshots) == ([], True, None, [])
    assert report.first is not None
    assert (report.first.seq, report.replay_objects) == (1, history.last)


def test_nothing_at_the_address_and_no_answer_are_errors(history: History) -> None:
    with pytest.raises(TargetNotFound, match="no database at"):
        examined(ScriptedBucket())
    for reads in (0, 1, 10):
        for error in (Unclear("no route"), Denied("403")):
            history.bucket.unreadable = [*[None] * reads, error]
            with pytest.raises(UnavailableError, match=str(error)):
                history.examine()


def test_a_flipped_byte_is_found_and_what_can_be_restored_is_known(history: History) -> None:
    middle = history.manifest.snapshots[1].seq
    history.flip(log_key(middle - 1))
    report = history.examine()
    assert codes(report) == ["object-damaged"]
    assert report.findings[0].what.startswith(log_key(middle - 1))
    assert "restore" in report.findings[0].fix
    assert report.lost == [(middle - 1, middle - 1)]
    assert not report.healthy
    assert report.last is not None
    assert report.last.seq == history.last


def test_damage_behind_the_newest_snapshot_ends_what_can_be_restored(history: History) -> None:
    history.flip(log_key(history.last - 1))
    report = history.examine()
    assert codes(report) == ["object-damaged"]
    assert report.lost == [(history.last - 1, history.last)]
    assert report.last is not None
    assert report.last.seq == history.last - 2
    assert report.pages is not None


def test_a_missing_slot_is_found_and_a_run_of_them_is_one_finding(history: History) -> None:
    start = history.manifest.snapshots[-1].seq
    for seq in (start + 1, start + 2):
        del history.bucket.objects[log_key(seq)]
    report = history.examine()
    assert codes(report) == ["object-missing"]
    assert report.findings[0].what == f"{log_key(start + 1)} and 1 after it are missing."
    assert report.lost == [(start + 1, history.last)]


def test_a_hole_as_wide_as_a_window_is_no_end(tmp_path: Path) -> None:
    history = History(tmp_path, snapshot_bytes_min=1_000_000)
    history.insert(100)
    for seq in range(20, 90):
        del history.bucket.objects[log_key(seq)]
    report = history.examine()
    assert [finding.what for finding in report.findings] == [f"{log_key(20)} and 69 after it are missing."]
    assert report.lost == [(20, history.last)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda entry: entry._replace(previous=b"x" * 32), "does not follow the object before it"),
        (lambda entry: entry._replace(epoch=1), "its epoch 1 is lower than the one before it, 3"),
        (lambda entry: entry._replace(database=b"d" * 16), "it belongs to database 6464"),
        (lambda entry: entry._replace(seq=7), "it says that it is number 7"),
        (lambda entry: entry._replace(time_us=-1), "the lane's time goes back"),
    ],
)
def test_an_object_that_does_not_belong_is_found(history: History, change: object, told: str) -> None:
    history.change_entry(history.last - 1, change)  # type: ignore[arg-type]
    report = history.examine()
    assert codes(report) == ["object-misplaced"]
    assert told in report.findings[0].what
    assert report.lost == [(history.last - 1, history.last)]


def test_a_chain_that_is_not_mended_breaks_behind_the_change(history: History) -> None:
    history.change_entry(history.last - 1, lambda entry: entry._replace(nonce=b"n" * 16), mend=False)
    report = history.examine()
    assert codes(report) == ["object-misplaced"]
    assert report.findings[0].what.startswith(log_key(history.last))


def test_a_missing_part_is_found_and_the_log_makes_up_for_it(history: History) -> None:
    for place in (1, -1):
        for key in parts_of(history, place):
            del history.bucket.objects[key]
    report = history.examine()
    assert codes(report) == ["snapshot-damaged", "snapshot-damaged"]
    assert "it is missing" in report.findings[0].what
    assert "Opening the database" in report.findings[1].why
    assert report.lost == []


def test_without_the_first_snapshot_the_history_begins_with_the_next(history: History) -> None:
    first, second = (each.seq for each in history.manifest.snapshots[:2])
    history.flip(parts_of(history, 0)[0])
    report = history.examine()
    assert codes(report) == ["snapshot-damaged"]
    assert report.lost == [(first, second - 1)]
    assert report.first is not None
    assert report.first.seq == second


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part._replace(database=b"d" * 16),
        lambda part: part._replace(seq=1),
        lambda part: part._replace(at_hash=b"h" * 32),
        lambda part: part._replace(nonce=b"n" * 16),
        lambda part: part._replace(part=1),
        lambda part: part._replace(parts=2),
        lambda part: part._replace(first_page=2),
        lambda part: part._replace(data=part.data[: part.page_bytes]),
    ],
)
def test_a_part_of_another_snapshot_is_found(history: History, change: object) -> None:
    [key] = parts_of(history, 1)
    part: SnapshotPart = change(decode_part(history.bucket.objects[key], key))  # type: ignore[operator]
    history.bucket.objects[key] = encode_part(part)
    assert codes(history.examine()) == ["snapshot-damaged"]


def test_a_snapshot_of_another_place_is_found(history: History) -> None:
    history.change_snapshot(1, lambda part: part._replace(at_hash=bytes(32)))
    report = history.examine()
    assert codes(report) == ["snapshot-damaged"]
    assert "after another object" in report.findings[0].what


def test_a_snapshot_that_is_not_what_the_log_says_is_found(history: History) -> None:
    history.change_snapshot(1, lambda part: part._replace(data=part.data[: -part.page_bytes] + bytes(part.page_bytes)))
    history.change_snapshot(2, lambda part: part._replace(data=part.data[: -part.page_bytes]))
    report = history.examine()
    assert codes(report) == ["snapshot-differs", "snapshot-differs"]
    assert all("1 pages differ" in finding.what for finding in report.findings)


def fences(history: History) -> list[int]:
    return [seq for seq in map(number, history.bucket.keys("log/")) if history.entry(seq).kind == "fence"]


def number(key: str) -> int:
    return int(key[4:])


def test_a_deleted_fence_is_found_in_the_history_and_below_it(history: History) -> None:
    kept = dict(history.bucket.objects)
    below, *_, inside = fences(history)
    assert below == 1
    assert inside > history.manifest.snapshots[0].seq
    del history.bucket.objects[log_key(inside)]
    assert codes(history.examine()) == ["object-missing"]
    history.bucket.objects = dict(kept)
    del history.bucket.objects[log_key(below)]
    assert set(codes(history.examine())) == {"fence-missing"}


def test_a_fence_whose_groups_are_still_there_must_be_below_them(tmp_path: Path) -> None:
    history = History(tmp_path, snapshots_kept=2)
    history.open()
    history.insert(40)
    own = fences(history)[-1]
    assert own < history.manifest.snapshots[0].seq
    assert codes(history.examine()) == []
    del history.bucket.objects[log_key(own)]
    report = history.examine()
    assert codes(report) == ["fence-missing"]
    assert "the fence of epoch 2 is gone" in report.findings[0].what


def test_an_epoch_that_begins_without_a_fence_is_found(history: History) -> None:
    history.change_entry(history.last, lambda entry: entry._replace(epoch=4))
    history.change_manifest(epoch=4)
    assert codes(history.examine()) == ["fence-missing"]


def test_a_manifest_that_went_back_is_found(history: History) -> None:
    history.change_manifest(epoch=2)
    report = history.examine()
    assert codes(report) == ["manifest"]
    assert "epoch 2, and the log at epoch 3" in report.findings[0].what


def test_what_is_left_over_is_counted_and_harms_nothing(history: History) -> None:
    entry = history.entry(history.last)
    history.bucket.objects[log_key(2)] = encode_entry(entry._replace(seq=2))
    history.bucket.objects[f"snapshot/{3:020d}-{'ab' * 16}/000000"] = b"half a snapshot"
    history.bucket.objects["log/notes.txt"] = b"mine"
    report = history.examine()
    assert (codes(report), report.healthy) == (["left-over"], True)
    assert report.findings[0].what.startswith("1 groups below the history, 1 parts of snapshots")
    assert "1 objects that are not Interlock's" in report.findings[0].what


@pytest.mark.parametrize("body", [b"", b"{}", b'{"format": 2}'])
def test_a_manifest_that_cannot_be_read_is_a_finding(history: History, body: bytes) -> None:
    history.bucket.objects[manifests.KEY] = body
    report = history.examine()
    assert (codes(report), report.healthy, report.database) == (["manifest"], False, None)


@pytest.mark.parametrize("fields", [{"database": "no"}, {"snapshots": ()}, {"format": 9}])
def test_a_manifest_that_cannot_be_is_a_finding(history: History, fields: dict[str, object]) -> None:
    history.change_manifest(**fields)
    assert codes(history.examine()) == ["manifest"]


def test_a_manifest_that_is_gone_is_a_finding_while_there_is_a_log(history: History) -> None:
    del history.bucket.objects[manifests.KEY]
    report = history.examine()
    assert codes(report) == ["manifest"]
    assert "is gone" in report.findings[0].what


def test_snapshots_out_of_order_are_a_finding(history: History) -> None:
    history.change_manifest(snapshots=history.manifest.snapshots[::-1], collected=0)
    assert codes(history.examine()) == ["manifest"]


def spoil(entry: LogObject) -> LogObject:
    return entry._replace(pages=tuple((at, page if at == 1 else bytes(len(page))) for at, page in entry.pages))


def test_pages_that_contradict_each_other_are_found(history: History) -> None:
    history.change_entry(history.last, spoil)
    report = history.examine()
    assert set(codes(report)) <= {"damaged", "object-damaged"}
    assert not report.healthy
    assert "interlock restore" in report.findings[0].fix


def test_a_snapshot_that_is_long_overdue_is_a_warning(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctors, "OVERDUE", 0)
    report = history.examine()
    assert codes(report) == ["snapshot-overdue"]
    assert not report.healthy


def test_damage_without_end_is_bounded(tmp_path: Path) -> None:
    history = History(tmp_path, snapshot_bytes_min=1_000_000)
    history.insert(60)
    for seq in range(10, 50):
        history.flip(log_key(seq))
    report = history.examine()
    assert codes(report) == ["object-damaged"] * 20
    assert report.findings[-1].what.endswith("There are 20 more of this kind.")


def test_the_probe_is_asked_only_on_demand_and_told_as_findings(history: History) -> None:
    assert history.examine(MemoryBucket()).healthy
    denied = ScriptedBucket()
    denied.unreadable = [Denied("403")]
    report = history.examine(denied)
    assert set(codes(report)) == {"bucket-promise"}
    assert {finding.severity for finding in report.findings} == {"warning"}
    assert denied.objects == {}

    class Careless(ScriptedBucket):
        def create(self, key: str, data: bytes) -> object:
            self.objects.pop(key, None)
            return super().create(key, data)

    report = history.examine(Careless())
    assert report.findings[0].severity == "error"
    assert "a key that is taken is refused" in report.findings[0].what


def test_beside_an_owner_that_writes_and_collects_it_finds_nothing_wrong(tmp_path: Path) -> None:
    history = History(tmp_path, snapshots_kept=2)
    history.insert(20)
    for turns in range(12):
        left = [turns]

        def go_on(_what: str, _done: int, _of: int, left: list[int] = left) -> None:
            if left[0]:
                left[0] -= 1
                history.insert(3)

        report = examined(history.bucket, watch=go_on)
        # A snapshot that the manifest has just let go of is there until the next collection.
        assert (report.healthy, set(codes(report)) <= {"left-over"}) == (True, True)


def test_an_owner_that_always_collects_first_makes_it_unavailable(tmp_path: Path) -> None:
    history = History(tmp_path, snapshots_kept=2)
    history.insert(20)
    with pytest.raises(UnavailableError, match="owner has deleted what was just being read"):
        examined(history.bucket, watch=lambda *_: history.insert(20))


def test_progress_reaches_its_end(history: History) -> None:
    told: list[tuple[str, int, int]] = []
    examined(history.bucket, watch=lambda *step: told.append(step))
    log = [(done, of) for what, done, of in told if what == "checking the log"]
    assert log[-1][0] == log[-1][1]
    assert [done for done, _ in log] == sorted(done for done, _ in log)
    assert told[-1] == ("checking the pages", 1, 1)
