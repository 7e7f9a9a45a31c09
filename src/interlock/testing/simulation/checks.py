"""Invariants at the end of a seed, checked against everything the bucket ever stored.

Each guarantee is cited by its name. The checks compare every answer of a client and its time with what the bucket had
stored at that time. They replay the log themselves (`replay`).
"""

from collections import Counter

from interlock.lanes.settings import LaneSettings
from interlock.testing.simulation.bucket import Server, short
from interlock.testing.simulation.replay import BrokenLog, Image, Slot, key_of, look, manifest_of, read_slot, recover
from interlock.testing.simulation.story import Attempt, Shown, Story
from interlock.testing.simulation.weather import DRIFT_MAX

Marks = tuple[str, ...]


class Durable:
    """The log as the bucket stored it: for each transaction, its slot and the time it became durable."""

    def __init__(self, server: Server) -> None:
        self.slots: list[Slot] = []
        self.numbers: list[tuple[int, float]] = [(0, 0.0)]
        """By the counter's value: the first slot with it, and when that was stored."""
        image = Image()
        written = server.written
        while (stored := written.get(key := key_of(image.seq + 1))) is not None:
            slot = read_slot(stored[0].data, key)
            image.follow(slot, key)
            self.slots.append(slot)
            if slot.pages:
                self._count(look(image.data).number, slot.seq, stored[0].time_s)
        beyond = [key for key in written if int(key[4:]) > image.seq]
        if beyond:
            raise BrokenLog(key_of(image.seq + 1), f"G1: a hole in the log: {short(min(beyond))} is after it")
        self.image = image
        self.tables = look(image.data, whole=True)
        self.names = dict(self.tables.rows)

    def _count(self, number: int, seq: int, time_s: float) -> None:
        if number < len(self.numbers) - 1:
            raise BrokenLog(key_of(seq), f"G1: the counter goes back from {len(self.numbers) - 1} to {number}")
        self.numbers += [(seq, time_s)] * (number - len(self.numbers) + 1)


def check(story: Story, server: Server, settings: LaneSettings) -> None:
    """Look for contradictions; each is a complaint of the story."""
    try:
        durable = Durable(server)
        _check_bucket(story, server, durable)
        _check_history(story, server, settings)
    except BrokenLog as error:
        story.complain(f"the log is broken: {error}", error.key, key_before(error.key))
        return
    _check_tables(story, durable)
    by_id: dict[str, list[Attempt]] = {}
    for attempt in story.attempts:
        by_id.setdefault(attempt.id, []).append(attempt)
    times = Counter(name for _, name in durable.tables.rows)
    for name, attempts in by_id.items():
        _check_transaction(story, name, attempts, times[name])
        for attempt in attempts:
            if attempt.answer == "acknowledged":
                _check_acknowledged(story, durable, attempt)
    acknowledged = sorted((each.told_s, each.number) for each in story.attempts if each.answer == "acknowledged")
    for observed in story.observed:
        _check_shown(story, durable, observed)
        _check_fresh(story, observed, acknowledged, settings.lease_s)


def key_before(key: str) -> str:
    """The key of the slot before."""
    return key_of(int(key[4:]) - 1) if key.startswith("log/") else key


def _check_bucket(story: Story, server: Server, durable: Durable) -> None:
    """Fences stay, and every snapshot that is kept leads to the same pages."""
    for slot in durable.slots:
        key = key_of(slot.seq)
        if slot.fence and server.objects.get(key) != server.written[key][0].data:
            story.complain(f"G4: the fence {short(key)} of epoch {slot.epoch} is gone", key)
    snapshots = manifest_of(server.objects)["snapshots"]
    for snapshot in snapshots or [None]:
        image = recover(server.objects, snapshot)
        where = "the first slot" if snapshot is None else f"the snapshot at {snapshot['seq']}"
        if image.seq != durable.image.seq:
            story.complain(f"G2: recovery from {where} ends at slot {image.seq}, not {durable.image.seq}")
        elif image.data != durable.image.data:
            story.complain(f"G2: recovery from {where} does not give the same pages as the whole log")


def _check_history(story: Story, server: Server, settings: LaneSettings) -> None:
    """Nothing is collected that is needed to restore a state of the time that is to be kept."""
    manifest = manifest_of(server.objects)
    if not manifest["collected"]:
        return
    oldest, newest = manifest["snapshots"][0], manifest["snapshots"][-1]
    kept_s = (newest["time_us"] - oldest["time_us"]) / 1_000_000
    if kept_s < settings.retention_s:
        story.complain(
            f"the history reaches back for {kept_s:.1f} s instead of {settings.retention_s:g} s, "
            f"but slots up to {manifest['collected']} are deleted"
        )


def _check_tables(story: Story, durable: Durable) -> None:
    tables = durable.tables
    if [number for number, _ in tables.rows] != list(range(1, tables.number + 1)):
        story.complain(f"G3: the counter is {tables.number}, the rows are {[number for number, _ in tables.rows]}")
    if tables.junk:
        story.complain(f"G3: {tables.junk} rows of a transaction that was rolled back are there")


def _check_transaction(story: Story, name: str, attempts: list[Attempt], times: int) -> None:
    answers = {attempt.answer for attempt in attempts}
    marks: Marks = (name, *(attempt.by for attempt in attempts))
    if times > 1:
        story.complain(f"G9: transaction {name} is there {times} times", *marks)
    elif "acknowledged" in answers and not times:
        story.complain(f"G2: transaction {name} was acknowledged and is not there", *marks)
    elif answers == {"absent"} and times:
        story.complain(f"G9: transaction {name} was answered as if it had not happened ({attempts[0].why})", *marks)


def _check_acknowledged(story: Story, durable: Durable, attempt: Attempt) -> None:
    number = attempt.number
    marks: Marks = (attempt.id, attempt.by)
    if not 0 < number < len(durable.numbers) or durable.names.get(number) != attempt.id:
        story.complain(f"G2: transaction {attempt.id} was acknowledged as number {number}, which is another", *marks)
        return
    seq, stored_s = durable.numbers[number]
    epoch = durable.slots[seq - 1].epoch
    marks = (*marks, key_of(seq))
    if stored_s > attempt.told_s:
        story.complain(
            f"G2: transaction {attempt.id} was acknowledged {stored_s - attempt.told_s:.3f} s before it was stored",
            *marks,
        )
    if epoch > attempt.epoch or (attempt.key is None and epoch != attempt.epoch):
        story.complain(
            f"G4: transaction {attempt.id} was acknowledged by epoch {attempt.epoch}, and is in the log of {epoch}",
            *marks,
        )


def _check_shown(story: Story, durable: Durable, observed: Shown) -> None:
    """G7: an observed state is a prefix of the log that was durable at that time."""
    marks: Marks = (observed.by, *([observed.id] if observed.id else []))
    if observed.number >= len(durable.numbers) or durable.names.get(observed.number) != observed.id:
        story.complain(
            f"G7: a {observed.how} showed {observed.number} ({observed.id}), which the log never was", *marks
        )
        return
    seq, stored_s = durable.numbers[observed.number]
    if stored_s > observed.told_s:
        story.complain(
            f"G7: a {observed.how} showed {observed.number} ({observed.id}) before it was durable", *marks, key_of(seq)
        )


def _check_fresh(story: Story, observed: Shown, acknowledged: list[tuple[float, int]], lease_s: float) -> None:
    """G7: an observed state includes everything acknowledged before, up to the clock drift within a lease."""
    limit_s = observed.asked_s - 4 * DRIFT_MAX * lease_s
    latest = max((number for told_s, number in acknowledged if told_s < limit_s), default=0)
    if latest > observed.number:
        story.complain(
            f"G7: a {observed.how} by {observed.by} showed {observed.number} although {latest} was acknowledged before",
            observed.by,
        )
