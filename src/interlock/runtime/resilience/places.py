"""The slots of an engine and the wait queues of its dependencies (C8, G6).

Steps, undos and effects have slots of their own, so that compensation works while all steps are stuck (C9). An attempt
with a dependency needs a permit of the dependency and a slot. It waits for the permit first, so that waiting for a slow
dependency keeps no slot from others.
"""

from collections.abc import Callable, Mapping, Sequence

from interlock.core.policies import Dependency
from interlock.runtime.resilience.lines import Line, Pass
from interlock.runtime.resilience.outlets import Change, Kind, outlet_of
from interlock.runtime.slots import Slots
from interlock.seams import Chance, Clock


class Places:
    """All slots and wait queues of one engine."""

    def __init__(self, steps: int, undos: int, effects: int, lines: Mapping[str, Line] | None = None) -> None:
        self.steps, self.undos, self.effects = Slots(steps), Slots(undos), Slots(effects)
        self.lines = dict(lines or {})
        self._plain = {slots: Pass(slots) for slots in (self.steps, self.undos, self.effects)}

    @property
    def waiting(self) -> int:
        """The number of workflows that wait for a permit or a slot."""
        return len(self.steps) + len(self.undos) + sum(map(len, self.lines.values()))

    def reserve(self, name: str | None, slots: Slots, line: Line | None, kind: Kind, born_us: int = 0) -> Pass | None:
        """Return a pass for an attempt; None: it has to wait. Without a name nothing is kept for it."""
        if name is None:
            return self._reserve_both(slots, line, kind, born_us)
        self._decline_elsewhere(name, slots, line)
        if line is None:
            return self._plain[slots] if slots.reserve(name) else None
        pass_ = line.reserve(name, slots, kind, born_us)
        if pass_ is None:
            slots.decline(name)
            return None
        if slots.reserve(name):
            return pass_
        line.keep(name, pass_)
        return None

    def _reserve_both(self, slots: Slots, line: Line | None, kind: Kind, born_us: int) -> Pass | None:
        """Reserve slot and permit, or neither. The slot comes first: a permit costs a token and part of the budget."""
        if not slots.reserve():
            return None
        pass_ = self._plain[slots] if line is None else line.reserve(None, slots, kind, born_us)
        if pass_ is None:
            slots.release()
        return pass_

    def wait(self, name: str, slots: Slots, line: Line | None, kind: Kind, born_us: int = 0) -> None:
        """Queue for a permit and a slot. At a dependency the oldest workflow comes first."""
        if line is None or line.keeps(name, kind):
            slots.wait(name)
        else:
            line.wait(name, slots, kind, born_us)

    def decline(self, name: str) -> None:
        """Give back every slot and permit kept for this name."""
        self.steps.decline(name)
        self.undos.decline(name)
        self.effects.decline(name)
        for line in self.lines.values():
            line.decline(name)

    def _decline_elsewhere(self, name: str, slots: Slots, line: Line | None) -> None:
        """Give back what is kept for a state that the workflow has left."""
        for each in (self.steps, self.undos, self.effects):
            if each is not slots:
                each.decline(name)
        for other in self.lines.values():
            if other is not line:
                other.decline(name)

    def open(self) -> None:
        """Open all slots and queues; everything that was owed is known."""
        for slots in (self.steps, self.undos, self.effects):
            slots.open()
        for line in self.lines.values():
            line.open()

    def close(self) -> None:
        """Close all slots and queues."""
        for slots in (self.steps, self.undos, self.effects):
            slots.close()
        for line in self.lines.values():
            line.close()


def lines_of(
    names: Sequence[str],
    declared: Sequence[Dependency],
    *,
    clock: Clock,
    chance: Chance,
    changed: Callable[[Change], None],
) -> dict[str, Line]:
    """Return the wait queues of the dependencies that the machines call or the engine declares."""
    by_name = {each.name: each for each in declared}
    return {
        name: Line(outlet_of(name, clock, by_name.get(name)), chance, changed) for name in sorted({*names, *by_name})
    }
