"""The scenarios by their names, in the order in which they are run."""

from interlock.chaos.scenario import Scenario
from interlock.chaos.scenarios.gateway import GatewayLatency, GatewayOutage
from interlock.chaos.scenarios.lane import FillDisk
from interlock.chaos.scenarios.locks import FreezeHolder
from interlock.chaos.scenarios.postgres import ExhaustConnections, KillPostgres, RestartPostgres, ThrottlePostgres
from interlock.chaos.scenarios.redis import KillRedis
from interlock.chaos.scenarios.workers import CutNode, FreezeWorker

SCENARIOS: dict[str, type[Scenario]] = {
    each.name: each
    for each in (
        KillRedis,
        FreezeHolder,
        RestartPostgres,
        KillPostgres,
        ThrottlePostgres,
        ExhaustConnections,
        GatewayLatency,
        GatewayOutage,
        FreezeWorker,
        CutNode,
        FillDisk,
    )
}
