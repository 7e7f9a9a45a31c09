"""A scenario comes to a verdict whatever happens in it."""

import asyncio
from pathlib import Path

import pytest

from interlock.chaos.scenario import Scenario, ScenarioLoad, Servers, Stage, run
from interlock.chaos.shop import Broken
from interlock.errors import UnavailableError
from interlock.testing.faults import Processes


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Broken("an order was lost"), "an order was lost"),
        (UnavailableError("PostgreSQL did not start."), "it could not be played to its end: PostgreSQL did not start."),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("the helper process is gone"), "RuntimeError('the helper process is gone')"),
    ],
)
def test_a_scenario_that_fails_is_broken_and_the_others_are_told_all_the_same(
    tmp_path: Path, error: Exception, told: str
) -> None:
    """C14: a run ends with a verdict for each, and never with a traceback alone."""

    async def play(_stage: Stage) -> str:
        raise error

    async def scenario() -> None:
        stage = Stage("raises", tmp_path, Servers(None, None), ScenarioLoad(), Processes())
        verdict = await run(Scenario("raises", "nothing", (), play), stage)
        assert verdict.outcome == "broken"
        assert told in verdict.happened

    asyncio.run(scenario())
