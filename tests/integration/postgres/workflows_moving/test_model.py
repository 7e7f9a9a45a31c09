"""Any history of groups and of movers that die: what arrives answers exactly as the specification does.

The store in the lane goes on between the movers, with moves, starts, pruning, effects, letters, notes and leases. The
last mover finishes, and then the store in PostgreSQL is asked everything.
"""

import uuid

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from interlock.errors import MovedElsewhere
from interlock.store.open_store import open_store
from interlock.store.protocol import Store
from tests.conformance.store.test_model import Stores
from tests.integration.postgres.workflows_moving.moves import Died, move

STEPS = 12
HISTORIES = 25
POINTS = 16
"""More than a mover of so few workflows comes to."""


class Moving(Stores):
    """The specification, a store in a lane, and movers that die on their way to PostgreSQL, until one does not."""

    server = url = ""
    moved = False

    async def opened(self) -> Store:
        if self.moved:
            return await open_store(self.url, clock=self.clock)
        self.url = f"{self.server}&schema=moving_{uuid.uuid4().hex[:12]}"
        self.home = f"lanes://{self.folder.name}/home"
        return await super().opened()

    def time(self) -> None:
        """Not compared: in the end it is the database's."""

    @precondition(lambda self: not self.moved)
    @rule(after=st.integers(0, POINTS))
    def a_mover_dies(self, after: int) -> None:
        points = iter(range(after))

        def at(point: str) -> None:
            if next(points, None) is None or point == "leave/before":
                raise Died

        with pytest.raises(Died):
            self.runner.run(move(self.home, self.url, clock=self.clock, at=at))

    @precondition(lambda self: not self.moved)
    @rule()
    def it_moves(self) -> None:
        before = self.store
        self.runner.run(move(self.home, self.url, clock=self.clock))
        with pytest.raises(MovedElsewhere):
            self.runner.run(before.load(["a"]))
        self.runner.run(before.close())
        self.moved = True
        self.store = self.runner.run(self.opened())

    @rule()
    def live_again(self) -> None:
        async def again() -> Store:
            await self.store.close()
            return await (self.opened() if self.moved else super(Moving, self).opened())

        self.store = self.runner.run(again())

    def teardown(self) -> None:
        if hasattr(self, "store") and not self.moved:
            self.it_moves()
            self.the_same_answers()
        super().teardown()


@pytest.mark.slow
def test_what_arrives_answers_as_the_specification_does(postgres: str) -> None:
    """G1, G2, G3, G4, B3, B5, B8."""
    Moving.server = postgres
    run_state_machine_as_test(Moving, settings=settings(stateful_step_count=STEPS, max_examples=HISTORIES))
