"""Whatever weather there is: an event with a key is applied once, and nobody is told what is not known (B5, G2)."""

import asyncio
import contextlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from interlock import Moved, Refused
from interlock.errors import InterlockError, OutcomeUnknown, UnavailableError
from tests.unit.client.server import NDJSON, Server
from tests.unit.client.shop import Note, Order, order
from tests.unit.client.wires import Reply, WiredClient, run

MOODS = ["fine", "cut before", "cut after", "half", "unknown before", "unknown after", "busy", "moving", "silent"]
weathers = st.lists(st.sampled_from(MOODS), max_size=30)


@given(weathers, st.integers(1, 6))
def test_every_event_with_a_key_is_applied_at_most_once_and_a_good_answer_means_once(
    weather: list[str], count: int
) -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, connections_max=3)
        await client.start(order, "o-1", Order())
        server.weather.extend(weather)

        async def send(at: int) -> Moved[object] | InterlockError:  # type: ignore[type-var]
            try:
                return await client.send("o-1", Note(f"{at}"), key=f"k-{at}")  # type: ignore[return-value]
            except InterlockError as error:
                return error

        answers = await asyncio.gather(*map(send, range(count)))
        applied = Counter(key for _, key in server.keys)
        for at, answer in enumerate(answers):
            if isinstance(answer, Moved):
                assert applied[f"k-{at}"] == 1
            elif not isinstance(answer, OutcomeUnknown):
                assert isinstance(answer, UnavailableError)
                assert not applied[f"k-{at}"], "it is told that nothing has happened, and something has"
        assert len(server.applied) == 1 + len(applied)
        await client.close()
        assert not server.net.wires

    run(test)


@given(weathers, st.lists(st.booleans(), min_size=1, max_size=8))
def test_every_item_of_a_batch_is_told_the_truth(weather: list[str], keyed: list[bool]) -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net)
        await client.start(order, "o-1", Order())
        server.weather.extend(weather)
        items = [("o-1", Note(f"{at}"), f"k-{at}" if has else None) for at, has in enumerate(keyed)]
        try:
            answers = await client.send_many(items)
        except UnavailableError:
            assert len(server.applied) == 1, "it is told that nothing has happened, and something has"
            return
        for at, (answer, has) in enumerate(zip(answers, keyed, strict=True)):
            if has and isinstance(answer, Moved):
                assert ("o-1", f"k-{at}") in server.keys
            elif has and isinstance(answer, Refused) and not isinstance(answer.error, OutcomeUnknown):
                assert ("o-1", f"k-{at}") not in server.keys
        known = sum(isinstance(answer, Moved) for answer in answers)
        unknown = sum(isinstance(answer, Refused) and isinstance(answer.error, OutcomeUnknown) for answer in answers)
        assert known <= len(server.applied) - 1 <= known + unknown

    run(test)


HEADS = st.sampled_from(
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
        b"HTTP/1.1 409 No\r\nContent-Type: application/problem+json\r\nContent-Length: 40\r\n\r\n",
        b"HTTP/1.0 ",
        b"HTTP/1.1 200",
    ]
)


@given(HEADS, st.binary(max_size=80))
def test_no_bytes_that_come_back_do_anything_but_raise_an_error_of_ours(head: bytes, rest: bytes) -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, timeout_s=3.0, attempt_s=1.0)
        await client.start(order, "o-1", Order())
        server.weather.append(head + rest)
        with contextlib.suppress(InterlockError):
            await client.send("o-1", Note("x"))
        server.weather.clear()
        server.weather.append(Reply(body=rest, kind=NDJSON))
        for answer in await client.send_many([("o-1", Note("y")), ("o-1", Note("z"))]):
            assert isinstance(answer, Moved | Refused)
        assert (await client.get("o-1")).id == "o-1"
        await client.close()
        assert not server.net.wires

    run(test)
