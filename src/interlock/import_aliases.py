"""Documented module paths of earlier releases, which still import: each is another name of today's module.

`install` registers a finder that is asked before all others, because a parent of an old path may be a module of today
whose folder holds files of the same names. An alias is the module itself, not a copy: its classes stay identical.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

MOVED_PATHS: Final = {
    "interlock.access": "interlock.errors",
    "interlock.seams": "interlock.clock",
    "interlock.runtime": None,
    "interlock.runtime.alerts": "interlock.engine.alerts",
    "interlock.runtime.settings": "interlock.engine.engine_settings",
    "interlock.runtime.resilience": None,
    "interlock.runtime.resilience.outlets": "interlock.engine.dependencies.outlet",
    "interlock.core.mistakes": "interlock.core.definition_errors",
    "interlock.core.unwinding": "interlock.core.decide",
    "interlock.database.backup": "interlock.backup.backup",
    "interlock.database.restore": "interlock.backup.backup",
    "interlock.database.restoring": "interlock.backup.backup",
    "interlock.engine.settings": "interlock.engine.engine_settings",
    "interlock.hotrow.advice": None,
    "interlock.hotrow.advice.evidence": "interlock.hotrow.placement_advice",
    "interlock.hotrow.advice.hysteresis": "interlock.hotrow.placement_advice",
    "interlock.hotrow.advice.rule": "interlock.hotrow.placement_advice",
    "interlock.hotrow.placement": "interlock.hotrow.placement_advice",
    "interlock.hotrow.tools": "interlock.hotrow.tool_declarations",
    "interlock.lanes.contention": "interlock.lanes.hot_rows",
    "interlock.observe.exporting": "interlock.observe.otel",
    "interlock.server.limits": "interlock.server.app_declaration",
    "interlock.server.security.opening": "interlock.server.security.stores",
    "interlock.server.security.scopes": "interlock.server.security.keys",
    "interlock.client.blocking": "interlock.client.client",
    "interlock.testing.objects": "interlock.testing.lane_simulation.bucket",
    "interlock.testing.engines.run": "interlock.testing.engine_simulation.simulate_engine",
    "interlock.testing.simulation.run": "interlock.testing.lane_simulation.simulate_lanes",
    "interlock.testing.engines": "interlock.testing.engine_simulation",
    "interlock.testing.simulation": "interlock.testing.lane_simulation",
    "interlock.testing.trial": "interlock.testing.explore",
}
"""Old path to new path; None is a package that has no modules of its own any more."""

FIRST_MODULES: Final = {
    "interlock.client.client.BlockingClient": "interlock.client.blocking",
    "interlock.clock.RandomIds": "interlock.seams",
    "interlock.clock.SystemChance": "interlock.seams",
    "interlock.clock.SystemClock": "interlock.seams",
    "interlock.core.describe.MachineDescription": "interlock.core.description",
    "interlock.core.machine.Step": "interlock.core.step",
    "interlock.core.plan.findings.Plan": "interlock.core.plan.outcome",
    "interlock.core.policies.Breaker": "interlock.core.breakers",
    "interlock.engine.alerts.receivers.AlertWebhook": "interlock.runtime.alerts.receivers",
    "interlock.engine.alerts.receivers.PagerDuty": "interlock.runtime.alerts.receivers",
    "interlock.engine.blocking_engine.BlockingEngine": "interlock.runtime.blocking",
    "interlock.engine.blocking_engine.BlockingLease": "interlock.runtime.blocking",
    "interlock.engine.blocking_engine.BlockingWorkflows": "interlock.runtime.blocking",
    "interlock.engine.dependencies.breakers.BreakerView": "interlock.runtime.resilience.views",
    "interlock.engine.dependencies.breakers.Breakers": "interlock.runtime.resilience.views",
    "interlock.engine.engine.Engine": "interlock.runtime.engine",
    "interlock.engine.leases.Lease": "interlock.runtime.leases",
    "interlock.engine.operators.retention.Pruned": "interlock.runtime.pruning",
    "interlock.engine.engine_settings.Admission": "interlock.runtime.settings",
    "interlock.engine.caller_transactions.BlockingTransaction": "interlock.runtime.transactions.blocks",
    "interlock.engine.caller_transactions.Transaction": "interlock.runtime.transactions.blocks",
    "interlock.engine.engine.Workflows": "interlock.runtime.typed",
    "interlock.engine.views.Compensation": "interlock.runtime.views",
    "interlock.engine.views.Counts": "interlock.runtime.views",
    "interlock.engine.views.DeadLetter": "interlock.runtime.views",
    "interlock.engine.views.HistoryRow": "interlock.runtime.views",
    "interlock.engine.views.Moved": "interlock.runtime.views",
    "interlock.engine.views.Page": "interlock.runtime.views",
    "interlock.engine.views.Refused": "interlock.runtime.views",
    "interlock.engine.views.View": "interlock.runtime.views",
    "interlock.errors.NotAuthenticated": "interlock.access",
    "interlock.errors.NotPermitted": "interlock.access",
    "interlock.hotrow.tool_declarations.Tool": "interlock.hotrow.tools",
    "interlock.hotrow.counters.Counter": "interlock.hotrow.counters.counter",
    "interlock.lanes.hot_rows.HotRow": "interlock.lanes.contention",
    "interlock.server.handlers.sql.run_statements": "interlock.server.databases",
    "interlock.server.app_declaration.App": "interlock.server.app",
    "interlock.server.app_declaration.Webhook": "interlock.server.webhooks",
    "interlock.sql.stored_values.Row": "interlock.sql.rows",
    "interlock.store.protocol.Granted": "interlock.store.leases",
    "interlock.store.protocol.Held": "interlock.store.leases",
    "interlock.store.protocol.Leases": "interlock.store.leases",
}
"""The module in which a public name, or a function with stored calls, was first defined: digests of calls hold it."""


def first_name(module: str, qualname: str) -> str:
    """Return the full name under which a function or class was first known."""
    return f"{FIRST_MODULES.get(f'{module}.{qualname}', module)}.{qualname}"


def _today(name: str) -> str | None:
    """Return today's path of an old one, also below a package that was renamed; None for other names."""
    known, _, below = name, "", ""
    while known and known not in MOVED_PATHS:
        known, _, last = known.rpartition(".")
        below = f".{last}{below}"
    target = MOVED_PATHS.get(known)
    return None if target is None else target + below


class _Finder(MetaPathFinder):
    """Find the old paths, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an old path, or None for every other name."""
        del path, target
        if _today(fullname) is None and fullname not in MOVED_PATHS:
            return None
        return ModuleSpec(fullname, _Loader(), is_package=MOVED_PATHS.get(fullname, "") is None)


class _Loader(Loader):
    """Load the module of today under the old path."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of today into the place of the empty one."""
        target = _today(module.__name__)
        if target is not None:
            # The import system returns what stands in sys.modules afterwards.
            sys.modules[module.__name__] = importlib.import_module(target)


def install() -> None:
    """Make the old paths importable in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
