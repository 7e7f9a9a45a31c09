"""Each promise of a bucket, broken on purpose: the probe must name it. And what it remembers."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from interlock.errors import UnavailableError
from interlock.lanes.objectlog import probe
from interlock.lanes.objectlog.bucket_protocol import ConditionFailed, Denied, Environment, Found, Unclear
from interlock.lanes.objectlog.probe import (
    ATTEMPTS_MAX,
    ATTEMPTS_S_MAX,
    CONTENDERS,
    PromiseCheck,
    examine,
    prove,
    remember_proven,
)
from interlock.testing.lane_simulation.bucket import MemoryBucket


class Clock:
    now_s = 0.0

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


def impatient() -> Environment:
    return Environment(pause=lambda _: None)


def in_turn(work: Callable[[], None]) -> Callable[[], None]:
    work()
    return lambda: None


class SeesGhosts(MemoryBucket):
    def get(self, key: str) -> Found | None:
        return super().get(key) or Found(b"ghost", None)


class SaysTaken(MemoryBucket):
    def create(self, key: str, data: bytes) -> object:
        raise ConditionFailed("taken, it says")


class Forgets(MemoryBucket):
    def create(self, key: str, data: bytes) -> object:
        return object()


class Overwrites(MemoryBucket):
    def create(self, key: str, data: bytes) -> object:
        self.put(key, data)
        found = self.get(key)
        assert found is not None
        return found.tag


class RefusesAndStores(MemoryBucket):
    def create(self, key: str, data: bytes) -> object:
        try:
            return super().create(key, data)
        except ConditionFailed:
            self.put(key, data)
            raise


class RefusesItsOwnTag(MemoryBucket):
    def replace(self, key: str, data: bytes, tag: object) -> object:
        raise ConditionFailed("quoted or not quoted")


class IgnoresTags(MemoryBucket):
    def replace(self, key: str, data: bytes, tag: object) -> object:
        self.put(key, data)
        return object()


class RacyCreation(MemoryBucket):
    """Looks, and then writes: right when it is alone."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = threading.Barrier(CONTENDERS)

    def create(self, key: str, data: bytes) -> object:
        if not key.endswith("contended"):
            return super().create(key, data)
        taken = self.get(key) is not None
        self.barrier.wait()
        if taken:
            raise ConditionFailed("taken")
        self.put(key, data)
        return object()


class RacyReplacement(MemoryBucket):
    def __init__(self) -> None:
        super().__init__()
        self.barrier = threading.Barrier(CONTENDERS)

    def replace(self, key: str, data: bytes, tag: object) -> object:
        if not key.endswith("contended"):
            return super().replace(key, data, tag)
        found = self.get(key)
        self.barrier.wait()
        if found is None or found.tag is not tag:
            raise ConditionFailed("stale")
        self.put(key, data)
        return object()


class CrownsTheWrongOne(MemoryBucket):
    def create(self, key: str, data: bytes) -> object:
        return super().create(key, data if not key.endswith("contended") else b"somebody else's")


class NeverDeletes(MemoryBucket):
    def delete(self, keys: Sequence[str]) -> None:
        return


class Broken(NamedTuple):
    bucket: type[MemoryBucket]
    code: str


BROKEN = [
    Broken(SeesGhosts, "absent"),
    Broken(SaysTaken, "create"),
    Broken(Forgets, "read"),
    Broken(Overwrites, "create-again"),
    Broken(RefusesAndStores, "create-again"),
    Broken(RefusesItsOwnTag, "replace"),
    Broken(IgnoresTags, "replace-stale"),
    Broken(RacyCreation, "create-race"),
    Broken(CrownsTheWrongOne, "create-race"),
    Broken(RacyReplacement, "replace-race"),
    Broken(NeverDeletes, "delete"),
]


def test_a_good_bucket_keeps_every_promise_and_nothing_of_the_probe() -> None:
    bucket = MemoryBucket()
    checks = examine(bucket, impatient())
    assert [check.verdict for check in checks] == ["yes"] * len(checks)
    assert {check.code for check in checks} == {broken.code for broken in BROKEN}
    assert bucket.keys("") == []


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.bucket.__name__)
def test_each_broken_promise_is_found(broken: Broken) -> None:
    checks = examine(broken.bucket(), impatient())
    verdicts = {check.code: check.verdict for check in checks}
    codes = list(verdicts)
    before, after = codes[: codes.index(broken.code)], codes[codes.index(broken.code) + 1 :]
    assert verdicts[broken.code] == "no"
    assert all(verdicts[code] == "yes" for code in before)
    assert all(verdicts[code] == "unknown" for code in after)
    with pytest.raises(UnavailableError, match="cannot carry a log"):
        prove(broken.bucket(), f"memory/{broken.bucket.__name__}", impatient())


def test_a_lost_answer_to_the_own_creation_is_looked_into() -> None:
    class Repeats(MemoryBucket):
        """A proxy sends the request again and reports what the second one met."""

        def create(self, key: str, data: bytes) -> object:
            tag = super().create(key, data)
            if key.endswith("single"):
                raise ConditionFailed("exists already: your own")
            return tag

    assert {check.verdict for check in examine(Repeats(), impatient())} == {"yes"}


class Unsure(MemoryBucket):
    """Its first answers mean nothing."""

    def __init__(self, unclear: int, *, stores: bool = False) -> None:
        super().__init__()
        self.left = unclear
        self.asked = 0
        self._stores = stores

    def create(self, key: str, data: bytes) -> object:
        self.asked += 1
        if self.left > 0:
            self.left -= 1
            if self._stores:
                super().create(key, data)
            raise Unclear("silence")
        return super().create(key, data)


@pytest.mark.parametrize("stores", [False, True])
def test_an_unclear_answer_is_asked_again_with_new_keys(stores: bool) -> None:
    bucket = Unsure(ATTEMPTS_MAX - 1, stores=stores)
    assert {check.verdict for check in examine(bucket, impatient())} == {"yes"}
    assert bucket.keys("") == []


def test_what_stays_unclear_is_unknown_and_refused() -> None:
    bucket = Unsure(1_000)
    checks = {check.code: check for check in examine(bucket, impatient())}
    assert bucket.asked == ATTEMPTS_MAX
    assert checks["create"].verdict == "unknown"
    assert checks["create"].evidence == "silence"
    assert checks["delete"].verdict == "unknown"
    with pytest.raises(UnavailableError, match="could not be probed") as caught:
        prove(bucket, "memory/unsure", impatient())
    assert caught.value.retry == "later"


def test_no_attempt_begins_late() -> None:
    clock = Clock()

    class Slow(Unsure):
        def create(self, key: str, data: bytes) -> object:
            clock.now_s += ATTEMPTS_S_MAX
            return super().create(key, data)

    bucket = Slow(1_000)
    examine(bucket, Environment(clock=clock, pause=lambda _: None))
    assert bucket.asked == 1


def test_a_contender_without_an_answer_spoils_the_race() -> None:
    class LosesOne(MemoryBucket):
        def __init__(self) -> None:
            super().__init__()
            self.contended = 0

        def create(self, key: str, data: bytes) -> object:
            if key.endswith("contended"):
                self.contended += 1
                if self.contended % CONTENDERS == 1:
                    raise Unclear("silence")
            return super().create(key, data)

    checks = {
        check.code: check.verdict for check in examine(LosesOne(), Environment(pause=lambda _: None, beside=in_turn))
    }
    assert checks["create-race"] == "unknown"


def test_a_race_without_a_winner_is_unknown() -> None:
    class NobodyWins(MemoryBucket):
        def create(self, key: str, data: bytes) -> object:
            if key.endswith("contended"):
                raise ConditionFailed("conflict")
            return super().create(key, data)

    checks = {check.code: check.verdict for check in examine(NobodyWins(), impatient())}
    assert checks["create-race"] == "unknown"


def test_a_refusal_for_good_is_not_asked_again() -> None:
    class Refuses(MemoryBucket):
        asked = 0

        def get(self, key: str) -> Found | None:
            self.asked += 1
            raise Denied("no such bucket")

    bucket = Refuses()
    first, *_ = examine(bucket, impatient())
    assert (first.verdict, first.evidence) == ("unknown", "no such bucket")
    assert bucket.asked == 1


def test_a_bucket_without_any_answer_cannot_be_reached() -> None:
    class Silent(MemoryBucket):
        def get(self, key: str) -> Found | None:
            raise Unclear("connection refused")

    with pytest.raises(UnavailableError) as caught:
        prove(Silent(), "s3://bucket/shop", impatient())
    assert caught.value.what == "the bucket s3://bucket/shop cannot be reached: connection refused."
    assert "endpoint" in caught.value.why
    assert "network" in caught.value.fix


def test_missing_credentials_are_guessed_from_where_they_were_looked_for() -> None:
    assert (
        "AWS_ACCESS_KEY_ID" in PromiseCheck("create", "", "unknown", "PUT http://169.254.169.254/latest/api/token").fix
    )


class Counted(MemoryBucket):
    def __init__(self) -> None:
        super().__init__()
        self.probes = 0

    def create(self, key: str, data: bytes) -> object:
        self.probes += key.endswith("single")
        return super().create(key, data)


def test_a_yes_is_remembered_for_the_folder() -> None:
    bucket = Counted()
    for _ in range(3):
        prove(bucket, "memory/remembered", impatient())
    assert bucket.probes == 2  # The creation, and the one that must fail.
    prove(bucket, "memory/other", impatient())
    assert bucket.probes == 4
    prove(bucket, "memory/other", impatient(), server="another")
    assert bucket.probes == 6


def test_a_no_is_not_remembered() -> None:
    with pytest.raises(UnavailableError):
        prove(Overwrites(), "memory/mended", impatient())
    prove(MemoryBucket(), "memory/mended", impatient())


class Door:
    """A lock that tells when somebody stands before it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_who_waits_for_another_shares_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door()
    monkeypatch.setattr(probe._memory_of(("memory/shared", "")), "lock", door)
    entered, go_on = threading.Event(), threading.Event()

    class Waits(Overwrites):
        probes = 0

        def get(self, key: str) -> Found | None:
            entered.set()
            go_on.wait()
            return super().get(key)

        def delete(self, keys: Sequence[str]) -> None:
            self.probes += 1
            super().delete(keys)

    bucket = Waits()
    refused: list[UnavailableError] = []

    def come() -> None:
        try:
            prove(bucket, "memory/shared", impatient())
        except UnavailableError as error:
            refused.append(error)

    first, others = threading.Thread(target=come), [threading.Thread(target=come) for _ in range(5)]
    first.start()
    entered.wait()
    for thread in others:
        thread.start()
    for _ in (first, *others):
        door.came.acquire()
    go_on.set()
    for thread in (first, *others):
        thread.join()
    assert len(refused) == 6
    assert bucket.probes == 1


def test_a_process_may_take_its_parents_word_for_a_folder_and_for_no_other() -> None:
    remember_proven("s3://bucket/told", server="here")
    prove(Overwrites(), "s3://bucket/told", impatient(), server="here")
    with pytest.raises(UnavailableError):
        prove(Overwrites(), "s3://bucket/told", impatient(), server="there")
