"""C4: what a process says of its breaker and asks for, when Redis answers, when it is silent, and when it goes."""

import asyncio

import pytest

from interlock.clock import RandomIds
from interlock.redis.cluster_breakers import SharedBreaker
from interlock.redis.connection import ANSWER_S, LOOK, SAY
from tests.unit.engine.shared.stores import now_s, passed, play
from tests.unit.redis.wires import Standing, Wire

OPEN = ["1", "open", "0", "", "why", "them", "life"]


def answers(script: str, values: tuple[str, ...]) -> object:
    """A breaker that is open, and a permit for everybody."""
    del values
    return OPEN if script == LOOK else 1


def breaker(wire: Wire, here: Standing) -> SharedBreaker:
    return SharedBreaker(wire, "gateway", here, RandomIds(), probes=1, reset_s=30)


@pytest.mark.parametrize("by_hand", [False, True])
def test_closing_waits_for_one_answer_of_a_silent_redis_however_much_was_to_be_said(by_hand: bool) -> None:
    """C4: those who wait for their turn to say something do not find out one by one that nobody listens."""

    async def scenario() -> None:
        wire = Wire(answers)
        shared = breaker(wire, Standing())
        wire.silent = True
        for turn in range(50):
            if by_hand:
                shared.forced("open", f"turn {turn}")
            else:
                shared.announce(opened=True, reset_s=30.0, reason=f"turn {turn}")
        await shared.close()
        assert len(wire.asked) == 1
        assert now_s() <= ANSWER_S + 0.1

    play(scenario)


def test_a_permit_is_used_once_and_given_back_when_the_probe_said_nothing() -> None:
    async def scenario() -> None:
        wire, here = Wire(answers), Standing()
        shared = breaker(wire, here)
        assert not shared.may_probe()
        assert not shared.may_probe()
        await passed(0.1)
        assert here.stirred == 1
        assert shared.may_probe()
        shared.probed(announced=False)
        await passed(0.1)
        assert [name for name, _ in wire.asked] == ["probe", "abandon"]
        assert wire.asked[0][1][2] == wire.asked[1][1][0], "the same permit"
        assert not shared.may_probe(), "the next one is asked for"

    play(scenario)


def test_a_permit_of_which_nobody_makes_use_goes_back_to_the_others() -> None:
    """C4: who wanted to probe may be gone; the others must not wait for `reset_s`."""

    async def scenario() -> None:
        wire, here = Wire(answers), Standing()
        here.opened = True
        shared = breaker(wire, here)
        await shared.returned()
        assert not shared.may_probe()
        await passed(0.1)
        await shared.beat()
        assert "abandon" not in [name for name, _ in wire.asked], "it has just come"
        await shared.beat()
        assert "abandon" in [name for name, _ in wire.asked]
        assert not shared.may_probe()

    play(scenario)


@pytest.mark.parametrize("error", [ValueError("the driver has a mistake"), None])
def test_a_request_for_a_permit_that_fails_is_made_again(error: Exception | None) -> None:
    """C4: whatever has happened to it; otherwise nobody here would ever probe again."""

    def failing(script: str, values: tuple[str, ...]) -> object:
        if error is not None:
            raise error
        return answers(script, values)

    async def scenario() -> None:
        problems: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
        wire = Wire(failing)
        wire.silent = error is None
        shared = breaker(wire, Standing())
        assert not shared.may_probe()
        await passed(2 * ANSWER_S)
        assert wire.up is (error is not None)
        wire.is_up(up=True)
        wire.silent, wire.answer = False, answers
        assert not shared.may_probe()
        await passed(0.1)
        assert shared.may_probe()

    play(scenario)


def test_without_redis_a_probe_needs_no_permit() -> None:
    """C4: the fallback is the breaker of the process."""

    async def scenario() -> None:
        wire = Wire(answers)
        shared = breaker(wire, Standing())
        wire.is_up(up=False)
        assert shared.may_probe()
        shared.announce(opened=True, reset_s=30, reason="it has failed")
        await passed(0.1)
        assert wire.asked == []

    play(scenario)


def test_what_a_person_says_while_redis_is_gone_is_said_when_it_is_back_whatever_others_have_said() -> None:
    """C4: another process has come back first, and said that its own breaker has closed."""
    held = ""

    def others_were_first(script: str, values: tuple[str, ...]) -> object:
        nonlocal held
        if script == SAY and values[0] == "force":
            held = values[3]
        return ["7", "closed", "0", held, "a probe has worked", "them", "life"] if script == LOOK else 1

    async def scenario() -> None:
        wire, here = Wire(others_were_first), Standing()
        shared = breaker(wire, here)
        wire.is_up(up=False)
        here.forced = "open"
        shared.forced("open", "held open by a person")
        await shared.returned()
        assert (held, here.forced) == ("open", "open")
        wire.is_up(up=True)
        await shared.beat()
        assert [values[0] for name, values in wire.asked if name == "say"] == ["force"], "once"

    play(scenario)
