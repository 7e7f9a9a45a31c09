"""`App`: the machines, dependencies, webhooks and tools that `interlock serve` serves.

    app = App(machines=[order], dependencies=[Dependency("gateway")], webhooks=[Webhook("stripe", secret=…, map=…)])

An App opens nothing: the home of the workflows is passed when it is served.
"""

from collections.abc import Sequence

from interlock.core.policies import Dependency
from interlock.engine.bound_machine import AnyMachine
from interlock.errors import DefinitionError
from interlock.hotrow.tools import Tool
from interlock.server.handlers.webhooks import Webhook, by_source


class App:
    """Machines, dependencies, webhooks and tools of one server."""

    def __init__(
        self,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency] = (),
        webhooks: Sequence[Webhook] = (),
        tools: Sequence[Tool] = (),
    ) -> None:
        if not machines:
            raise DefinitionError(
                "machines= is empty.",
                why="A server runs the machines of its App, and needs at least one.",
                fix="Pass them: App(machines=[order]).",
                rule="no-machine",
            )
        for tool in tools:
            entry: object = tool  # Programs without a type checker may pass anything.
            if not isinstance(entry, Tool):
                raise DefinitionError(
                    f"tools= has {entry!r:.200}, which is not a Tool.",
                    why="A tool declares a workload and its latency and rate.",
                    fix='Pass Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500).',
                    rule="bad-tool",
                )
        self.machines = tuple(machines)
        self.dependencies = tuple(dependencies)
        self.webhooks = tuple(by_source(webhooks).values())
        self.tools = tuple(tools)

    def __repr__(self) -> str:
        return f"App(machines=[{', '.join(machine.name for machine in self.machines)}])"
