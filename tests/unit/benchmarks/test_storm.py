"""The storm, on sizes that say nothing about speed: its gateway keeps honest books, nothing is left in doubt (C9)."""

import asyncio
import functools
import tempfile
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import ParamSpec

import msgspec
import pytest

from benchmarks import storm
from benchmarks.postgres import server
from benchmarks.storming.arena import Turn, compared, fresh_database
from benchmarks.storming.books import Books
from benchmarks.storming.client import Client
from benchmarks.storming.contestant import Report
from benchmarks.storming.gateway import Connection, Gateway
from benchmarks.storming.interlocked import Interlocked
from benchmarks.storming.load import Orders, Outcome, order_name, order_number
from benchmarks.storming.naive import Naive
from benchmarks.storming.verdict import EMBEDDED, GOALS, NAIVE, POSTGRES, ratios_of, storm_figures, storm_table
from benchmarks.storming.verdict import timeline_table as timeline
from benchmarks.storming.weather import Fate, Script, Segment, Weather, declined, luck_of
from interlock import Retry
from interlock.engine.dependencies.outlet import forget_outlets
from interlock.testing.faults import stop_listening

P = ParamSpec("P")
AT_ONCE = Retry(attempts=3, first_s=0.001)

CALM = Segment(name="calm", seconds=0.01, rate_per_s=4_000, weather=Weather(latency_ms=1))
ROUGH = Segment(
    name="rough",
    seconds=0.05,
    rate_per_s=1_000,
    weather=Weather(latency_ms=1, error=0.1, refuse=0.05, reset=0.1, lose=0.1),
)


def awaited(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """The test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture(autouse=True)
def _closed_breakers() -> Iterator[None]:
    """Breakers belong to the process: what one test has opened is not open in the next."""
    forget_outlets()
    yield
    forget_outlets()


class Told(Gateway):
    """A gateway that says when it has taken a call, and when a connection has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.left = asyncio.Event(), asyncio.Event()

    def called(self, endpoint: str, key: str, body: bytes, answer: Callable[[HTTPStatus], None]) -> Fate:
        fate = super().called(endpoint, key, body, answer)
        self.taken.set()
        return fate

    def forget(self, connection: Connection) -> None:
        super().forget(connection)
        self.left.set()


@asynccontextmanager
async def calling(*segments: Segment, seed: int = 1, share: float = 0.0) -> AsyncIterator[tuple[Told, Client]]:
    """A gateway in this process, in the weather of these segments, and a client of it."""
    gateway = Told()
    await gateway.listen()
    gateway.begin(Script(seed=seed, segments=segments, declined=share))
    client = Client(gateway.port)
    try:
        yield gateway, client
    finally:
        client.close()
        if gateway._server is not None:
            await stop_listening(gateway._server)
        gateway.close()
        await asyncio.sleep(0)  # Connections that were reset are told so in the next turn of the loop.


# --- the books and the weather -------------------------------------------------------------------------------------


def test_a_key_that_comes_again_charges_nothing_and_a_second_key_is_a_double_charge() -> None:
    books = Books(lambda order: order == "poor")
    assert books.execute("/charge", "k-1", {"order": "o-1"}) == HTTPStatus.OK
    assert books.execute("/charge", "k-1", {"order": "o-1"}) == HTTPStatus.OK
    assert books.as_json()["charged_twice"] == []
    assert books.execute("/charge", "k-2", {"order": "o-1"}) == HTTPStatus.OK
    assert books.execute("/charge", "k-3", {"order": "poor"}) == HTTPStatus.PAYMENT_REQUIRED
    told = books.as_json()
    assert told["charged_twice"] == ["o-1"]
    assert told["charges"] == 2
    assert told["repeated"] == 1


def test_a_refund_of_a_charge_that_never_arrived_is_a_tombstone() -> None:
    books = Books(lambda _order: False)
    for _ in range(2):  # A second refund of the same charge is the same refund.
        assert books.execute("/refund", "undo-1", {"undoes": "k-1"}) == HTTPStatus.OK
    assert books.execute("/charge", "k-1", {"order": "o-1"}) == HTTPStatus.CONFLICT
    assert books.execute("/charge", "k-2", {"order": "o-2"}) == HTTPStatus.OK
    told = books.as_json()
    assert told["charged_not_refunded"] == ["o-2"]
    assert told["charges"] == 1
    assert told["entombed"] == 1


def test_the_weather_is_the_same_for_the_same_seed_and_in_the_shares_that_were_asked_for() -> None:
    weather = ROUGH.weather
    fates = [weather.fate(luck_of(7, "/charge", number, 0).fate) for number in range(10_000)]
    assert fates == [weather.fate(luck_of(7, "/charge", number, 0).fate) for number in range(10_000)]
    assert fates != [weather.fate(luck_of(8, "/charge", number, 0).fate) for number in range(10_000)]
    counted = Counter(fates)
    for fate in ("error", "refuse", "reset", "lose"):
        assert counted[fate] == pytest.approx(10_000 * getattr(weather, fate), rel=0.15)
    assert counted["hang"] == 0
    latencies = sorted(weather.latency_s(luck_of(7, number).latency) for number in range(1_001))
    assert latencies[500] == pytest.approx(0.001, rel=0.1)


def test_arrivals_are_the_same_for_everybody_and_rise_as_the_script_says() -> None:
    script = storm.script(100, 1.0)
    arrivals = script.arrivals()
    assert arrivals == storm.script(100, 1.0).arrivals()
    assert list(arrivals) == sorted(arrivals)
    counted = Counter(script.segments[script.place(at_s)].name for at_s in arrivals)
    for segment in script.segments[2:]:
        assert counted[segment.name] == pytest.approx(segment.seconds * segment.rate_per_s, rel=0.3)
    assert [script.place(at_s) for at_s in (0.0, script.ends_s()[0], 99.0)] == [0, 1, len(script.segments) - 1]
    assert max(segment.rate_per_s for segment in script.segments) == 6 * 100


# --- the gateway and its client ------------------------------------------------------------------------------------


@awaited
async def test_calls_are_answered_counted_and_declined() -> None:
    script = Script(seed=1, segments=[CALM], declined=0.5)
    poor = next(order_name(number) for number in range(100) if declined(script, order_name(number)))
    rich = next(order_name(number) for number in range(100) if not declined(script, order_name(number)))
    async with calling(CALM, share=0.5) as (gateway, client):
        assert await client.charge(poor, 5, key="k-1") == HTTPStatus.PAYMENT_REQUIRED
        assert await client.charge(rich, 5, key="k-2") == HTTPStatus.OK
        assert await client.reserve(rich, key="k-3") == HTTPStatus.OK
        assert await client.release(rich, undoes="k-3", key="k-4") == HTTPStatus.OK
        assert await client.refund(rich, undoes="k-2", key="k-5") == HTTPStatus.OK
        told = gateway.books.as_json()
    assert told["calls"] == {"/charge": 2, "/reserve": 1, "/release": 1, "/refund": 1}
    assert told["charged_not_refunded"] == told["reserved_not_released"] == []
    assert told["concurrent_max"] == 1


@pytest.mark.parametrize(("fate", "charged"), [("reset", 0), ("lose", 1), ("hang", 0)])
@awaited
async def test_a_call_without_an_answer_is_in_the_books_if_it_was_executed(fate: str, charged: int) -> None:
    weather = msgspec.convert({fate: 1.0}, Weather)
    async with calling(Segment(name=fate, seconds=1, rate_per_s=1, weather=weather)) as (gateway, client):
        outcome = await asyncio.gather(_given_up(gateway, client), return_exceptions=True)
        assert isinstance(outcome[0], OSError | asyncio.CancelledError)
        assert gateway.books.as_json()["charges"] == charged


async def _given_up(gateway: Told, client: Client) -> None:
    """Charge, and give up when the gateway has taken the call and says nothing."""
    charging = asyncio.ensure_future(client.charge("o-1", 5, key="k-1"))
    await gateway.taken.wait()
    if luck_of(1, "/charge", "o-1", 0).other < 0.5 or gateway.books.fates["hang"]:
        charging.cancel()
    await charging


@awaited
async def test_a_cancelled_call_closes_its_connection_and_gives_its_place_back() -> None:
    hanging = Segment(name="hanging", seconds=1, rate_per_s=1, weather=Weather(latency_ms=1, hang=1.0))
    async with calling(hanging) as (gateway, _):
        client = Client(gateway.port, connections_max=1)
        with pytest.raises(asyncio.CancelledError):
            await _given_up(gateway, client)
        await gateway.left.wait()
        assert gateway.books.concurrent == 0
        gateway.begin(Script(seed=1, segments=[CALM]))
        assert await client.charge("o-1", 5, key="k-1") == HTTPStatus.OK
        client.close()


@awaited
async def test_nobody_is_served_while_the_gateway_is_down_and_everybody_after() -> None:
    async with calling(CALM) as (gateway, client):
        assert await client.charge("o-1", 5, key="k-1") == HTTPStatus.OK
        gateway.go_down()
        with pytest.raises(OSError):
            await client.charge("o-2", 5, key="k-2")
        with pytest.raises(ConnectionRefusedError):
            await client.charge("o-2", 5, key="k-2")
        await gateway.listen()
        assert await client.charge("o-2", 5, key="k-2") == HTTPStatus.OK


# --- the contestants -----------------------------------------------------------------------------------------------


@awaited
async def test_a_storm_on_memory_ends_with_every_order_final_and_nothing_owed() -> None:
    script = Script(seed=3, segments=[ROUGH, CALM], declined=0.1)
    async with calling(*script.segments, seed=3, share=0.1) as (gateway, client):
        orders = Orders(script.arrivals())
        async with Interlocked("memory:", client, in_flight=16, timeout_s=0.5) as contending:
            contending.ended = orders.end
            seconds = await orders.run(contending.place, drain_s=30)
        found = compared(_report(orders, seconds), gateway.books.as_json())
    assert found == {"wrong": 0, "uncompensated": 0, "unknown": 0, "unreleased": 0}
    assert gateway.books.as_json()["charged_twice"] == []
    counted = Counter(orders.outcomes)
    assert set(counted) == {Outcome.COMPLETED, Outcome.DECLINED}
    assert counted[Outcome.DECLINED] == sum(declined(script, order_name(number)) for number in range(len(orders.ends)))


@awaited
async def test_interlock_gives_the_money_back_when_the_goods_cannot_be_had() -> None:
    empty = Segment(
        name="empty", seconds=1, rate_per_s=1, weather=Weather(latency_ms=1), special={"/reserve": Weather(refuse=1.0)}
    )
    async with calling(empty) as (gateway, client):
        orders = Orders(array("d", [0.0]))
        async with Interlocked("memory:", client, in_flight=1, timeout_s=30, retry=AT_ONCE) as contending:
            contending.ended = orders.end
            await orders.run(contending.place, drain_s=30)
        told = gateway.books.as_json()
    assert list(orders.outcomes) == [Outcome.FAILED]
    assert told["charges"] == 1
    assert told["charged_not_refunded"] == []


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own folder: its sessions close that to other users, and as root the server is run by one."""
    with tempfile.TemporaryDirectory(prefix="interlock-benchmarks-") as name:
        yield Path(name)


@pytest.mark.slow
def test_the_naive_chain_completes_its_orders_on_a_calm_gateway(folder: Path) -> None:
    async def run(url: str) -> tuple[Orders, dict[str, int]]:
        script = Script(seed=1, segments=[CALM], declined=0.1)
        async with calling(CALM, share=0.1) as (gateway, client):
            orders = Orders(script.arrivals())
            async with Naive(url, client, in_flight=8, connections=2, timeout_s=60) as contending:
                contending.ended = orders.end
                seconds = await orders.run(contending.place, drain_s=30)
            return orders, compared(_report(orders, seconds), gateway.books.as_json())

    with server(folder) as running, asyncio.Runner() as runner:
        orders, found = runner.run(run(runner.run(fresh_database(running, "storm"))))
    assert set(orders.outcomes) == {Outcome.COMPLETED, Outcome.DECLINED}
    assert found == {"wrong": 0, "uncompensated": 0, "unknown": 0, "unreleased": 0}


# --- the verdict ---------------------------------------------------------------------------------------------------


def _report(orders: Orders, seconds: float) -> Report:
    return Report(seconds=seconds, calls=0, ends_s=list(orders.ends), outcomes=list(orders.outcomes))


def _turn(count: int, *, seconds: float, failed: int = 0, grown: int = 100) -> Turn:
    outcomes = [Outcome.FAILED] * failed + [Outcome.COMPLETED] * (count - failed)
    report = Report(seconds=seconds, calls=0, ends_s=[seconds] * count, outcomes=[int(each) for each in outcomes])
    paid = [order_name(number) for number in range(count)]
    books = {"charged_not_refunded": paid, "reserved_not_released": paid, "charged_twice": [], "concurrent_max": 1}
    return Turn(
        **compared(report, books),
        report=report,
        books={**books, "calls": {"/charge": count}, "calls_by_segment": {}},
        cpu_s=seconds,
        server_cpu_s=0.0,
        gateway_cpu_s=0.0,
        starved_s=0.0,
        rss_before_bytes=0,
        rss_peak_bytes=grown,
    )


def test_the_verdict_compares_with_the_naive_chain_and_counts_what_the_books_say() -> None:
    script = Script(seed=1, segments=[CALM])
    count = len(script.arrivals())
    turns = {
        EMBEDDED: [_turn(count, seconds=1.0, grown=20)],
        POSTGRES: [_turn(count, seconds=2.0, failed=1)],
        NAIVE: [_turn(count, seconds=4.0)],
    }
    ratios = ratios_of(script, turns)
    assert set(ratios) == set(GOALS)
    assert ratios["throughput_vs_naive"] == pytest.approx(4.0)
    assert ratios["p95_vs_naive"] == pytest.approx(0.25, rel=0.05)
    assert ratios["rss_growth_vs_naive"] == pytest.approx(0.2)
    assert ratios["cpu_per_order_vs_naive"] == pytest.approx(0.25)
    assert ratios["error_rate"] == ratios["uncompensated_charges"] == 0
    assert ratios["postgres_error_rate"] == pytest.approx(1 / count)
    assert ratios["postgres_uncompensated_charges"] == 1
    assert storm_figures(turns)[POSTGRES]["unknown"] == 1
    assert storm_table(script, turns).row_count > 10
    assert timeline(script, turns).row_count == 1


def test_an_order_has_one_name_and_one_number() -> None:
    assert order_number(order_name(17)) == 17
