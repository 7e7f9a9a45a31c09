"""Seeding of a database in a bucket from a file: the pages of the file become one group of the log.

Nothing about the result is special: the seeding process is the owner for that time and fences the owner before. The
next owner replays the group or finds a snapshot of it. An existing history stays: the group comes after it, and earlier
states can still be restored.
"""

from pathlib import Path
from typing import Final

from interlock.errors import UnusableFile
from interlock.lanes.objects.answering import answering
from interlock.lanes.objects.bucket import Bucket
from interlock.lanes.objects.format import Entry
from interlock.lanes.objects.manifest import fenced, read_manifest
from interlock.lanes.objects.slots import Position, write_slot
from interlock.lanes.objects.takeover import claim, fence
from interlock.lanes.objects.world import World
from interlock.lanes.settings import LaneSettings

SEED_BYTES_MAX: Final = 1_073_741_824
"""G6: the group is made in memory."""


def seed(bucket: Bucket, file: Path, *, name: str, settings: LaneSettings, world: World, force: bool) -> int:
    """Make the pages of a file the state of the database in a bucket; return its position in the log.

    Raises UnusableFile for an existing database, unless `force`; LaneOwned when it has a live owner.
    """
    size = file.stat().st_size
    if size > SEED_BYTES_MAX:
        raise UnusableFile(
            f"{file} has {size:,} bytes; at most {SEED_BYTES_MAX:,} are put into a bucket as one object.",
            why="The object is made in memory.",
            fix="Put it back as a lane.",
        )
    with answering("look for a database"):
        found = read_manifest(bucket)
    if found is not None and not force:
        raise UnusableFile(
            f"there is a database at {name}.",
            why="Its state would be another one; its history stays.",
            fix="Name another place, or say --force.",
        )
    keeper = claim(bucket, world, settings, f"restoring {world.ids.new().hex}").keeper
    try:
        position = Position()
        if keeper.manifest.snapshots:
            last = keeper.manifest.snapshots[-1]
            position = Position(last.seq, bytes.fromhex(last.hash), last.time_us)
        with answering("read the log"):
            for stored in fence(bucket, world, settings, keeper, position):
                position = stored.position
            page_bytes, pages = _pages(file)
            entry = Entry(
                "group",
                bytes.fromhex(keeper.manifest.database),
                keeper.manifest.epoch,
                position.seq + 1,
                position.hash,
                world.nonce(),
                max(int(world.clock.wall_s() * 1_000_000), position.time_us),
                page_bytes,
                len(pages),
                pages,
            )
            written = write_slot(bucket, entry, world, settings.append_deadline_s)
        if written.entry.nonce != entry.nonce:
            raise fenced(written.entry.epoch)
        return written.position.seq
    finally:
        keeper.give_up()


def _pages(file: Path) -> tuple[int, tuple[tuple[int, bytes], ...]]:
    data = file.read_bytes()
    size = int.from_bytes(data[16:18])
    page_bytes = 65_536 if size == 1 else size
    return page_bytes, tuple(
        (number + 1, data[start : start + page_bytes]) for number, start in enumerate(range(0, len(data), page_bytes))
    )
