"""Changes to one table of `interlock.toml`; the rest of the file keeps its text.

The file has a user's comments and order, so it is changed line by line. The new text is parsed before it replaces the
old one, and must contain exactly the requested change. A file in a form that this does not understand (a table inside
of braces, a text over several lines) is left unchanged; the error has the lines to add by hand.
"""

import contextlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from interlock.catalog.configuration import FILE, FILE_VARIABLE
from interlock.errors import UnusableFile

Setting = bool | int | float | str


class Table(NamedTuple):
    """A table of the file, such as `[tools.views]`."""

    section: str
    name: str

    def __str__(self) -> str:
        return f"[{self.section}.{_key(self.name)}]"


def settings_file(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Path:
    """Return the path of the settings: the file that the environment names, or the one of this folder."""
    named = (os.environ if environment is None else environment).get(FILE_VARIABLE)
    return (Path(named) if named else (folder or Path()) / FILE).absolute()


def settings_in(path: Path, table: Table) -> dict[str, Setting]:
    """Return the settings in one table of a file. Raises UnusableFile."""
    return cast("dict[str, Setting]", dict(_table_of(_meaning(path, _read(path)), table)))


def change_settings(path: Path, table: Table, changes: Mapping[str, Setting | None]) -> None:
    """Set these values, and remove those that are None, durably and atomically. Raises UnusableFile."""
    text = _read(path)
    changed = _verified(path, text, table, changes)
    if changed != text:
        _replace(path, changed)


def with_settings(text: str, table: Table, changes: Mapping[str, Setting | None]) -> str:
    """Return the text with the changes, if its form is understood; the caller verifies the result."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline)
    start = next((at for at, line in enumerate(lines) if _header(line) == [table.section, table.name]), None)
    if start is None:
        added = [f"{name} = {shown(value)}" for name, value in changes.items() if value is not None]
        if not added:
            return text
        before = [] if not text.strip() else [text.rstrip("\r\n"), ""]
        return newline.join([*before, str(table), *added, ""])
    end = next((at for at in range(start + 1, len(lines)) if _header(lines[at]) is not None), len(lines))
    body = lines[start + 1 : end]
    for name, value in changes.items():
        body = _changed(body, name, value)
    head = lines[: start + 1]
    if not any(line.strip() for line in body):
        # Nothing is left in it: the table goes too, with the blank line that was put in front of it.
        head, body = lines[:start], []
        while end == len(lines) and head and not head[-1].strip():
            head.pop()
        body = [""] if end == len(lines) and head else []
    return newline.join([*head, *body, *lines[end:]])


def shown(value: Setting) -> str:
    """Return a value as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _changed(body: list[str], name: str, value: Setting | None) -> list[str]:
    line = re.compile(
        rf"""^(\s*(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')\s*=\s*)([^#]*?)(\s*(?:#.*)?)$"""
    )
    for at, text in enumerate(body):
        if found := line.match(text):
            new = [] if value is None else [f"{found[1]}{shown(value)}{found[3]}"]
            return [*body[:at], *new, *body[at + 1 :]]
    if value is None:
        return body
    last = max((at for at, text in enumerate(body) if text.strip() and not text.lstrip().startswith("#")), default=-1)
    return [*body[: last + 1], f"{name} = {shown(value)}", *body[last + 1 :]]


def _header(line: str) -> list[str] | None:
    """Return the names in the header of a table; None for any other line."""
    if not line.lstrip().startswith("["):
        return None
    try:
        found: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    names: list[str] = []
    while isinstance(found, dict) and found:
        [(name, found)] = cast("dict[str, object]", found).items()
        names.append(name)
    return names


def _verified(path: Path, text: str, table: Table, changes: Mapping[str, Setting | None]) -> str:
    wanted = _meaning(path, text)
    section = cast("dict[str, dict[str, object]]", wanted.setdefault(table.section, {}))
    inside = section.setdefault(table.name, {})
    for name, value in changes.items():
        if value is None:
            inside.pop(name, None)
        else:
            inside[name] = value
    changed = with_settings(text, table, changes)
    with contextlib.suppress(tomllib.TOMLDecodeError):
        if _without_empty(tomllib.loads(changed), table) == _without_empty(wanted, table):
            return changed
    lines = "\n".join(f"  {name} = {shown(value)}" for name, value in changes.items() if value is not None)
    raise UnusableFile(
        f"{path} was left alone: {table} of it is written in a way that is only changed by hand.",
        why="It is changed line by line, so that comments stay, and the change would have been another one.",
        fix=f"Have these below {table}:\n{lines}" if lines else f"Take {', '.join(changes)} out of {table}.",
    )


def _without_empty(content: dict[str, object], table: Table) -> dict[str, object]:
    """The content without the table if nothing is in it, and without its section if that was all."""
    section = dict(cast("dict[str, object]", content.get(table.section, {})))
    if not section.get(table.name):
        section.pop(table.name, None)
    rest = {name: value for name, value in content.items() if name != table.section}
    return {**rest, table.section: section} if section else rest


def _table_of(content: dict[str, object], table: Table) -> dict[str, object]:
    section = cast("dict[str, dict[str, object]]", content.get(table.section, {}))
    return section.get(table.name, {})


def _meaning(path: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnusableFile(f"{path} cannot be read: {error}.", why="It has to be TOML.", fix="Correct it.") from error


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFile(f"{path} cannot be read: {error}.") from error


def _replace(path: Path, text: str) -> None:
    path = path.resolve()  # What is replaced is the file, not a link to it.
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UnusableFile(f"{path} cannot be written: {error.strerror or error}.") from error


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
