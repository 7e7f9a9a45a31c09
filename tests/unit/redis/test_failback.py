"""C10, G4: a lease that the store gives while Redis comes back is overtaken by those that Redis gives afterwards."""

import asyncio
from typing import cast

from interlock.clock import SeededIds, SystemChance, SystemClock
from interlock.redis.connection import ADOPT, BEAT, RAISE, Gone, RedisLink
from interlock.redis.shared_leases import COUNT_BITS, EPOCHS, Epochs, SharedLeases
from interlock.store.protocol import Granted, Held
from interlock.urls import parse_redis_url


class SlowStore:
    """Gives every lease, the asked-for one not before somebody says so."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self._tokens: dict[str, int] = {}

    async def acquire(self, name: str, owner: str, lease_s: float) -> Granted | Held:
        if name != EPOCHS:
            self.asked.set()
            await self.go_on.wait()
        self._tokens[name] = self._tokens.get(name, 0) + 1
        return Granted(self._tokens[name])

    async def renew(self, name: str, token: int, lease_s: float) -> bool:
        return True

    async def release(self, name: str, token: int) -> bool:
        return True


class ReturningLink:
    """A Redis that is gone for calls, and answers whoever looks whether it is back."""

    def __init__(self) -> None:
        self.address = parse_redis_url("redis://127.0.0.1:6379/0")
        self.up, self.still, self.there, self.epoch = False, False, True, 0
        self.adopted: list[str] = []

    async def call(self, script: str, keys: tuple[str, ...], *values: str) -> object:
        raise Gone("it does not answer")

    async def ask(self, script: str, keys: tuple[str, ...], *values: str) -> object:
        if not self.there:
            raise Gone("it does not answer")
        if script is BEAT:
            return ["1", str(self.epoch)]
        if script is RAISE:
            self.epoch = max(self.epoch, int(values[0]))
            return self.epoch
        assert script is ADOPT
        self.adopted.append(values[0])
        return 1


def leases_over(link: ReturningLink, store: SlowStore) -> SharedLeases:
    epochs = Epochs(store, SystemChance(1), SeededIds(1))
    return SharedLeases(cast("RedisLink", link), store, epochs, SystemClock())


def granted_while(*, gone_again: bool) -> tuple[ReturningLink, int]:
    async def main() -> tuple[ReturningLink, int]:
        link, store = ReturningLink(), SlowStore()
        leases = leases_over(link, store)
        leases.lost()
        asking = asyncio.ensure_future(leases.acquire("report", "me", 5.0))
        await store.asked.wait()
        await leases.returned()
        link.there = not gone_again
        store.go_on.set()
        answer = await asking
        assert isinstance(answer, Granted)
        return link, answer.token >> COUNT_BITS

    return asyncio.run(main())


def test_redis_has_a_higher_epoch_than_a_lease_that_the_store_gave_while_it_came_back() -> None:
    """Found by `interlock chaos`: the next holder had a lower token, and every resource would have refused it."""
    link, epoch = granted_while(gone_again=False)
    assert link.epoch > epoch
    assert link.adopted == ["report"]


def test_a_redis_that_is_gone_again_is_given_its_epoch_when_it_returns() -> None:
    link, epoch = granted_while(gone_again=True)
    assert link.epoch < epoch
    assert link.adopted == []
