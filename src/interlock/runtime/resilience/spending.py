"""A moving count of a dependency's calls and retries, for the retry budget (C5).

The window moves in tenths, so that it is one small list whatever the traffic is.
"""

from interlock.core.policies import Budget

PARTS = 10


class Spending:
    """Counts of calls and retries in one moving window."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._width_s = budget.window_s / PARTS
        self._parts = [(0, 0)] * PARTS
        self._at = 0
        self.calls = self.retries = 0

    def allows(self, now_s: float) -> bool:
        """Whether one more retry is within the budget."""
        self._move(now_s)
        return self.budget.allows(calls=self.calls, retries=self.retries)

    def spend(self, now_s: float, *, retry: bool) -> None:
        """Count a call."""
        self._move(now_s)
        at = self._at % PARTS
        calls, retries = self._parts[at]
        self._parts[at] = (calls + 1, retries + retry)
        self.calls += 1
        self.retries += retry

    def left_s(self, now_s: float) -> float:
        """Return the seconds until the window moves: earlier the budget grows only if others call."""
        return self._width_s - now_s % self._width_s

    def _move(self, now_s: float) -> None:
        at = int(now_s / self._width_s)
        if at == self._at:
            return
        for part in range(max(self._at + 1, at - PARTS + 1), at + 1):
            calls, retries = self._parts[part % PARTS]
            self.calls -= calls
            self.retries -= retries
            self._parts[part % PARTS] = (0, 0)
        self._at = max(at, self._at)
