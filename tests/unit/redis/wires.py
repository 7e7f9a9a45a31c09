"""A link to a Redis that answers as a test wants, in virtual time."""

from collections.abc import Callable, Sequence

from interlock.clock import SystemChance
from interlock.redis import connection
from interlock.redis.cluster_breakers import ClusterBreaker, Forced
from interlock.redis.connection import ANSWER_S, Gone, RedisLink
from interlock.urls import parse_redis_url
from tests.unit.engine.shared.stores import passed

Answer = Callable[[str, tuple[str, ...]], object]


def name_of(script: str) -> str:
    """The name of a script, by which a test knows it."""
    return next(name.lower() for name, text in vars(connection).items() if text is script)


class Wire(RedisLink):
    """It asks a function; `silent` never answers."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(parse_redis_url("redis://nowhere"), SystemChance(), lambda up, reason: None)
        self.answer = answer
        self.silent = False
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.is_up(up=True)

    def is_up(self, *, up: bool) -> None:
        self._up = up

    async def _run(self, script: str, keys: Sequence[str], *values: str) -> object:
        self.asked.append((name_of(script), values))
        await passed(2 * ANSWER_S if self.silent else 0.001)
        if self.silent:
            raise Gone("unreachable")
        return self.answer(script, values)


class Standing:
    """The breaker of a process, as a test has it."""

    def __init__(self) -> None:
        self.opened, self.opens_in_s = False, 0.0
        self.forced: Forced | None = None
        self.heard: list[ClusterBreaker] = []
        self.stirred = 0

    def follow(self, heard: ClusterBreaker) -> None:
        self.heard.append(heard)
        self.opened, self.forced = heard.opened, heard.forced

    def stir(self) -> None:
        self.stirred += 1

    def standing(self) -> tuple[bool, float, Forced | None, str]:
        return self.opened, self.opens_in_s, self.forced, "it was so"
