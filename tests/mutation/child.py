"""Runs tests against one copy of the sources, and proves that it was this copy: `child COPY TEST...`.

An installed package, an editable install or pytest's own `pythonpath` could all bring in the real sources, and then
every mutant would seem to live. Before and after the tests each module of the package must come from the copy.
"""

import sys
from pathlib import Path

import pytest

import interlock

PASSED, NOTICED, WRONG_COPY = 0, 91, 90
"""Exit codes. Python itself ends with 1 when an import fails, so a test that fails needs a code of its own."""

LIMITS = ["-p", "pytest_timeout", "-p", "tests.limits"]
"""Plugins of which pyproject.toml has settings; no plugin is loaded by itself here."""

OPTIONS = [*LIMITS, "-x", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=", "--no-header", "--tb=no"]


def strangers(copy: Path) -> list[str]:
    """Modules of the package that were loaded from somewhere else."""
    loaded = [(name, module) for name, module in sys.modules.items() if name.partition(".")[0] == "interlock"]
    return [name for name, module in loaded if not Path(module.__file__ or "").resolve().is_relative_to(copy)]


def main() -> int:
    copy, tests = Path(sys.argv[1]).resolve(), sys.argv[2:]
    assert interlock.__file__
    # The shared settings are those of Hypothesis, which takes a third of the time only to be imported, and the places
    # and servers of the conformance suites and of those with real ones.
    files = [test for test in tests if test.endswith(".py")]
    needed = any("conformance" in test or "hypothesis" in Path(test).read_text(encoding="utf-8") for test in files)
    needed = needed or any("integration" in test for test in tests)
    options = OPTIONS if needed else [*OPTIONS, "--noconftest"]
    if strangers(copy):
        return WRONG_COPY
    code = pytest.main([*options, *tests])
    if strangers(copy):
        return WRONG_COPY
    return NOTICED if code == pytest.ExitCode.TESTS_FAILED else int(code)


if __name__ == "__main__":
    sys.exit(main())
