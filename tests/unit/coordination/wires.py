"""A link to a Redis that answers as a test wants, in virtual time."""

from collections.abc import Callable, Sequence

from interlock.coordination.addresses import parsed
from interlock.coordination.breakers import Forced, Heard
from interlock.coordination.link import ANSWER_S, Gone, Link
from interlock.coordination.scripts import Script
from interlock.seams import SystemChance
from tests.unit.runtime.sharing.stores import passed

Answer = Callable[[Script, tuple[str, ...]], object]


class Wire(Link):
    """It asks a function; `silent` never answers."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(parsed("redis://nowhere"), SystemChance(), lambda up, reason: None)
        self.answer = answer
        self.silent = False
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.is_up(up=True)

    def is_up(self, *, up: bool) -> None:
        self._up = up

    async def _run(self, script: Script, keys: Sequence[str], *values: str) -> object:
        self.asked.append((script.name, values))
        await passed(2 * ANSWER_S if self.silent else 0.001)
        if self.silent:
            raise Gone("unreachable")
        return self.answer(script, values)


class Standing:
    """The breaker of a process, as a test has it."""

    def __init__(self) -> None:
        self.opened, self.opens_in_s = False, 0.0
        self.forced: Forced | None = None
        self.heard: list[Heard] = []
        self.stirred = 0

    def follow(self, heard: Heard) -> None:
        self.heard.append(heard)
        self.opened, self.forced = heard.opened, heard.forced

    def stir(self) -> None:
        self.stirred += 1

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        return self.opened, self.opens_in_s, self.forced, "it was so"
