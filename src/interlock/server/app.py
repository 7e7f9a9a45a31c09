"""`App`: what `interlock serve` serves, declared in the program: machines, dependencies, webhooks, tools.

    app = App(machines=[order], dependencies=[Dependency("gateway")], webhooks=[Webhook("stripe", secret=…, map=…)])

It opens nothing: where the workflows live is said when it is served.
"""

from collections.abc import Sequence

from interlock.core.policies import Dependency
from interlock.errors import DefinitionError
from interlock.hotrow.tools import Tool
from interlock.runtime.bound import AnyMachine
from interlock.server.webhooks import Webhook, by_source


class App:
    """What a server is made of."""

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
                "an App was made without a machine.",
                why="A server runs the machines that it is given, and without one there is nothing to run.",
                fix="Pass them: App(machines=[order]).",
                rule="no-machine",
            )
        for tool in tools:
            given: object = tool  # Not every program has a type checker.
            if not isinstance(given, Tool):
                raise DefinitionError(
                    f"tools= has {given!r:.200}, which is no Tool.",
                    why="A tool is a workload with what it needs.",
                    fix='Give it as Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500).',
                    rule="bad-tool",
                )
        self.machines = tuple(machines)
        self.dependencies = tuple(dependencies)
        self.webhooks = tuple(by_source(webhooks).values())
        self.tools = tuple(tools)

    def __repr__(self) -> str:
        return f"App(machines=[{', '.join(machine.name for machine in self.machines)}])"
