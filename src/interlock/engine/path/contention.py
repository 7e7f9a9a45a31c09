"""Contention of events on workflows: the contention signal of an engine (D9).

An event is a *hand-off* when another event of its workflow was decided while it waited already: in the same group
before it, or in a group that was still under way when it arrived. Its waiting time until the decision is counted. A
*conflict* is an event that was decided again on a shared store, because another process had changed the workflow. Many
events of many workflows are volume, and cause neither.

Groups are sampled, to limit the cost to about one percent of the time. Events that are not sampled are counted by the
weight of the next sample. So an event itself costs one reading of the clock.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Protocol

from interlock.engine.path.staging import Staged
from interlock.lanes.contention import Contention, HotRow
from interlock.lanes.settings import LaneSettings

LOOK_S = 0.002
LOOK_AT_ONE_S = 0.000_15
"""Pauses between two samples: the minimum, and per sampled event. A sampled event takes up to two microseconds when
many workflows are hot."""

GROUPS_REMEMBERED = 2
"""Groups that may have been under way when an event arrived: the default of `groups_max`."""

NEVER: frozenset[str] = frozenset()


class Waited(Protocol):
    """The attributes of an envelope that are used here."""

    @property
    def workflow(self) -> str:
        """The id of its workflow."""
        ...

    @property
    def look(self) -> bool:
        """Whether it was decided on a fresh row, because the cached row was stale or refused it."""
        ...

    @property
    def since_s(self) -> float:
        """When it arrived, by the event loop's clock; infinite for an envelope without a sender."""
        ...


class Contended:
    """The contention table of one engine. Lives in its event loop, and may be read from another thread."""

    def __init__(self, settings: LaneSettings | None = None) -> None:
        self.contention = Contention.watching(settings or LaneSettings(), source="workflow")
        self._next_s = -math.inf
        self._events = 0
        """Events since the last sample."""
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
        """Count a durable group. Workflows in `lost` were not committed; those in `fresh` were loaded for it."""
        size = len(envelopes)
        self._events += size
        if now_s >= self._next_s:
            self._next_s = now_s + max(LOOK_S, LOOK_AT_ONE_S * size)
            weight, self._events = self._events / size, 0
            self._look(envelopes, changed, decided_s, now_s, weight, lost, fresh)
        if lost and fresh:
            # Decided on a fresh row, and still in conflict. Rare enough to count without sampling.
            conflicts = {staged.live.row.id: staged.live.bound.name for staged in changed if staged.live.row.id in lost}
            self.contention.conflicted([(conflicts[each], each) for each in fresh if each in conflicts], now_s=now_s)
        self._recent.append(([each.workflow for each in envelopes], now_s))

    def worst(self, now_s: float) -> list[HotRow]:
        """Return the workflows with the most contention, worst first."""
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
        for workflow in lost:
            machines.pop(workflow, None)
        under_way: dict[str, float] = {}
        """The time of the last commit of each workflow in the last groups."""
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
