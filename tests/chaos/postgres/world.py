"""Everything outside of the killed processes: the world of `interlock chaos`, with restless customers and a gateway
on which nothing can be relied.
"""

from interlock.chaos.shop import ChaosWorld
from interlock.chaos.worker_messages import DONE
from interlock.clock import SystemChance
from tests.chaos.postgres.customers import RestlessCustomers
from tests.chaos.postgres.gateway import UnreliableGateway


class World(ChaosWorld):
    """One world, from one seed."""

    gateway: UnreliableGateway
    customers: RestlessCustomers

    def __init__(self, seed: int) -> None:
        super().__init__(
            seed * 10 + 1, gateway=UnreliableGateway, customers=RestlessCustomers(SystemChance(seed * 10 + 2))
        )
        self._told = 0

    def changed(self) -> None:
        """Tell the customers what the gateway was asked for, and stop everything when an answer cannot be."""
        lines = self.gateway.lines[self._told :]
        self._told = len(self.gateway.lines)
        for line in lines:
            self.customers.told(line.deed, line.workflow, done=line.what == DONE)
        if self.customers.problems:
            self.fault = self.customers.problems[0]
        super().changed()
