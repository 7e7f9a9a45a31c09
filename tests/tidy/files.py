"""Rules on the files of the repository: nothing that ties it to one machine or one index, no lock file."""

import re
from collections.abc import Iterable

from tests.tidy.source import Offence

# Written in pieces, or this file would break its own rules.
_INDEX = re.compile(
    r"(?:--)?(?:extra-)?index[-_]url\b|--find[-]links\b|--trusted[-]host\b|\bpypi\.[o]rg/simple|"
    r"\bfiles\.python[h]osted\.org|\bregistry\.npm[j]s\.org|\bregistry\.yarn[p]kg\.com|\b[pP]IP_INDEX[_]URL\b"
)
_MACHINE_PATH = re.compile(r"(?<![\w.~}/-])/(?:roo[t]|wor[k]|hom[e])/")
_LOCK_FILE = re.compile(
    r"(?:^|/)(?:[^/]+\.lock|[^/]*lock\.json|pnpm-lock\.yaml|pylock(?:\.[^/]+)?\.toml|npm-shrinkwrap\.json)$"
)
_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+")


def index_addresses(path: str, text: str) -> list[Offence]:
    """The address of a package index: which one serves the packages is the installing machine's choice."""
    return _matches(path, text, _INDEX, "the address or option of a package index")


def machine_paths(path: str, text: str) -> list[Offence]:
    """An absolute path that exists on one machine only."""
    return _matches(path, text, _MACHINE_PATH, "an absolute path of one machine")


def lock_files(paths: Iterable[str]) -> list[Offence]:
    """A lock file: it holds addresses and hashes of one index. `constraints.txt` is what pins versions here."""
    return [
        Offence(path, 1, "a lock file: pin versions in constraints.txt") for path in paths if _LOCK_FILE.search(path)
    ]


def loose_constraints(path: str, text: str) -> list[Offence]:
    """A line of constraints.txt that is anything but a comment or `name==version`."""
    return [
        Offence(path, number, f"'{line}' is not name==version")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#") and not _PIN.fullmatch(line)
    ]


def _matches(path: str, text: str, pattern: re.Pattern[str], what: str) -> list[Offence]:
    return [
        Offence(path, number, f"'{match[0]}' is {what}")
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := pattern.search(line))
    ]
