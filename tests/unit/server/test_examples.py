"""The examples of the OpenAPI document: of every problem, and of what the served machines read."""

import asyncio
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, cast
from uuid import UUID

import msgspec
import pytest

from interlock import Event, Machine
from interlock.engine.bound_machine import BoundMachine
from interlock.server.openapi import document, example_of, page, problem_components, problem_examples
from interlock.server.problems import TITLES
from interlock.server.routes import ROUTES
from interlock.server.security.guard import Guard
from interlock.server.security.keys import KeyStore, Scope
from interlock.server.security.stores import MemoryDocument
from interlock.wire import Problem
from tests.unit.server.security.homes import StandingClock, bearer, key_factory
from tests.unit.server.serving import Served, served, serving

EVENTS = "/v1/workflows/{id}/events"
STARTS = "/v1/machines/{machine}/workflows"
INTERNAL = {"interlock", "definition", "missing-extra", "request", "refused", "usage", "unusable-file", "step"}
INTERNAL |= {"retryable", "retry-after", "non-retryable", "lane-owned", "lease-held", "fenced", "moved-elsewhere"}
INTERNAL |= {"corruption"}


def bodies(document: dict[str, Any], path: str) -> dict[str, Any]:
    """What a request to a path may look like, by name."""
    [content] = document["paths"][path]["post"]["requestBody"]["content"].values()
    return {name: each["value"] for name, each in content.get("examples", {}).items()}


def test_every_problem_of_every_route_has_an_example_of_its_own_status() -> None:
    async def test(app: Served) -> None:
        document = (await app.get("/openapi.json")).json()
        known = document["components"]["examples"]
        assert set(known) == set(TITLES) - INTERNAL
        for route in ROUTES:
            answers = document["paths"][route.path][route.method.lower()]["responses"]
            for status, answer in answers.items():
                found = answer["content"].get("application/problem+json", {}).get("examples")
                if found is None:
                    assert int(status) in route.answers
                    continue
                for code, example in found.items():
                    assert example == {"$ref": f"#/components/examples/{code}"}
                    usual = known[code]["value"]["status"]
                    assert usual == int(status) or (usual, status) in {(409, "412"), (422, "409")}

    served(test)


def test_an_example_of_a_bug_is_not_logged_as_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    problem_examples.cache_clear()
    assert problem_examples()["user-code-error"].correlation_id
    assert not caplog.records


def test_every_example_of_a_problem_is_whole() -> None:
    for code, each in problem_components().items():
        document = msgspec.convert(msgspec.to_builtins(each["value"]), Problem)
        assert (document.code, document.title) == (code, each["summary"])
        assert document.detail.startswith(document.what + " ")


def test_what_the_machines_take_is_in_the_document_and_is_taken() -> None:
    async def test(app: Served) -> None:
        document = (await app.get("/openapi.json")).json()
        assert set(bodies(document, STARTS)) == {"order", "ticket"}
        for machine, body in bodies(document, STARTS).items():
            assert (await app.post(f"/v1/machines/{machine}/workflows", json=body)).status_code == 201
        events = bodies(document, EVENTS)
        assert {"order.SUBMIT", "order.REMARK", "ticket.REMARK"} <= set(events)
        for name, body in events.items():
            sent = await app.post(f"/v1/workflows/{name.partition('.')[0]}-1/events?if_allowed=true", json=body)
            assert sent.status_code in {200, 409}, (name, sent.text)
        for name, line in bodies(document, "/v1/events:batch").items():
            assert msgspec.json.decode(line) == {"id": f"{name.partition('.')[0]}-1", **events[name]}

    served(test)


def test_only_a_client_that_may_read_a_machine_sees_its_examples() -> None:
    """The document needs no key; the names of events and fields do."""

    async def scenario() -> None:
        create, store = key_factory(), KeyStore(MemoryDocument(), "memory:")
        whole, limited = create(Scope.READ), create(Scope.READ, machines=("ticket",))
        for key in (whole, limited):
            await store.add(key.record)
        async with serving(guard=Guard(store, clock=StandingClock())) as app:
            seen = []
            for shown in (None, whole, limited):
                headers = {} if shown is None else {n.decode(): v.decode() for n, v in bearer(shown).items()}
                answer = await app.get("/openapi.json", headers=headers)
                assert answer.status_code == 200
                seen.append(set(bodies(answer.json(), STARTS)))
                assert ("order.SUBMIT" in answer.text) == (shown is whole)
            assert seen == [set(), {"order", "ticket"}, {"ticket"}]

    asyncio.run(scenario())


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Leaf:
    kind: Literal["leaf"]
    below: "Leaf | None" = None
    all_below: "tuple[Leaf, ...]" = ()


@dataclass(frozen=True)
class Everything:
    text: str
    short: Annotated[str, msgspec.Meta(min_length=6, max_length=8)]
    one: Annotated[str, msgspec.Meta(max_length=1)]
    count: Annotated[int, msgspec.Meta(ge=5, multiple_of=4)]
    below: Annotated[int, msgspec.Meta(lt=-3)]
    share: Annotated[float, msgspec.Meta(gt=0, le=0.5)]
    yes: bool
    colour: Colour
    moment: Annotated[datetime, msgspec.Meta(tz=True)]
    day: date
    span: timedelta
    money: Decimal
    number: UUID
    data: bytes
    pair: tuple[int, str]
    many: Annotated[list[int], msgspec.Meta(min_length=2)]
    table: dict[str, int]
    leaf: Leaf
    anything: Any
    maybe: int | None
    nothing: None
    known: int = 7
    made: list[str] = field(default_factory=list)


def test_an_example_fits_every_kind_of_type() -> None:
    value = example_of(msgspec.json.schema(Everything))
    read = msgspec.json.decode(msgspec.json.encode(value), type=Everything)
    assert (read.known, read.colour, read.moment) == (7, Colour.RED, datetime(2026, 1, 1, 12, tzinfo=UTC))


class State(Enum):
    OPEN = "open"
    CLOSED = "closed"


class Strict(Event):
    pass


@dataclass(frozen=True)
class Odd(Strict):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2 == 0 or self.number < 99:
            raise ValueError(self.number)


@dataclass(frozen=True)
class Plain(Strict):
    at: datetime


def test_an_example_that_its_machine_does_not_read_is_left_out() -> None:
    strict = Machine("strict", states=State, context=Leaf, events=Strict, initial=State.OPEN, final={State.CLOSED})
    strict.on(Odd, State.OPEN, to=State.CLOSED)
    strict.on(Plain, State.OPEN, to=State.CLOSED)

    async def test(app: Served) -> None:
        assert set(bodies((await app.get("/openapi.json")).json(), EVENTS)) == {"strict.PLAIN"}

    served(test, machines=[strict])


def references(value: object) -> set[str]:
    """Every `$ref` in a document."""
    return set(re.findall(r'"\$ref":"([^"]*)"', msgspec.json.encode(value).decode()))


class Part(msgspec.Struct):
    """A type that a context and an event have in common."""

    name: str


def test_the_document_has_a_component_for_each_context_and_event_of_the_machines() -> None:
    class Step(Enum):
        A = "a a"

    class Change(Event):
        pass

    @dataclass(frozen=True)
    class Made(Change):
        part: Part | None = None

    @dataclass(frozen=True)
    class Things:
        parts: tuple[Part, ...] = ()

    machine = Machine("odd name/é", states=Step, context=Things, events=Change, initial=Step.A, resting={Step.A})
    machine.on(Made, Step.A)
    found = document(ROUTES, machines=[BoundMachine(machine)])
    schemas = cast("dict[str, Any]", cast("dict[str, Any]", found["components"])["schemas"])
    own = {name: schema for name, schema in schemas.items() if name.startswith("odd_name__")}
    assert set(own) == {
        f"odd_name__.{each}"
        for each in ("Context", "Things.Type", "Workflow", "MADE", "MADE.Data", "Made.Type", "Event", "Part.Type")
    }
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in schemas)
    assert {each.rpartition("/")[2] for each in references(found) if "/schemas/" in each} <= schemas.keys()
    assert not any("$defs" in each for each in references(found))
    state = own["odd_name__.Workflow"]["allOf"][1]["properties"]
    assert (state["machine"], state["state"]) == ({"const": "odd name/é"}, {"enum": ["a a"]})
    assert "odd name/é" in page([BoundMachine(machine)])
    assert "Send MADE" in page([BoundMachine(machine)])


def test_components_and_the_page_show_only_the_machines_that_the_client_may_read() -> None:
    async def scenario() -> None:
        store, create = KeyStore(MemoryDocument(), "memory:"), key_factory()
        created = create(Scope.READ, machines=("ticket",))
        await store.add(created.record)
        async with serving(guard=Guard(store, clock=StandingClock())) as app:
            key = {"authorization": f"Bearer {created.key.reveal()}"}
            for headers, names in ({}, set[str]()), (key, {"ticket"}):
                schemas = (await app.get("/openapi.json", headers=headers)).json()["components"]["schemas"]
                assert {each.removesuffix(".Context") for each in schemas if each.endswith(".Context")} == names
                shown = (await app.get("/docs", headers={**headers, "accept": "text/html"})).text
                assert ("Machine ticket" in shown) == ("ticket" in names)
                assert "Machine order" not in shown

    asyncio.run(scenario())
