"""The base class of scenarios, the run of one to its verdict, and the report.

A scenario states its promise in words, disturbs, and checks the outcome. Each broken promise is a sentence; without
any, the promise was kept.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple

import msgspec

from interlock.chaos.stage import Load, Servers, Stage
from interlock.chaos.world import ASKED, Broken
from interlock.errors import InterlockError
from interlock.testing.faults.processes import Processes

Outcome = Literal["kept", "broken", "not run"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict on one scenario."""

    scenario: str
    promised: str
    happened: str
    outcome: Outcome
    problems: tuple[str, ...] = ()
    """Each broken promise, as a sentence."""
    recovery_s: float | None = None
    """From the end of the disturbance until every order had ended."""
    seconds: float = 0.0
    """The whole scenario, workers and audit included."""
    orders: int = 0
    acknowledged: int = 0
    calls: int = 0
    """Number of calls to external services."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of a whole run."""

    seed: int
    verdicts: tuple[Verdict, ...]
    folder: str | None = None
    """The folder with the remaining files, if it was kept."""

    def named(self, outcome: Outcome) -> list[str]:
        """Return the scenarios with this outcome."""
        return [verdict.scenario for verdict in self.verdicts if verdict.outcome == outcome]


POSTGRES: Final = "PostgreSQL"
REDIS: Final = "Redis"


class Played(NamedTuple):
    """Outcome of a scenario."""

    happened: str
    """Summary for people, a clause."""
    problems: list[str]
    recovery_s: float | None = None


class Scenario(ABC):
    """One disturbance, with its promise."""

    name: ClassVar[str]
    promise: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = (POSTGRES,)

    @abstractmethod
    async def play(self, stage: Stage) -> Played:
        """Disturb, and check the outcome. Raises Broken when a broken promise makes it pointless to continue."""


async def run(scenario: Scenario, stage: Stage) -> Verdict:
    """Run a scenario to its verdict. The stage is always closed."""
    begun_s = stage.world.now_s()
    try:
        played = await scenario.play(stage)
    except Broken as broken:
        played = Played("", [str(broken)])
        if stage.world.fallen is not None:
            played.problems.append(f"its last words: {stage.crew.complaints(stage.world.fallen)}")
    except Exception as error:  # noqa: BLE001 -- any error: the verdicts of other scenarios are still reported.
        # For example a server that does not come back, an unreadable store, or a worker that does not start.
        message = str(error) if isinstance(error, InterlockError) else repr(error)
        played = Played("", [f"it could not be played to its end: {' '.join(message.split())}"])
    finally:
        await stage.close()
    found, world = played.problems, stage.world
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Verdict(
        scenario=scenario.name,
        promised=scenario.promise,
        happened=f"{found[0]}{more}" if found else played.happened,
        outcome="broken" if found else "kept",
        problems=tuple(found),
        recovery_s=played.recovery_s,
        seconds=world.now_s() - begun_s,
        orders=len(world.customers.orders),
        acknowledged=len(world.customers.acknowledgements),
        calls=sum(line.what == ASKED for line in world.gateway.lines),
    )


def stage_for(scenario: Scenario, folder: Path, servers: Servers, load: Load, processes: Processes) -> Stage:
    """Return a stage in a folder of its own."""
    own = folder / scenario.name
    own.mkdir()
    return Stage(scenario.name, own, servers, load, processes)


def times(count: int) -> str:
    """Return `once`, `2 times`."""
    return "once" if count == 1 else f"{count:,} times"


def counted(count: int, noun: str) -> str:
    """Return `1 refund`, `2 refunds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
