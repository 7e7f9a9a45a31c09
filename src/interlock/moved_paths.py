"""Documented module paths of the first preview, which still import: each is another name of today's module.

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
    "interlock.runtime.resilience": None,
    "interlock.runtime.resilience.outlets": "interlock.engine.dependencies.dependency",
    "interlock.database.backup": "interlock.backup.backup",
    "interlock.database.restoring": "interlock.backup.backup",
    "interlock.hotrow.advice.hysteresis": "interlock.hotrow.advice.rule",
    "interlock.observe.exporting": "interlock.observe.otel_export",
    "interlock.server.security.opening": "interlock.server.security.stores",
    "interlock.testing.engines": "interlock.testing.engine_simulation",
    "interlock.testing.simulation": "interlock.testing.lane_simulation",
    "interlock.testing.trial": "interlock.testing.explore",
}
"""Old path to new path; None is a package that has no modules of its own any more."""


class _Finder(MetaPathFinder):
    """Find the old paths, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an old path, or None for every other name."""
        del path, target
        if fullname not in MOVED_PATHS:
            return None
        return ModuleSpec(fullname, _Loader(), is_package=MOVED_PATHS[fullname] is None)


class _Loader(Loader):
    """Load the module of today under the old path."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of today into the place of the empty one."""
        target = MOVED_PATHS[module.__name__]
        if target is not None:
            # The import system returns what stands in sys.modules afterwards.
            sys.modules[module.__name__] = importlib.import_module(target)


def install() -> None:
    """Make the old paths importable in this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
