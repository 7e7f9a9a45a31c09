"""B15: a bug in the user's code is logged once, with its traceback and who it concerns; the dead letter keeps it."""

import logging
from typing import cast

import pytest

from interlock import Engine, UserCodeError
from interlock.engine.path.engine_commands import ERROR_CHARACTERS_MAX
from interlock.redaction import TRACEBACK_CHARACTERS_MAX
from tests.conformance.engine.places import Place, run, settled
from tests.conformance.engine.shop import Broken, Charged, Order, Outside, Submit, World, shop

SECRET = "Q9secretQ9"


def bugs(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("how", ["raises", "returns", "guard raises", "guard returns"])
def test_a_bug_in_a_guard_or_action_is_logged_once(place: Place, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        order = shop().machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            with pytest.raises(UserCodeError) as wrong:
                await engine.send("o-1", Broken(how), key="k")
            [record] = bugs(caplog)
            fields = cast("dict[str, object]", record.__dict__)
            assert (fields["order_id"], fields["machine"], fields["event"]) == ("o-1", "order", "BROKEN")
            assert wrong.value.correlation_id
            assert fields["correlation_id"] == wrong.value.correlation_id
            assert wrong.value.correlation_id in record.getMessage()
            assert "Traceback (most recent call last)" in (record.exc_text or "")
            assert ("ZeroDivisionError" in (record.exc_text or "")) == ("raises" in how)

    run(scenario)


async def given_up(engine: Engine) -> None:
    while not await engine.dead_letters():
        await settled(engine)


def test_a_bug_in_a_step_is_logged_once_and_the_dead_letter_keeps_its_traceback(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried; and no secret is in the log, in the letter or in the alert."""

    async def scenario() -> None:
        error = FileNotFoundError(
            f"charge() got postgresql://shop:{SECRET}@db/shop\n2026-11-17 INFO all is well " + "x" * 9_000
        )
        order = shop(World(charge=Outside(error)), failed=None).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await given_up(engine)
            [letter] = await engine.dead_letters()
            assert letter.attempts > 1
            assert "in answer" in letter.traceback
            assert "raise answer" in letter.traceback
            assert len(letter.traceback) <= TRACEBACK_CHARACTERS_MAX
            assert len(letter.error) <= ERROR_CHARACTERS_MAX + len("FileNotFoundError: ")
            assert letter.error.startswith("FileNotFoundError: charge() got postgresql://shop:***@db/shop")
            [record] = bugs(caplog)
            assert record.__dict__["correlation_id"] == letter.key
            assert record.__dict__["order_id"] == "o-1"
            assert record.exc_text is not None
            assert all(line.startswith("  ") for line in record.exc_text.splitlines()[1:])
            assert SECRET not in f"{letter} {caplog.text} {await engine.history('o-1')}"

    run(scenario)


def test_a_step_that_returns_what_cannot_be_stored_is_logged_once_and_kept(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        wrong = Charged(receipt=5)  # type: ignore[arg-type]
        order = shop(World(charge=Outside(wrong)), failed=None).machine
        async with place.engine(order) as engine:
            await engine.start(order, "o-1", Order())
            await engine.send("o-1", Submit())
            await given_up(engine)
            [letter] = await engine.dead_letters()
            assert "InvalidPayload" in letter.traceback
            [record] = bugs(caplog)
            assert record.__dict__["correlation_id"] == letter.key
            assert "InvalidPayload" in (record.exc_text or "")

    run(scenario)
