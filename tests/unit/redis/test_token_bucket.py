"""C7, C8: what a process takes from the bucket of the cluster, borrows and pays back, and does without Redis."""

from interlock.core.policies import TokenRate
from interlock.redis.cluster_breakers import SharedTokens
from interlock.redis.connection import TAKE
from tests.unit.engine.dependencies.queues import clock_of_the_loop
from tests.unit.engine.shared.stores import passed, play
from tests.unit.redis.wires import Wire


class Bucket:
    """The bucket in Redis, which never fills by itself."""

    def __init__(self, level: float) -> None:
        self.level = level

    def __call__(self, script: str, values: tuple[str, ...]) -> object:
        assert script == TAKE
        want, back = int(values[2]), int(values[3])
        self.level += back
        given = max(0, int(min(self.level, want)))
        self.level -= given
        return [given, str(self.level)]


def shared(bucket: Bucket, rate: TokenRate, stirred: list[float] | None = None) -> tuple[Wire, SharedTokens]:
    loop = clock_of_the_loop()
    wire, told = Wire(bucket), [] if stirred is None else stirred
    return wire, SharedTokens(wire, "ingress", rate, loop.clock, lambda: told.append(loop.time()))


def test_what_was_borrowed_is_paid_back_and_nothing_is_had_twice() -> None:
    """C7: a burst is let in at once, up to what the bucket had; then it is gone for all."""

    async def scenario() -> None:
        bucket = Bucket(20)
        wire, tokens = shared(bucket, TokenRate(rate_per_s=1, burst=20))
        await tokens.returned()
        first = 0
        while tokens.take():
            first += 1
        assert first == 20
        await passed(0.5)
        assert bucket.level <= 0
        assert not tokens.take()
        del wire

    play(scenario)


def test_what_two_have_borrowed_at_once_is_owed_by_the_bucket() -> None:
    """C7: nobody is given anything before that is made up, also by those who have borrowed nothing."""

    async def scenario() -> None:
        bucket = Bucket(20)
        _, tokens = shared(bucket, TokenRate(rate_per_s=1, burst=20))
        await tokens.returned()
        bucket.level = 0  # Another process has seen it full too, and has paid.
        while tokens.take():
            pass
        await passed(0.5)
        assert bucket.level == -19

    play(scenario)


def test_what_is_not_used_goes_back_when_it_is_closed() -> None:
    async def scenario() -> None:
        bucket = Bucket(100)
        _, tokens = shared(bucket, TokenRate(rate_per_s=500, burst=100))
        await tokens.returned()
        assert bucket.level == 90
        await tokens.close()
        assert bucket.level == 100

    play(scenario)


def test_who_is_refused_while_a_request_is_under_way_is_told_of_what_it_brings() -> None:
    """C8: it was told to come back in a long time, and there is a token now."""

    async def scenario() -> None:
        bucket, stirred = Bucket(0), list[float]()
        _, tokens = shared(bucket, TokenRate(rate_per_s=0.01, burst=5), stirred)
        await tokens.returned()
        assert not tokens.take()
        await passed(0.5)  # The request that this one began has brought nothing.
        bucket.level = 1
        assert tokens.wait_s() > 50
        await passed(1.5)
        assert len(stirred) == 1
        assert tokens.take()

    play(scenario)


def test_without_redis_the_rate_is_that_of_the_process_and_begins_without_a_burst() -> None:
    """C7: the fallback, until Redis is back."""

    async def scenario() -> None:
        bucket = Bucket(0)
        wire, tokens = shared(bucket, TokenRate(rate_per_s=10, burst=5))
        await tokens.returned()
        assert not tokens.take()
        wire.is_up(up=False)
        assert not tokens.take()
        await passed(0.25)
        assert [tokens.take() for _ in range(3)] == [True, True, False]
        wire.is_up(up=True)
        assert not tokens.take(), "the cluster has none"

    play(scenario)


def test_the_first_call_long_after_redis_was_lost_is_let_in() -> None:
    """C7: the bucket of the process fills from the last answer on, not from the first call that finds Redis gone."""

    async def scenario() -> None:
        wire, tokens = shared(Bucket(0), TokenRate(rate_per_s=10, burst=5))
        await tokens.returned()
        assert tokens.is_shared
        wire.is_up(up=False)
        await passed(0.25)
        assert not tokens.is_shared
        assert tokens.wait_s() == 0.0
        assert [tokens.take() for _ in range(3)] == [True, True, False]

    play(scenario)
