"""What is sent again and what is not, and what is known when no answer comes (B5, C7)."""

import pytest

from interlock import errors
from interlock.errors import GuardRejected, InterlockError, InvalidTransition, OutcomeUnknown, Overloaded
from tests.unit.client.server import NDJSON, Server
from tests.unit.client.shop import Cancel, Charged, Note, Order, State, Submit, order
from tests.unit.client.wires import Reply, WiredClient, run

ACTED = ["cut after", "half", "unknown after", "silent"]
NOT_ACTED = ["cut before", "unknown before", "busy", "moving"]


async def begun(*weather: str | Reply | bytes) -> tuple[Server, WiredClient]:
    """A server with one workflow, and what happens to the requests after that."""
    server = Server()
    client = WiredClient(server.net)
    await client.start(order, "o-1", Order())
    server.weather.extend(weather)
    return server, client


@pytest.mark.parametrize("mood", ACTED + NOT_ACTED)
def test_an_event_with_a_key_is_applied_once_whatever_happens_to_the_connection(mood: str) -> None:
    """B5."""

    async def test() -> None:
        server, client = await begun(mood, mood)
        moved = await client.send("o-1", Submit(5), key="k-1")
        assert (moved.state, moved.version) == (State.CHARGING, 2)
        assert moved.duplicate is (mood in ACTED)
        assert server.applied.count(("o-1", "SUBMIT")) == 1
        assert len({got.headers["idempotency-key"] for got in server.net.got[1:]}) == 1
        assert len(server.net.got) == 4
        await client.close()

    run(test)


@pytest.mark.parametrize("mood", [*ACTED, "cut before"])
def test_an_event_without_a_key_is_sent_once_and_its_outcome_is_unknown(mood: str) -> None:
    """B5: nobody may guess."""

    async def test() -> None:
        server, client = await begun(mood)
        with pytest.raises(OutcomeUnknown) as unknown:
            await client.send("o-1", Submit(5))
        assert len(server.net.got) == 2
        assert "key" in unknown.value.fix
        await client.close()

    run(test)


@pytest.mark.parametrize(
    ("mood", "kind"), [("busy", Overloaded), ("moving", errors.UnavailableError), ("unknown before", OutcomeUnknown)]
)
def test_an_event_without_a_key_is_not_repeated_even_where_the_problem_says_so(
    mood: str, kind: type[InterlockError]
) -> None:
    async def test() -> None:
        server, client = await begun(mood)
        with pytest.raises(kind) as said:
            await client.send("o-1", Submit(5))
        assert type(said.value) is kind
        assert len(server.net.got) == 2

    run(test)


@pytest.mark.parametrize("mood", ACTED + NOT_ACTED)
def test_a_start_is_repeated_because_it_is_idempotent_by_its_id(mood: str) -> None:
    """B4."""

    async def test() -> None:
        server = Server(mood)
        client = WiredClient(server.net)
        view = await client.start(order, "o-1", Order(cents=3))
        assert (view.state, view.context, view.version) == (State.DRAFT, Order(cents=3), 1)
        assert server.applied == [("o-1", "STARTED")]

    run(test)


@pytest.mark.parametrize("mood", ACTED + NOT_ACTED)
def test_a_look_is_repeated(mood: str) -> None:
    async def test() -> None:
        _, client = await begun(mood)
        assert (await client.get("o-1")).version == 1

    run(test)


def test_the_time_that_a_server_asks_for_is_given_and_those_who_come_back_are_spread() -> None:
    """C7: Retry-After, and half of the first wait of backoff on top."""

    async def test() -> None:
        _, client = await begun("busy")
        await client.send("o-1", Submit(5), key="k")

    assert run(test) == pytest.approx(2.05)


def test_waits_grow_from_attempt_to_attempt() -> None:
    async def test() -> None:
        _, client = await begun("cut before", "cut before", "cut before", "cut before")
        await client.send("o-1", Submit(5), key="k")

    assert run(test) == pytest.approx(0.05 + 0.1 + 0.2 + 0.4)


def test_attempts_are_bounded_and_the_last_word_is_what_is_known() -> None:
    async def test() -> None:
        server, client = await begun(*["busy"] * 9)
        with pytest.raises(Overloaded) as busy:
            await client.send("o-1", Submit(5), key="k")
        assert busy.value.retry_after_s == 2.0
        assert len(server.net.got) == 6

    run(test)


def test_a_doubt_remains_when_a_later_attempt_is_refused_for_now() -> None:
    """The first may have been applied: Overloaded would say that nothing has happened."""

    async def test() -> None:
        server, client = await begun("cut after", "busy", "busy", "busy", "busy")
        with pytest.raises(OutcomeUnknown) as unknown:
            await client.send("o-1", Submit(5), key="k")
        assert isinstance(unknown.value.__cause__, Overloaded)
        assert "same key" in unknown.value.fix
        server.weather.clear()
        assert (await client.send("o-1", Submit(5), key="k")).duplicate

    run(test)


def test_a_doubt_is_gone_when_the_server_refuses_in_full_knowledge_of_the_key() -> None:
    async def test() -> None:
        server, client = await begun("cut before")
        server.move("o-1", Cancel())
        with pytest.raises(InvalidTransition):
            await client.send("o-1", Submit(5), key="k")

    run(test)


def test_a_doubt_remains_when_a_key_was_revoked_in_between() -> None:
    async def test() -> None:
        denied = Reply(401, b'{"code":"not-authenticated","title":"no key."}', "application/problem+json")
        _, client = await begun("cut after", denied)
        with pytest.raises(OutcomeUnknown):
            await client.send("o-1", Submit(5), key="k")

    run(test)


def test_a_refusal_is_not_repeated_and_says_what_the_engine_says() -> None:
    async def test() -> None:
        server, client = await begun()
        with pytest.raises(InvalidTransition) as refused:
            await client.send("o-1", Charged(), key="k")
        with pytest.raises(InvalidTransition) as local:
            order.apply(order.begin(Order()), Charged())
        assert str(refused.value) == str(local.value)
        assert refused.value.allowed == local.value.allowed
        with pytest.raises(GuardRejected) as guarded:
            await client.send("o-1", Submit(0), key="k")
        assert guarded.value.guard == "affordable"
        assert guarded.value.reasons == ("The amount is between 1 cent and 100 euros.",)
        assert len(server.net.got) == 3

    run(test)


def test_a_version_that_was_expected_in_vain_is_a_conflict_and_not_repeated() -> None:
    async def test() -> None:
        server, client = await begun()
        with pytest.raises(errors.VersionConflict):
            await client.send("o-1", Submit(5), key="k", expect_version=7)
        assert (await client.send("o-1", Submit(5), expect_version=1)).version == 2
        assert len(server.net.got) == 3

    run(test)


def test_the_whole_call_has_a_deadline_that_no_attempt_outlives() -> None:
    async def test() -> None:
        server = Server()
        client = WiredClient(server.net, timeout_s=3.0, attempt_s=2.0)
        await client.start(order, "o-1", Order())
        server.weather.extend(["silent"] * 5)
        with pytest.raises(OutcomeUnknown):
            await client.send("o-1", Submit(5), key="k")

    assert run(test) == pytest.approx(3.0)


def test_a_time_to_wait_beyond_the_deadline_is_told_at_once() -> None:
    async def test() -> None:
        _, client = await begun(
            Reply(429, b'{"code":"overloaded","title":"x"}', "application/problem+json", {"Retry-After": "600"})
        )
        with pytest.raises(Overloaded) as busy:
            await client.send("o-1", Submit(5), key="k")
        assert busy.value.retry_after_s == 600.0

    assert run(test) == 0.0


def test_a_server_that_is_not_there_is_tried_again_and_nothing_has_happened() -> None:
    async def test() -> None:
        server, client = await begun()
        await client.close()
        client = WiredClient(server.net)
        server.net.refused = 2
        assert (await client.send("o-1", Submit(5), key="k")).version == 2
        server.net.refused = 9
        fresh = WiredClient(server.net)
        with pytest.raises(errors.UnavailableError) as gone:
            await fresh.send("o-1", Note("x"))
        assert type(gone.value) is errors.UnavailableError
        assert server.net.refused == 8
        with pytest.raises(errors.UnavailableError) as gone:
            await fresh.send("o-1", Note("x"), key="k")
        assert type(gone.value) is errors.UnavailableError
        assert "nothing was sent" in gone.value.why

    run(test)


def test_retries_have_a_budget_that_delays_and_never_fails_by_itself() -> None:
    """C5: beyond a hundred in ten seconds, retries are a fifth of the calls."""

    async def test() -> None:
        server = Server()
        client = WiredClient(server.net)
        await client.start(order, "o-1", Order())
        for at in range(110):
            server.weather.append("cut before")
            assert not (await client.send("o-1", Note(f"{at}"), key=f"k-{at}")).duplicate

    assert 10 < run(test) < 20


GARBAGE: dict[str, Reply | bytes] = {
    "not HTTP": b"220 smtp.example ready\r\n\r\n",
    "not JSON": Reply(body=b"<html>"),
    "another type": Reply(body=b"{}", kind="text/html"),
    "nothing at all": Reply(body=b""),
    "another shape": Reply(body=b'{"state": 7}'),
    "compressed": Reply(headers={"Content-Encoding": "gzip"}),
    "two lengths": Reply(headers={"Content-Length": "2", "content-length ": "3"}),
    "a length and chunks": Reply(headers={"Content-Length": "2", "Transfer-Encoding": "chunked"}),
    "a length that is none": Reply(headers={"Content-Length": "-2"}),
    "too long": Reply(headers={"Content-Length": "999999999999"}),
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    "another kind of batch": Reply(body=b"{}", kind=NDJSON),
    "a code without a document": Reply(500, b"oops", "text/plain"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_told_and_never_taken_for_an_answer(name: str) -> None:
    async def test() -> None:
        server, client = await begun(GARBAGE[name], "fine", GARBAGE[name])
        with pytest.raises(OutcomeUnknown):
            await client.send("o-1", Submit(5), key="k")
        assert (await client.send("o-1", Submit(5), key="k")).version == 2
        with pytest.raises(errors.UnavailableError) as unusable:
            await client.get("o-1")
        assert type(unusable.value) is errors.UnavailableError
        assert len(server.net.got) == 4
        await client.close()
        assert not server.net.wires

    run(test)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    async def test() -> None:
        away = Reply(status, b"", headers={"Location": "https://user:secret@evil.test/v1?token=abc"})
        server, client = await begun(away)
        with pytest.raises(errors.BadUsage) as told:
            await client.send("o-1", Submit(5), key="k")
        assert "evil.test/v1" in told.value.what
        assert "abc" not in str(told.value)
        assert "secret" not in str(told.value)
        assert len(server.net.got) == 2

    run(test)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_the_error_page_of_a_proxy_is_tried_again_with_a_key_and_unknown_without(status: int) -> None:
    async def test() -> None:
        page = Reply(status, b"<html>Bad gateway</html>", "text/html")
        _, client = await begun(page, "fine", page)
        assert (await client.send("o-1", Submit(5), key="k")).version == 2
        with pytest.raises(OutcomeUnknown):
            await client.send("o-1", Note("x"))

    run(test)


def test_a_problem_of_an_unknown_code_keeps_it() -> None:
    async def test() -> None:
        body = b'{"code":"quota-spent","title":"No more today.","detail":"It is spent.","fix":"Wait."}'
        _, client = await begun(Reply(403, body, "application/problem+json"))
        with pytest.raises(errors.RequestError) as said:
            await client.get("o-1")
        assert (said.value.code, said.value.what, said.value.why, said.value.fix) == (
            "quota-spent",
            "No more today.",
            "It is spent.",
            "Wait.",
        )

    run(test)


def test_the_key_of_a_client_is_shown_nowhere() -> None:
    async def test() -> None:
        body = b'{"code":"x","title":"ilk_secret is wrong","detail":"ilk_secret","fix":"not ilk_secret"}'
        _, client = await begun(Reply(401, body, "application/problem+json"), "cut before")
        with pytest.raises(errors.RequestError) as said:
            await client.get("o-1")
        assert "ilk_secret" not in str(said.value) + repr(said.value) + repr(said.value.args)
        with pytest.raises(OutcomeUnknown) as lost:
            await client.send("o-1", Submit(5))
        assert "ilk_secret" not in str(lost.value) + repr(client)

    run(test)
