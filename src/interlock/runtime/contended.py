"""Which workflows events wait for each other on: the contention signal of an engine (D9).

An event is a *hand-off* when another event of its workflow was decided while it waited already: in the same group
before it, or in a group that was still under way when it came. It counts how long it then waited to be decided. A
*conflict* is an event that had to be decided again on a shared store, because another process had moved the workflow.
Many events of many workflows are volume, and show neither.

Looking costs about as much as a hundredth of the time may cost: after a look the next ones are passed over for a while,
and counted by what the next look shows. So an event itself pays for one look at the clock.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Protocol

from interlock.lanes.contention import Contention, HotRow
from interlock.lanes.settings import LaneSettings
from interlock.runtime.staging import Staged

LOOK_S = 0.002
LOOK_AT_ONE_S = 0.000_15
"""No more than one look in so long, and the longer the more events were looked at: it takes up to two microseconds
each, where many workflows are hot."""

GROUPS_REMEMBERED = 2
"""Groups that may have been under way when an event came: the default of `groups_max`."""

NEVER: frozenset[str] = frozenset()


class Waited(Protocol):
    """As much of an envelope as is looked at here."""

    @property
    def workflow(self) -> str:
        """Whom it is for."""
        ...

    @property
    def look(self) -> bool:
        """It was decided upon a fresh row, because what memory had was behind it or refused it."""
        ...

    @property
    def since_s(self) -> float:
        """When it came, by the event loop's clock; infinite for what nobody sent."""
        ...


class Contended:
    """The contention table of one engine. Lives in its event loop, and may be read from another thread."""

    def __init__(self, settings: LaneSettings | None = None) -> None:
        self.contention = Contention.watching(settings or LaneSettings(), source="workflow")
        self._next_s = -math.inf
        self._events = 0
        """Those that came since the last look."""
        self._recent: deque[tuple[list[str], float]] = deque(maxlen=GROUPS_REMEMBERED)
        """The workflows of the last groups, and when each group was durable."""

    def passed(
        self,
        envelopes: Sequence[Waited],
        changed: Sequence[Staged],
        *,
        decided_s: float,
        now_s: float,
        lost: Collection[str] = (),
        fresh: frozenset[str] = NEVER,
    ) -> None:
        """A group is durable; what is `lost` of it is not, and `fresh` was read for it from a shared store."""
        size = len(envelopes)
        self._events += size
        if now_s >= self._next_s:
            self._next_s = now_s + max(LOOK_S, LOOK_AT_ONE_S * size)
            weight, self._events = self._events / size, 0
            self._look(envelopes, changed, decided_s, now_s, weight, lost, fresh)
        if lost and fresh:
            # Decided upon what the store had a moment ago, and still too late. Rare enough to be seen always.
            behind = {staged.live.row.id: staged.live.bound.name for staged in changed if staged.live.row.id in lost}
            self.contention.conflicted([(behind[each], each) for each in fresh if each in behind], now_s=now_s)
        self._recent.append(([each.workflow for each in envelopes], now_s))

    def worst(self, now_s: float) -> list[HotRow]:
        """The workflows that events wait for each other on, worst first."""
        return self.contention.worst(now_s)

    def _look(
        self,
        envelopes: Sequence[Waited],
        changed: Sequence[Staged],
        decided_s: float,
        now_s: float,
        weight: float,
        lost: Collection[str],
        fresh: frozenset[str],
    ) -> None:
        machines: dict[str, str] = {}
        for staged in changed:
            live = staged.live
            machines[live.row.id] = live.bound.name
        for gone in lost:
            machines.pop(gone, None)
        under_way: dict[str, float] = {}
        """When a workflow was durable last, of those in the last groups."""
        for workflows, done_s in self._recent:
            under_way.update(dict.fromkeys(workflows, done_s))
        met: dict[str, list[float]] = {}
        for each in envelopes:
            workflow = each.workflow
            if workflow not in machines:
                continue
            count = met.get(workflow)
            waited = count is not None
            if count is None:
                count = met[workflow] = [0.0, 0.0, 0.0]
                waited = under_way.get(workflow, -math.inf) > each.since_s
            count[0] += weight
            if waited and each.since_s <= decided_s:
                count[1] += weight
                count[2] += weight * (decided_s - each.since_s)
            if fresh and each.look and workflow in fresh:
                self.contention.conflicted([(machines[workflow], workflow)], now_s=now_s, weight=weight)
        took_turns = self.contention.took_turns
        for workflow, (writes, handoffs, wait_s) in met.items():
            took_turns((machines[workflow], workflow), writes=writes, handoffs=handoffs, wait_s=wait_s, now_s=now_s)
