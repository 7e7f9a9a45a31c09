"""D3: the local file is a cache. It is used again only when it certainly is what the log says."""

import shutil
from pathlib import Path

import pytest

from interlock.errors import CorruptionError
from interlock.lanes.objectlog.format import log_key
from tests.unit.lanes.objectlog.buckets import Owner, ScriptedBucket, StillClock


def filled(bucket: ScriptedBucket, folder: Path, rows: int = 3, **knobs: float) -> Owner:
    owner = Owner(bucket, folder, 1, clock=None, boot="this machine", **knobs)
    for number in range(rows):
        owner.run("INSERT INTO t (b) VALUES (?)", number)
        owner.log.run_upkeep()
    return owner


def reads(bucket: ScriptedBucket) -> list[str]:
    """The slots that were read since the last look."""
    found = [key for call, key in bucket.calls if call == "get" and key.startswith("log/")]
    bucket.calls.clear()
    return found


def test_after_a_clean_close_the_file_is_used_again(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    filled(bucket, tmp_path / "a", 40).close()
    bucket.calls.clear()
    owner = Owner(bucket, tmp_path / "a", 2)
    assert log_key(1) not in reads(bucket), "it was replayed from the beginning"
    assert len(owner.rows()) == 40


def test_after_a_crash_the_file_is_made_anew(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    owner.connection.execute("INSERT INTO t (b) VALUES ('never handed on')")
    owner.connection.close()
    again = Owner(bucket, tmp_path / "a", 2)
    assert again.rows() == [(1, 0), (2, 1), (3, 2)]
    assert log_key(1) in reads(bucket)


def test_a_lane_that_died_leaves_no_file(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    owner.close(clean=False)
    assert not owner.path.exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.with_name(path.name + ".clean").write_bytes(b"not json"),
        lambda path: path.with_name(path.name + ".clean").unlink(),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.unlink(),
    ],
)
def test_a_file_that_is_not_as_it_was_left_is_made_anew(tmp_path: Path, spoil: object) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    owner.close()
    assert callable(spoil)
    spoil(owner.path)
    assert Owner(bucket, tmp_path / "a", 2).rows() == [(1, 0), (2, 1), (3, 2)]


def test_a_file_of_another_database_is_made_anew(tmp_path: Path) -> None:
    filled(ScriptedBucket(), tmp_path / "a").close()
    bucket = ScriptedBucket()
    other = Owner(bucket, tmp_path / "b", 7)
    other.run("INSERT INTO t (b) VALUES ('other')")
    other.close()
    assert Owner(bucket, tmp_path / "a", 8).rows() == [(1, "other")]


def test_a_file_that_the_log_has_gone_on_from_is_brought_up_to_date(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    filled(bucket, tmp_path / "a").close()
    other = Owner(bucket, tmp_path / "b", 2)
    other.run("INSERT INTO t (b) VALUES ('more')")
    other.close()
    assert Owner(bucket, tmp_path / "a", 3).rows() == [(1, 0), (2, 1), (3, 2), (4, "more")]


def test_a_file_that_stands_where_the_log_says_something_else_is_made_anew(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    owner.close()
    mark = owner.path.with_name("x.lane.clean")
    mark.write_text(mark.read_text().replace(owner.log.position.hash.hex(), "00" * 32))
    assert Owner(bucket, tmp_path / "a", 2).rows() == [(1, 0), (2, 1), (3, 2)]
    assert log_key(1) in reads(bucket)


def test_a_file_older_than_the_newest_snapshot_is_made_anew(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    filled(bucket, tmp_path / "a").close()
    other = Owner(bucket, tmp_path / "b", 2, snapshot_bytes_min=4_096, snapshots_retained=1, retention_s=0)
    for number in range(10):
        other.run("INSERT INTO t (b) VALUES (?)", number)
        other.log.run_upkeep()
    other.close()
    assert len(Owner(bucket, tmp_path / "a", 3).rows()) == 13


def test_the_files_name_is_kept_when_the_file_is_thrown_away(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    name = (tmp_path / "a" / "x.lane.id").read_text()
    owner.close(clean=False)
    Owner(bucket, tmp_path / "a", 2)
    assert (tmp_path / "a" / "x.lane.id").read_text() == name


@pytest.mark.parametrize("spoil", ["missing", "foreign", "short"])
def test_a_snapshot_that_is_not_whole_is_corruption(tmp_path: Path, spoil: str) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a", 5, snapshot_bytes_min=4_096)
    owner.close()
    kept = owner.log.manifest.snapshots
    keys = [key for key in bucket.keys("snapshot/") if kept[-1].nonce in key]
    if spoil == "missing":
        del bucket.objects[keys[0]]
    elif spoil == "foreign":
        bucket.objects[keys[0]] = next(bucket.objects[key] for key in bucket.keys("snapshot/") if key != keys[0])
    else:
        bucket.objects[keys[0]] = bucket.objects[keys[0]][:-1]
    with pytest.raises(CorruptionError, match=r"snapshot/"):
        Owner(bucket, tmp_path / "b", 2)


def test_a_file_whose_log_could_not_be_folded_is_not_kept(tmp_path: Path) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    owner.log.close(clean=True)
    assert not owner.path.with_name("x.lane.clean").exists()
    owner.connection.close()


def test_a_mark_counts_only_until_the_machine_is_started_again(tmp_path: Path) -> None:
    """G2: nothing is synced, so a power cut may have taken any page, and left the mark."""
    bucket = ScriptedBucket()
    filled(bucket, tmp_path / "a", 40).close()
    bucket.calls.clear()
    assert len(Owner(bucket, tmp_path / "a", 2, boot="after the power cut").rows()) == 40
    assert log_key(1) in reads(bucket)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_file_with_a_log_beside_it_is_made_anew(tmp_path: Path, suffix: str) -> None:
    bucket = ScriptedBucket()
    owner = filled(bucket, tmp_path / "a")
    owner.close()
    owner.path.with_name(owner.path.name + suffix).write_bytes(b"what was never handed on")
    bucket.calls.clear()
    assert Owner(bucket, tmp_path / "a", 2).rows() == [(1, 0), (2, 1), (3, 2)]
    assert log_key(1) in reads(bucket)


def test_a_copied_folder_is_not_the_same_file(tmp_path: Path) -> None:
    """Its lock says nothing about an owner on another machine, whose lease has to run out."""
    bucket, clock = ScriptedBucket(), StillClock()
    owner = filled(bucket, tmp_path / "a", lease_s=10)
    (tmp_path / "b").mkdir()
    shutil.copy(owner.path.with_name("x.lane.id"), tmp_path / "b")
    begun_s = clock.now_s
    Owner(bucket, tmp_path / "b", 2, clock=clock, boot="another machine")
    assert clock.now_s - begun_s >= 10
