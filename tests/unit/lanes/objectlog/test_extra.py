"""Nobody who does not use buckets needs their packages, and who does is told what to install."""

import os
import subprocess
import sys

import pytest


def run(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_importing_interlock_loads_neither() -> None:
    assert run("import interlock, sys; print({'obstore', 'zstandard'} & set(sys.modules))").strip() == "set()"


@pytest.mark.parametrize(("package", "module"), [("obstore", "remote_bucket"), ("zstandard", "format")])
def test_a_missing_package_is_named_with_the_command(package: str, module: str) -> None:
    told = run(
        f"import sys; sys.modules['{package}'] = None\n"
        "from interlock.errors import MissingExtra\n"
        f"try: import interlock.lanes.objectlog.{module}\n"
        "except MissingExtra as error: print(error)\n"
    )
    assert f"needs {package}" in told
    assert 'pip install "interlock[objects]"' in told


@pytest.mark.parametrize("module", ["urls", "lanes.objectlog.bucket_protocol", "lanes.objectlog.probe"])
def test_addresses_are_understood_without_the_packages(module: str) -> None:
    run(f"import sys; sys.modules.update(obstore=None, zstandard=None); import interlock.{module}")
