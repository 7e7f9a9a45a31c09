"""Where attempts begin: the slots of an engine, and the lines of the dependencies that its steps call (C8, G6).

Steps, undos and effects have slots of their own, so that compensation works while all steps are stuck (C9). An attempt
of something with a dependency needs both, a place at the dependency and a slot; it waits for the place first, so that
nobody who waits for a slow dependency keeps a slot from others.
"""

from collections.abc import Callable, Mapping, Sequence

from interlock.core.policies import Dependency
from interlock.runtime.resilience.lines import Line, Pass
from interlock.runtime.resilience.outlets import Change, Kind, outlet_of
from interlock.runtime.slots import Slots
from interlock.seams import Chance, Clock


class Places:
    """All places of one engine."""

    def __init__(self, steps: int, undos: int, effects: int, lines: Mapping[str, Line] | None = None) -> None:
        self.steps, self.undos, self.effects = Slots(steps), Slots(undos), Slots(effects)
        self.lines = dict(lines or {})
        self._plain = {slots: Pass(slots) for slots in (self.steps, self.undos, self.effects)}

    @property
    def waiting(self) -> int:
        """How many wait for a place or a slot."""
        return len(self.steps) + len(self.undos) + sum(map(len, self.lines.values()))

    def reserve(self, name: str | None, slots: Slots, line: Line | None, kind: Kind, born_us: int = 0) -> Pass | None:
        """A pass for an attempt, or None: then it has to wait. Without a name nothing is kept for it."""
        if name is None:
            return self._at_once(slots, line, kind, born_us)
        self._decline_elsewhere(name, slots, line)
        if line is None:
            return self._plain[slots] if slots.reserve(name) else None
        held = line.reserve(name, slots, kind, born_us)
        if held is None:
            slots.decline(name)
            return None
        if slots.reserve(name):
            return held
        line.keep(name, held)
        return None

    def _at_once(self, slots: Slots, line: Line | None, kind: Kind, born_us: int) -> Pass | None:
        """Both, or nothing. The slot first: asking the dependency costs a token, and part of the budget."""
        if not slots.reserve():
            return None
        held = self._plain[slots] if line is None else line.reserve(None, slots, kind, born_us)
        if held is None:
            slots.release()
        return held

    def wait(self, name: str, slots: Slots, line: Line | None, kind: Kind, born_us: int = 0) -> None:
        """Be called when there is a place and a slot. At a dependency those who were born first come first."""
        if line is None or line.keeps(name, kind):
            slots.wait(name)
        else:
            line.wait(name, slots, kind, born_us)

    def decline(self, name: str) -> None:
        """Whoever was called has no use for what was kept for it."""
        self.steps.decline(name)
        self.undos.decline(name)
        self.effects.decline(name)
        for line in self.lines.values():
            line.decline(name)

    def _decline_elsewhere(self, name: str, slots: Slots, line: Line | None) -> None:
        """It was called for something that it waited for in a state that it has left: others may have that."""
        for each in (self.steps, self.undos, self.effects):
            if each is not slots:
                each.decline(name)
        for other in self.lines.values():
            if other is not line:
                other.decline(name)

    def open(self) -> None:
        """Begin: everything that was owed is known."""
        for slots in (self.steps, self.undos, self.effects):
            slots.open()
        for line in self.lines.values():
            line.open()

    def close(self) -> None:
        """No more places, and nobody waits any more."""
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
    """The lines of an engine at everything that its machines call, and at whatever else was declared."""
    given = {each.name: each for each in declared}
    return {name: Line(outlet_of(name, clock, given.get(name)), chance, changed) for name in sorted({*names, *given})}
