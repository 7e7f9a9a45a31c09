"""The calls of a client answer as an engine's do: typed with the machine, plain without it (B4, B5, B8)."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from inspect import signature
from typing import Any

import msgspec
import pytest

import interlock
from interlock import Engine, errors
from interlock.client.client import (
    BlockingClient,
    BlockingClientSchedules,
    BlockingClientWorkflows,
    Client,
    ClientSchedules,
)
from interlock.client.workflow_requests import ClientWorkflows
from interlock.engine.blocking_engine import BlockingSchedules
from interlock.engine.schedules import Schedules
from interlock.engine.views import PlainState, plain_state
from interlock.errors import BadUsage, InvalidPayload, WorkflowExists, WorkflowNotFound
from tests.unit.client.server import NOW, Server, refused
from tests.unit.client.shop import Cancel, Charged, Note, Order, State, Submit, order
from tests.unit.client.test_retries import begun
from tests.unit.client.wires import Reply, WiredClient, run


def test_the_values_are_the_machines_own_where_it_is_known() -> None:
    async def test() -> None:
        _, client = await begun()
        orders = client.of(order)
        view = await orders.start("o-2", Order(note="naïve + 漢字"))
        assert (view.state, view.context, view.created_at) == (State.DRAFT, Order(note="naïve + 漢字"), NOW)
        moved = await orders.send("o-2", Submit(5), key="k")
        assert moved == interlock.Moved(state=State.CHARGING, version=2)
        assert (await orders.get("o-2")).context == Order(5, "naïve + 漢字")
        assert [each.to for each in await orders.allowed("o-2")] == [State.CHARGING, State.DONE, State.CANCELLED]
        page = await orders.find(state=State.CHARGING)
        assert [each.id for each in page.items] == ["o-2"]
        assert page.items[0].state is State.CHARGING

    run(test)


def test_an_event_may_start_its_workflow() -> None:
    """E5: by a machine, by its typed calls, by its name with a plain context, and in a batch."""

    async def test() -> None:
        server, client = await begun()
        moved = await client.send("o-2", Submit(5), key="k", start=(order, Order(note="a")))
        assert (moved.state, moved.version) == (State.CHARGING, 2)
        assert (await client.send("o-2", Submit(5), key="k", start=(order, Order(note="a")))).duplicate
        await client.of(order).send("o-3", Submit(5), start=Order(note="b"))
        await client.of("order").send("o-4", "SUBMIT", data={"cents": 5}, start={"cents": 0, "note": "c"})
        items = await client.send_many([("o-5", Note("e"), None, (order, Order(note="d"))), ("o-5", Submit(5))])
        assert [each.version for each in items if isinstance(each, interlock.Moved)] == [2, 3]
        assert [server.contexts[f"o-{number}"].note for number in range(2, 6)] == ["a", "b", "c", "d"]
        with pytest.raises(BadUsage, match="not a machine and a context"):
            await client.send("o-6", Submit(5), start=Order())  # type: ignore[arg-type]

    run(test)


def test_the_values_are_plain_where_the_machine_is_not_known() -> None:
    async def test() -> None:
        server, _ = await begun()
        client = WiredClient(server.net)
        view = await client.get("o-1")
        assert str(view.state) == "draft"
        assert view.state.value == "draft"
        assert view.context == {"cents": 0, "note": ""}
        plain = client.of("order")
        assert (await plain.start("o-2", {"cents": 7, "note": "x"})).context == {"cents": 7, "note": "x"}
        assert (await plain.send("o-2", "SUBMIT", data={"cents": 9}, key="k")).state == "charging"
        assert isinstance((await client.send("o-2", "CHARGED")).state, PlainState)
        assert [each.state for each in (await plain.find(state="done")).items] == ["done"]

    run(test)


@pytest.mark.parametrize("given", ["by a call", "when it is made"])
def test_a_machine_that_the_client_was_given_makes_the_types_of_all_its_answers(given: str) -> None:
    """As `engine.get` and `engine.send` answer, which name no machine either."""

    async def test() -> None:
        server, _ = await begun()
        client = WiredClient(server.net, machines=[order] if given == "when it is made" else [])
        if given == "by a call":
            await client.find(order)
        assert await client.send("o-1", Submit(5)) == interlock.Moved(state=State.CHARGING, version=2)
        assert (await client.get("o-1")).context == Order(5)
        assert [each.to for each in await client.allowed("o-1")] == [State.CHARGING, State.DONE, State.CANCELLED]
        assert [*await client.send_many([("o-1", Note("x"))])] == [interlock.Moved(state=State.CHARGING, version=3)]
        server.move("o-1", Charged())
        assert (await client.wait("o-1")).state is State.DONE
        server.rows["o-1"] = [
            {"version": 1, "from_state": "draft", "to_state": "draft", "event": "NOTE", "payload": {"text": "x"}}
            | {"context": {"cents": 1, "note": "x"}, "key": None, "created_at": NOW}
        ]
        assert [(row.payload, row.context) for row in await client.history("o-1")] == [(Note("x"), Order(1, "x"))]
        assert isinstance((await client.of("order").get("o-1")).state, PlainState)

    run(test)


def test_an_event_that_was_applied_is_not_refused_because_its_state_is_not_known_here() -> None:
    """The server may run a newer version of the machine."""

    async def test() -> None:
        _, client = await begun(Reply(body=b'{"id":"o-1","state":"shipped","version":2}'))
        assert str((await client.send("o-1", Note("x"))).state) == "shipped"

    run(test)


def test_a_plain_state_is_a_text_and_an_enum_member_and_survives_copies() -> None:
    state = plain_state("done")
    assert isinstance(state, Enum)
    assert isinstance(state, PlainState)
    assert state == "done"
    assert hash(state) == hash("done")
    assert f"{state}" == "done"
    assert pickle.loads(pickle.dumps(state)) == copy.deepcopy(state) == plain_state("done")
    assert msgspec.json.encode(state) == b'"done"'


def test_every_refusal_of_a_request_is_the_engines_own() -> None:
    async def test() -> None:
        _, client = await begun()
        with pytest.raises(WorkflowExists):
            await client.start(order, "o-1", Order(cents=1))
        with pytest.raises(WorkflowNotFound):
            await client.get("nobody")
        await client.send("o-1", Submit(5), key="k")
        with pytest.raises(errors.KeyReused):
            await client.send("o-1", Submit(6), key="k")
        with pytest.raises(InvalidPayload):
            await client.send("o-1", "NO_SUCH_EVENT")
        assert (await client.send("o-1", Submit(5), if_allowed=True)).ignored

    run(test)


@pytest.mark.parametrize("wrong", ["", "a/b", "a\nb", "x" * 201, "a\x00"])
def test_an_id_or_key_that_no_server_takes_is_refused_before_anything_is_sent(wrong: str) -> None:
    async def test() -> None:
        server, client = await begun()
        with pytest.raises(InvalidPayload):
            await client.get(wrong)
        with pytest.raises(InvalidPayload):
            await client.start(order, wrong, Order())
        if "/" not in wrong:
            with pytest.raises(InvalidPayload):
                await client.send("o-1", Cancel(), key=wrong)
        assert len(server.net.got) == 1

    run(test)


@pytest.mark.parametrize("odd", ["..", ".", "a b", "ü/".strip("/"), "%2F", "a?b#c", "漢字", "a%20b", '"<b>'])
def test_an_id_of_any_alphabet_arrives_as_it_is(odd: str) -> None:
    async def test() -> None:
        server, client = await begun()
        await client.start(order, odd, Order())
        assert (await client.get(odd)).id == odd
        await client.send(odd, Submit(5), key=odd)
        assert (odd, odd) in server.keys
        assert all(ord(each) < 128 for got in server.net.got for each in got.headers["host"])

    run(test)


@pytest.mark.parametrize("given", [None, 5, object(), Submit, {"event": "SUBMIT"}])
def test_what_is_no_event_is_refused_as_an_engine_refuses_it(given: object) -> None:
    wrong: Any = given
    asked: Any = 0 if given is None else given  # None asks for all events.

    async def test() -> None:
        _, client = await begun()
        with pytest.raises(InvalidPayload, match="was sent as an event"):
            await client.send("o-1", wrong)
        with pytest.raises(InvalidPayload, match="was sent as an event"):
            await client.allowed("o-1", asked)
        [answer] = await client.send_many([("o-1", wrong, None)])
        assert isinstance(answer, interlock.Refused)
        assert isinstance(answer.error, InvalidPayload)

    run(test)


def test_a_workflow_of_another_machine_is_not_found_and_that_is_asked_once() -> None:
    async def test() -> None:
        server, client = await begun()
        other: Any = msgspec.json.encode(
            {"id": "i-1", "machine": "invoice", "state": "sent", "context": {}, "version": 1}
            | {"created_at": NOW, "updated_at": NOW}
        )
        server.weather.append(Reply(body=other))
        with pytest.raises(WorkflowNotFound, match="it is one of 'invoice'"):
            await client.of(order).send("i-1", Cancel())
        before = len(server.net.got)
        await client.of(order).send("o-1", Note("a"))
        await client.of(order).send("o-1", Note("b"))
        assert len(server.net.got) == before + 2

    run(test)


def test_a_server_with_another_version_of_the_machine_is_told_from_a_mistake() -> None:
    async def test() -> None:
        _, client = await begun(Reply(body=b'{"id":"o-1","state":"shipped","version":2}'))
        with pytest.raises(InvalidPayload, match="'shipped'"):
            await client.of(order).send("o-1", Note("x"))

    run(test)


# --- what it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "shop.test", "ftp://shop.test", "http://", "http://shop.test:0", "http://shop.test:99999", "http://a b",
     "http://shop.test/?a=1", "http://shop.test/#x", "http://shop\r\nX: y", "http://shop.test/a b", "//shop.test"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadUsage):
        Client(url)


def test_an_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(BadUsage) as told:
        Client("http://me:hunter2@shop.test")
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX: y", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(BadUsage) as told:
        Client("http://shop.test", key=key)
    assert not key or key not in str(told.value)


@pytest.mark.parametrize("wrong", [{"timeout_s": 0}, {"attempt_s": -1}, {"connections_max": 0}])
def test_a_bound_that_allows_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.DefinitionError):
        Client("http://shop.test", **wrong)


def test_the_address_may_have_a_path_and_an_ipv6_host() -> None:
    async def test() -> None:
        server = Server()
        server.weather.append(refused(errors.WorkflowNotFound("no.")))
        client = WiredClient(server.net, "http://[::1]:8080/shop/")
        with pytest.raises(WorkflowNotFound):
            await client.get("o-1")
        [got] = server.net.got
        assert got.path == "/shop/v1/workflows/o-1"
        assert got.headers["host"] == "[::1]:8080"
        assert got.headers["authorization"] == "Bearer ilk_secret"
        assert repr(client) == "<Client of http://[::1]:8080/shop>"

    run(test)


def calls(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_") and not isinstance(getattr(cls, name), property)}


WITHOUT = {"open": "a client is made by its constructor: it has no store to open."}
"""Calls of an engine that a client does not have, each with its reason."""

BESIDES = {
    "stream": "the signals with their places, to go on from after a restart.",
    "whoami": "an engine has no keys.",
    "dead_letter_groups": "for pages that show many letters.",
}
"""Calls that only a client has."""

NEVER = {"transaction": "PostgreSQL", "lease": "in time"}
"""Calls that a client has in order to say why it cannot make them."""


def test_a_client_has_the_calls_of_an_engine() -> None:
    assert calls(Client) == (calls(Engine) - set(WITHOUT)) | set(BESIDES)
    assert calls(BlockingClient) == calls(Client)
    assert calls(ClientWorkflows) == calls(BlockingClientWorkflows) == calls(interlock.Workflows)


def test_a_client_has_the_calls_of_schedules() -> None:
    schedules = calls(Schedules) - {"enter", "put_declared"}
    assert calls(ClientSchedules) == calls(BlockingClientSchedules) == calls(BlockingSchedules) == schedules


@pytest.mark.parametrize("name", sorted(calls(Engine) - set(WITHOUT)))
@pytest.mark.parametrize("kind", [Client, BlockingClient])
def test_a_call_takes_what_the_engines_takes(name: str, kind: type) -> None:
    of_engine: Callable[..., object] = getattr(Engine, name)
    ours: Callable[..., object] = getattr(kind, name)
    theirs = {each: found.default for each, found in signature(of_engine).parameters.items()}
    assert theirs.items() <= {each: found.default for each, found in signature(ours).parameters.items()}.items()


@pytest.mark.parametrize("name", sorted(NEVER))
def test_a_call_that_no_server_can_serve_says_why_and_what_to_do(name: str) -> None:
    blocking = BlockingClient("http://shop.test")
    try:
        for client in (Client("http://shop.test"), blocking):
            with pytest.raises(BadUsage) as told:
                getattr(client, name)("reports")
            assert NEVER[name] in told.value.why
            assert "Engine.open" in told.value.fix
    finally:
        blocking.close()


def test_importing_interlock_imports_no_client() -> None:
    code = "import interlock, sys; print([n for n in sys.modules if n.startswith('interlock.client')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"


def test_the_client_needs_no_package_that_is_optional() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['httpx', 'litestar', 'granian', 'asyncpg', 'obstore']))\n"
        "import interlock; interlock.Client('https://shop.test'); interlock.BlockingClient('http://shop.test').close()"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
