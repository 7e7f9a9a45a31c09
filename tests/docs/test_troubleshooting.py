"""The texts on the page of symptoms are those that a reader meets: each is provoked here, and found there (C17)."""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import asyncpg
import pytest

from interlock import Admission, Breaker, Dependency, Engine, Event, Machine, StepContext
from interlock.engine.bound_machine import AnyMachine
from interlock.errors import InterlockError, MissingExtra
from interlock.postgres.translate_errors import NotNow, not_reached, waited_too_long
from interlock.server.lifecycle import server_maker
from tests.docs.blocks import read_blocks
from tests.docs.test_code_blocks import ROOT

PAGE = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")

DEMANDED = (
    "Breaker open while the service is healthy",
    "A valid transition is rejected",
    "P99 is too high",
    "Memory grows",
    "Lock timeout: a lease is held",
    "The pool is exhausted",
    "Key collision",
)


def shown() -> list[str]:
    """The texts that the page quotes."""
    return [line for block in read_blocks(PAGE) if block.language == "text" for line in block.text.splitlines()]


def quoted(text: str) -> bool:
    """Whether the page has this text, with `…` for anything."""
    return any(re.fullmatch(".*".join(map(re.escape, line.split("…"))), text) for line in shown())


class State(Enum):
    RECEIVED, PAID, GONE = "received", "paid", "gone"


@dataclass(frozen=True)
class Order:
    cents: int = 999


class OrderEvent(Event): ...


@dataclass(frozen=True)
class Pay(OrderEvent):
    cents: int = 0


@dataclass(frozen=True)
class Ship(OrderEvent): ...


order = Machine("order", states=State, context=Order, events=OrderEvent, initial=State.RECEIVED, final={State.GONE})


def enough(order: Order, event: Pay) -> bool:
    return event.cents >= order.cents


order.on(Pay, State.RECEIVED, to=State.PAID, when=enough)
order.on(Ship, State.PAID, to=State.GONE)


class Fewer(Enum):
    RECEIVED, GONE = "received", "gone"


later = Machine("order", states=Fewer, context=Order, events=OrderEvent, initial=Fewer.RECEIVED, final={Fewer.GONE})
later.on(Ship, Fewer.RECEIVED, to=Fewer.GONE)


async def refused(call: Awaitable[object]) -> str:
    """The first line of what it raises."""
    with pytest.raises(InterlockError) as raised:
        await call
    return raised.value.what.splitlines()[0]


@pytest.mark.parametrize("symptom", DEMANDED)
def test_every_symptom_that_was_asked_for_has_a_section_with_causes_and_actions(symptom: str) -> None:
    section = re.search(rf"^## {re.escape(symptom)}$\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert section is not None
    assert "| likely cause | how to tell | action |" in section[1]
    assert len(re.findall(r"^\| ", section[1], flags=re.MULTILINE)) >= 4


def test_refusals_leases_keys_and_owners_say_what_is_quoted(tmp_path: Path) -> None:
    url = f"lanes://{tmp_path}/shop"

    async def again(engine: Engine) -> None:
        async with engine.lease("nightly", wait_s=0.2):
            pass

    async def opened(machine: AnyMachine, *, accept: bool = False) -> None:
        async with Engine.open(url, machines=[machine], accept_changes=accept) as engine:
            await engine.get("o-1")

    async def scenario() -> list[str]:
        async with Engine.open(url, machines=[order]) as engine:
            await engine.start(order, "o-1", Order())
            texts = [await refused(engine.send("o-1", Ship())), await refused(engine.send("o-1", Pay(1)))]
            await engine.send("o-1", Pay(999), key="k-1")
            texts.append(await refused(engine.send("o-1", Ship(), key="k-1")))
            texts.append(await refused(engine.send("o-1", Ship(), expect_version=1)))
            texts.append(await refused(engine.start(order, "o-1", Order(cents=1))))
            async with engine.lease("nightly"):
                texts.append(await refused(again(engine)))
            texts.append(await refused(opened(order)))
            engine.set_admission(Admission(rate_per_s=0.001, burst=1))
            await engine.start(order, "o-2", Order())
            texts.append(await refused(engine.start(order, "o-3", Order())))
        texts.append(await refused(opened(later)))
        texts.append(await refused(opened(later, accept=True)))
        return texts

    logging.getLogger("interlock.operators").addHandler(logging.NullHandler())
    assert [text for text in asyncio.run(scenario()) if not quoted(text)] == []


class Charging(Enum):
    CHARGING, PAID = "charging", "paid"


def test_an_open_breaker_says_what_is_quoted() -> None:
    shop = Machine(
        "shop", states=Charging, context=Order, events=OrderEvent, initial=Charging.CHARGING, final={Charging.PAID}
    )
    shop.on(Pay, Charging.CHARGING, to=Charging.PAID)

    @shop.step(Charging.CHARGING, timeout_s=4, dependency="gateway")
    async def charge(order: Order, ctx: StepContext) -> Pay:
        raise ConnectionError("connection refused")

    async def scenario() -> str:
        opened = asyncio.Event()
        dependency = Dependency("gateway", breaker=Breaker(failures=5, reset_s=600))
        async with Engine.open(
            "memory:", machines=[shop], dependencies=[dependency], observers=[lambda _: opened.set()]
        ) as engine:
            for number in range(5):
                await engine.start(shop, f"o-{number}", Order())
            while engine.breakers()["gateway"].state != "open":
                opened.clear()
                await opened.wait()
            await engine.start(shop, "o-5", Order())
            return (await engine.get("o-5")).waiting or ""

    text = asyncio.run(scenario())
    assert quoted(text), text


def test_a_server_without_connections_says_what_is_quoted() -> None:
    full = not_reached(asyncpg.TooManyConnectionsError("sorry, too many clients already"), "postgresql://db/shop")
    assert isinstance(full, NotNow)
    assert quoted(waited_too_long(full, 30.0).what)


def test_a_missing_extra_says_what_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # What is None there cannot be imported.
    with pytest.raises(MissingExtra) as raised:
        server_maker()
    assert quoted(raised.value.what)
    assert "pip install 'interlock[server]'" in str(raised.value).replace('"', "'")


def test_redis_that_is_gone_says_what_is_quoted(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with Engine.open("memory:", machines=[order], redis="redis://127.0.0.1:9/0"):
            pass

    with caplog.at_level(logging.ERROR, "interlock.operators"):
        asyncio.run(scenario())
    assert any(quoted(message) for message in caplog.messages), caplog.messages
