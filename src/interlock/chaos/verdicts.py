"""What is said in the end: of each scenario what was promised, what happened, and whether that is the same."""

from typing import Literal

import msgspec

Outcome = Literal["kept", "broken", "not run"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario."""

    scenario: str
    promised: str
    happened: str
    outcome: Outcome
    problems: tuple[str, ...] = ()
    """Each promise that was broken, in a sentence."""
    recovery_s: float | None = None
    """From the end of the disturbance until every order had ended."""
    seconds: float = 0.0
    """The whole scenario, workers and audit included."""
    orders: int = 0
    acknowledged: int = 0
    calls: int = 0
    """How often the world outside was asked."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    seed: int
    verdicts: tuple[Verdict, ...]
    folder: str | None = None
    """Where everything is kept that was left, if it was to be kept."""

    def named(self, outcome: Outcome) -> list[str]:
        """The scenarios with this outcome."""
        return [verdict.scenario for verdict in self.verdicts if verdict.outcome == outcome]
