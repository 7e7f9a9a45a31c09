"""Report of a run: the promise, the outcome and the verdict of each scenario."""

from typing import Literal

import msgspec

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
