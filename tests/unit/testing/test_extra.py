"""The testing kit without its optional parts: importable, and clear about what is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

import interlock

SOURCE = str(Path(interlock.__file__).resolve().parents[1])

# A module that is None in sys.modules cannot be imported: as if it were not installed.
WITHOUT = "import sys; sys.path.insert(0, {source!r}); sys.modules[{package!r}] = None\n"


def run_without(package: str, code: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(source=SOURCE, package=package) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["hypothesis", "pytest"])
def test_the_kit_needs_no_extra(package: str) -> None:
    code = (
        "from interlock.examples.order import order\n"
        "from interlock.testing import explore, measure, transitions\n"
        "with measure(order): print(len(transitions(order)), explore(order))\n"
    )
    done = run_without(package, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "17 <Exploration of 'order': 11 of 11 states reached>\n"


def test_nothing_optional_is_loaded_before_it_is_used() -> None:
    code = "import interlock.testing, sys; print({'hypothesis', 'pytest'} & set(sys.modules))"
    assert run_without("no-such-package", code).stdout == "set()\n"


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("hypothesis", "from interlock.testing import walks"),
        ("hypothesis", "import interlock.testing.strategies"),
        ("pytest", "import interlock.testing.plugin"),
    ],
)
def test_a_missing_extra_prints_the_command_that_installs_it(package: str, code: str) -> None:
    done = run_without(package, code)
    assert done.returncode == 1
    assert 'pip install "interlock[testing]"' in done.stderr
    assert f"needs {package}, which is not installed" in done.stderr


def test_the_plugin_needs_no_hypothesis() -> None:
    done = run_without("hypothesis", "import interlock.testing.plugin, sys; print('ok')")
    assert (done.returncode, done.stdout) == (0, "ok\n")


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    import interlock.testing as kit  # noqa: PLC0415 -- the module itself is the thing under test.

    with pytest.raises(AttributeError, match="has no attribute 'stroll'"):
        _ = kit.stroll  # type: ignore[attr-defined]
    assert all(hasattr(kit, name) for name in kit.__all__)
