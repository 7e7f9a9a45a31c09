"""The parser of the worker's news: acknowledgements, transitions, breaker changes and stalled orders.

It updates the outcome, and keeps every acknowledgement for the comparison with the store at the end.
"""

import msgspec

from interlock.cli.demo.life import BANK
from interlock.cli.demo.outcome import Outcome, Stall
from interlock.cli.output import counted
from interlock.examples.order import State

STATES = {state.value: number for number, state in enumerate(State)}
NAMED_MAX = 3
"""How many stalled orders a remark names."""

_refusal = msgspec.json.Decoder(tuple[str, str, str])


class Listener:
    """Reads the news of all lives."""

    def __init__(self, outcome: Outcome) -> None:
        self.acknowledged: dict[str, bytearray] = {}
        """By order: acknowledged pairs of a version and the number of its state."""
        self.opened_in_s: float | None = None
        self.ended = False
        """True when the worker has completed all orders."""
        self._outcome = outcome
        self._counted: set[str] = set()
        self._rejections: set[tuple[str, str]] = set()
        self._done: set[str] = set()

    def __call__(self, line: str) -> None:
        """Handle one line."""
        outcome = self._outcome
        kind, *words = line.rstrip("\n").split("\t")
        match kind:
            case "T":
                outcome.tally.moved(words[0], words[3], words[2])
                self._note(transitions=1)
            case "A":
                outcome.acknowledged += 1
                self.acknowledged.setdefault(words[0], bytearray()).extend((int(words[1]), STATES[words[2]]))
            case "D" if words[0] not in self._done:
                self._done.add(words[0])
                outcome.done += 1
                outcome.tally.forget(words[0])
            case "P":
                self._paid(words[0])
            case "R" if (words[0], words[1]) not in self._rejections:
                self._rejections.add((words[0], words[1]))
                outcome.rejected[words[1]] += 1
            case "F":
                outcome.observer_failures += 1
            case _:
                self._read_rare(kind, words)

    def _read_rare(self, kind: str, words: list[str]) -> None:
        outcome = self._outcome
        match kind:
            case "X":
                outcome.examples.setdefault(words[0], _refusal.decode(words[1]))
            case "B" if words[0] == BANK:
                self._breaker(words[1])
            case "H" | "S" | "L":
                self._stall(kind, words)
            case "!":
                outcome.problems.append(f"{words[0]}: {words[1]}")
            case "O":
                self.opened_in_s = float(words[0])
            case "E":
                self.ended = True
            case _:
                pass

    def bank_is_back(self) -> None:
        """Record the end of the outage."""
        outage = self._outcome.outage
        assert outage is not None
        outage.ended_s = self._outcome.timeline.now_s()
        self._outcome.remark(f"The bank is back, after {outage.ended_s - outage.began_s:.1f} s.", "bold green")

    def _paid(self, order_id: str) -> None:
        if order_id in self._counted:
            self._outcome.counted_again += 1
            return
        self._counted.add(order_id)
        self._outcome.paid += 1

    def _breaker(self, state: str) -> None:
        outcome = self._outcome
        before, outcome.breaker = outcome.breaker, state
        outage, now_s = outcome.outage, outcome.timeline.now_s()
        if outage is None:
            return
        if state == "open" and outage.opened_s is None:
            outage.opened_s = now_s
            waiting = counted(len(self.acknowledged) - outcome.done, "order")
            outcome.remark(f"The breaker of {BANK} is open: calls have stopped, {waiting} on their way.", "bold")
        elif state == "half_open":
            outage.probes += 1
        elif state == "closed" and before != "closed" and outage.ended_s is not None and outage.closed_s is None:
            outage.closed_s = now_s
            outcome.remark(f"The breaker of {BANK} is closed: a probe got through, and calls resume.", "bold green")

    def _stall(self, kind: str, words: list[str]) -> None:
        outcome = self._outcome
        if outcome.stall is None:
            outcome.stall = Stall(outcome.timeline.now_s())
        stall = outcome.stall
        if kind == "H":
            stall.stuck.add(words[0])
        elif kind == "S":
            stall.listed.add(words[0])
        else:
            stall.ended_s = outcome.timeline.now_s()
            names = ", ".join(sorted(stall.listed)[:NAMED_MAX])
            more = ", …" if len(stall.listed) > NAMED_MAX else ""
            outcome.remark(
                f"Stalled: {counted(len(stall.listed), 'order')} on the packing table, listed by engine.stalled "
                f"({names}{more}). The packing table is fixed; they continue.",
                "bold yellow",
            )

    def _note(self, *, transitions: int) -> None:
        outcome = self._outcome
        outcome.timeline.note(
            transitions=transitions, started=len(self.acknowledged), paid=outcome.paid, done=outcome.done
        )
