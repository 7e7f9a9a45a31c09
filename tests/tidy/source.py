"""What the tidy rules read: the files of the repository, as text and as syntax trees.

A rule is a function from sources to offences. It knows nothing of the repository, so that each can be shown a bad
sample and caught doing its work.
"""

import ast
import subprocess
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "interlock"

# Read where git cannot say which files belong to the repository (an unpacked source distribution).
_NOT_OURS = {".git", ".hypothesis", ".venv", "__pycache__", "_build", "build", "dist", "out"}


@dataclass(frozen=True)
class Offence:
    """One place that breaks one rule."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Source:
    """One Python module: its path as shown to the reader, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed module."""
        return ast.parse(self.text, filename=self.path)

    def offence(self, node: ast.AST, what: str) -> Offence:
        """An offence at the line of a node."""
        return Offence(self.path, getattr(node, "lineno", 1), what)


@cache
def tracked_files(root: Path = ROOT) -> list[Path]:
    """The files of the repository: those in git, and those that the next commit would add. Listed once a run."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        found = [
            path
            for path in root.rglob("*")
            if not any(part in _NOT_OURS or part.endswith("_cache") for part in path.relative_to(root).parts)
        ]
    else:
        found = [root / name for name in listing.split("\0") if name]
    return sorted(path for path in found if path.is_file())


def sources(*folders: str, root: Path = ROOT) -> list[Source]:
    """Every tracked Python module below the given folders of the repository. Each is read and parsed once a run."""
    return [
        _source(path, root)
        for path in tracked_files(root)
        if path.suffix == ".py" and path.relative_to(root).parts[0] in folders
    ]


@cache
def _source(path: Path, root: Path) -> Source:
    return Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def report(offences: list[Offence]) -> str:
    """Offences one per line, for the message of a failing test."""
    return "\n" + "\n".join(str(offence) for offence in offences)
