"""`interlock new`: make a project from the templates of this package.

The templates are package data, with placeholders for the names of the project and its package. Nothing is overwritten:
an existing folder must be empty, and everything is checked before the first file is made. No file names a path of this
machine: the Makefile asks the Interlock on the PATH where it was installed from (`interlock new --requirement`).
"""

import keyword
import re
import shutil
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
import typer

from interlock.cli.console import Exit, remark, say, show_raw
from interlock.errors import BadUsage, UnusableFile

NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*", re.ASCII)
NAME_CHARACTERS_MAX = 60
INDEXED = "interlock[server]"
TAKEN = {"interlock", "tests", "data"}
"""Packages that would hide, or be hidden by, another one of the project."""

FILES = {
    "README.md.txt": "README.md",
    "Makefile.txt": "Makefile",
    "pyproject.toml.txt": "pyproject.toml",
    "interlock.toml.txt": "interlock.toml",
    "gitignore.txt": ".gitignore",
    "package.py.txt": "{package}/__init__.py",
    "orders.py.txt": "{package}/orders.py",
    "world.py.txt": "{package}/world.py",
    "app.py.txt": "{package}/app.py",
    "test_orders.py.txt": "tests/test_orders.py",
}
"""Templates of this package, and their paths in the project."""


def _show_requirement(wanted: bool) -> None:  # noqa: FBT001 -- typer calls it with the value of the flag.
    if wanted:
        show_raw(source_requirement())
        raise typer.Exit(Exit.OK)


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the project: my-shop.")],
    *,
    requirement: Annotated[
        bool,
        typer.Option(
            "--requirement",
            is_eager=True,
            callback=_show_requirement,
            help="Only print what pip needs to install this Interlock.",
        ),
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The folder of the project, new or empty. Without it: NAME, here."),
    ] = None,
) -> None:
    """Make a project: a machine with steps and undos, its tests, and an app to serve.

    `make test` checks the machine and runs the tests, `make run` serves it on this machine, with a dashboard.
    Exits with 2 when NAME cannot be a package, or when the folder is not empty.
    """
    del requirement
    package = package_of(name)
    folder = Path(name) if directory is None else directory
    texts = _texts(name, package)
    _refuse_used(folder)
    try:
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnusableFile(f"{error.filename or folder} cannot be written: {error.strerror or error}.") from error
    say(f"Made {name} in {folder}: {len(texts)} files.")
    say(f"\n  cd {folder}\n  make test    # checks the machine, runs its tests\n  make run     # serves it")
    if shutil.which("interlock") is None and (needed := source_requirement()) != INDEXED:
        remark(f'\nThis Interlock is not on the PATH; to install it there too: make test INTERLOCK="{needed}"')


def package_of(name: str) -> str:
    """The package of a project of that name. Raises BadUsage for a name that cannot be one."""
    package = name.lower().replace("-", "_")
    if not NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        why = f"It names a package too: a letter first, then letters, digits, - and _, at most {NAME_CHARACTERS_MAX}."
    elif keyword.iskeyword(package) or package in sys.stdlib_module_names or package in TAKEN:
        why = f"A package {package!r} could not be imported, or would hide one that Python or Interlock needs."
    else:
        return package
    raise BadUsage(
        f"{name!r:.100} cannot be the name of a project.",
        why=why,
        fix="Choose another name, such as my-shop; --directory names another place.",
    )


class _Revision(msgspec.Struct):
    vcs: str
    commit_id: str


class _Origin(msgspec.Struct):
    """The record of pip about a package that did not come from an index (PEP 610)."""

    url: str
    vcs_info: _Revision | None = None


def source_requirement() -> str:
    """Return the requirement for this Interlock: the package, or the folder, file or commit it was installed from."""
    try:
        text = metadata.distribution("interlock").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    if text is None:
        return INDEXED
    origin = msgspec.json.decode(text, type=_Origin)
    if origin.vcs_info is not None:
        return f"{INDEXED} @ {origin.vcs_info.vcs}+{origin.url}@{origin.vcs_info.commit_id}"
    address = urlsplit(origin.url)
    path = Path(url2pathname(address.path))
    return f"{path}[server]" if address.scheme == "file" and path.exists() else INDEXED


def _texts(name: str, package: str) -> dict[str, str]:
    kept = resources.files("interlock.cli") / "scaffold"
    return {
        path.format(package=package): (kept / source)
        .read_text(encoding="utf-8")
        .replace("@NAME@", name)
        .replace("@PACKAGE@", package)
        for source, path in FILES.items()
    }


def _refuse_used(folder: Path) -> None:
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise UnusableFile(f"{folder} cannot be looked at: {error.strerror or error}.") from error
    if used:
        raise BadUsage(
            f"{folder} is there already, and is not an empty folder.",
            why="A project is made in a place of its own, and nothing is overwritten.",
            fix="Choose another name, or another place with --directory.",
        )
