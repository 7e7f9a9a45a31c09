"""`interlock compensations` and `interlock dead-letters`: what needs a person, and what a person says about it (C9)."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from interlock import Engine, NonRetryable, Signal, StepAttempted, StepContext
from tests.unit.cli.running import Interlock
from tests.unit.cli.shop import NAME, Cancel, Charged, Order, Packed, State, Submit, charge, mail, order, refund

NASTY = "no \x1b[31mgateway\u202e [bold]here"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"lanes://{tmp_path}/home"
    monkeypatch.setenv("INTERLOCK_HOME", url)
    return url


async def fails(order: Order, ctx: StepContext) -> Charged:
    raise NonRetryable(NASTY)


async def undo_fails(order: Order, done: Charged | None, ctx: StepContext) -> None:
    raise NonRetryable(NASTY)


async def effect_fails(order: Order, ctx: StepContext) -> None:
    raise NonRetryable(NASTY)


async def give_up(home: str, ended: str) -> None:
    """A service in which a step, an undo or an effect gives up."""
    replaced: dict[str, dict[object, Callable[..., Awaitable[object]]]] = {
        "step": {charge: fails},
        "undo": {refund: undo_fails},
        "effect": {mail: effect_fails},
    }
    failed = asyncio.Event()

    def watch(signal: Signal) -> None:
        if isinstance(signal, StepAttempted) and signal.kind == ended and signal.outcome == "non_retryable":
            failed.set()

    async with Engine.open(home, machines=[order], steps=replaced[ended], observers=[watch]) as engine:
        await engine.start(order, "o-1", Order())
        await engine.send("o-1", Submit(cents=5))
        if ended != "step":
            await engine.wait("o-1", State.PACKING)
            await engine.send("o-1", Cancel() if ended == "undo" else Packed())
        await failed.wait()


async def serve(home: str, *states: State) -> str:
    """The service opens the store again: what was owed runs."""
    async with Engine.open(home, machines=[order]) as engine:
        view = await engine.of(order).wait("o-1", *states, timeout_s=60)
        return view.state.value


@pytest.mark.parametrize(("kind", "name"), [("step", "charge"), ("undo", "charge"), ("effect", "mail")])
def test_what_gave_up_is_listed_and_tried_again(interlock: Interlock, home: str, kind: str, name: str) -> None:
    asyncio.run(give_up(home, kind))
    [letter] = json.loads(interlock("dead-letters", "list", "-o", "json").out)
    assert (letter["kind"], letter["workflow"], letter["name"]) == (kind, "o-1", name)
    listed = interlock("dead-letters", "list", "--kind", kind)
    assert "\\u001b[31mgateway\\u202e [bold]here" in listed.out
    shown = interlock("show", "o-1").out
    assert (f"gave up after 1 attempt: see dead letter {letter['id']}" in shown) == (kind != "effect")
    other = "undo" if kind == "step" else "step"
    assert interlock("dead-letters", "list", "--kind", other, "-o", "ids").out == ""
    done = interlock("dead-letters", "retry", NAME, letter["id"])
    assert (done.code, done.err) == (0, "")
    assert letter["id"] in done.out
    assert json.loads(interlock("dead-letters", "list", "-o", "json").out) == []
    again = interlock("dead-letters", "retry", NAME, letter["id"], "another-letter")
    assert again.code == 4
    assert letter["id"] in again.err
    assert "another-letter" in again.err
    both = interlock("dead-letters", "retry", letter["id"], "another-letter")
    assert "no machine is given" in both.err
    expected = {"step": State.PACKING, "undo": State.CANCELLED, "effect": State.DONE}[kind]
    assert asyncio.run(serve(home, expected)) == expected.value


def test_a_person_says_that_it_is_dealt_with(interlock: Interlock, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(give_up(home, "undo"))
    assert json.loads(interlock("compensations", NAME, "-o", "json").out)[0]["state"] == "dead"
    assert interlock("compensations", NAME).out.splitlines()[1].split() == ["o-1", "order", "charge", "dead", "1"]
    monkeypatch.setattr("sys.stdin", io.StringIO(interlock("dead-letters", "list", "-o", "ids").out + "nothing\n"))
    done = interlock("dead-letters", "resolve", NAME, "-", "--note", "refunded by hand \x1b[0m")
    assert done.code == 4
    assert "is resolved: refunded by hand \\u001b[0m" in done.out
    assert "'nothing'" in done.err
    assert interlock("compensations", NAME, "-o", "json").out == "[]\n"
    assert asyncio.run(serve(home, State.CANCELLED)) == "cancelled"


def test_without_a_command_they_are_listed(interlock: Interlock, home: str) -> None:
    asyncio.run(give_up(home, "step"))
    listed = interlock("dead-letters", "list", "--kind", "step", "-o", "ids").out
    assert listed
    assert interlock("dead-letters", "--kind", "step", "-o", "ids").out == listed
    assert interlock("dead-letters").out == interlock("dead-letters", "list").out
    assert "resolve" in interlock("dead-letters", "--help").out
    assert interlock("dead-letters", "-o", "ids", "--help").code == 0
    assert interlock("dead-letters", "lits").code == 2


def test_a_resolution_needs_a_note(interlock: Interlock, home: str) -> None:
    done = interlock("dead-letters", "resolve", NAME, "x")
    assert done.code == 2
    assert "--note" in done.err
