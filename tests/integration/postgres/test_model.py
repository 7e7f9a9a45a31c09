"""Any history of groups and lives: the store in PostgreSQL answers exactly as the specification does."""

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from interlock.store.memory import MemoryStore
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from tests.conformance.store.test_model import Stores
from tests.integration.postgres.stores import emptied

STEPS = 15
HISTORIES = 40
"""Each asks a server everything after every step."""


class Shared(Stores):
    """The specification, and a store in PostgreSQL that is told the same; its time is its own."""

    url = ""

    async def opened(self) -> Store:
        if not hasattr(self, "store"):
            await emptied(self.url)
            assert isinstance(self.specification, MemoryStore)
        return await open_store(self.url, clock=self.clock)

    def time(self) -> None:
        """Not compared: it is the database's."""

    @rule()
    def live_again(self) -> None:
        async def again() -> Store:
            await self.store.close()
            return await self.opened()

        self.store = self.runner.run(again())


@pytest.mark.slow
def test_a_store_in_postgresql_answers_as_the_specification_does(postgres: str) -> None:
    """G1, G2, G3, B3, B5, B8."""
    Shared.url = f"{postgres}&schema=model"
    run_state_machine_as_test(Shared, settings=settings(stateful_step_count=STEPS, max_examples=HISTORIES))
