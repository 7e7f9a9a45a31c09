"""Settings from outside the program: the environment first, then `interlock.toml` (D16).

    [defaults]
    group_commit_window = 0.002

    [databases.stock]
    group_commit_max_batch = 500

    [tools.views]
    write_latency_budget = 0.05
    counter_shard_count = 32

    [engine]
    steps_max = 200

Above all sections stand the settings of the program `interlock` itself, by the names of its options: `home`, `port`.

A tool is a workload with what it needs; its knobs are those of the database that has its name, whose own table comes
first. What the program itself says wins over all of it. `INTERLOCK_GROUP_COMMIT_WINDOW` in the environment is the
setting `group_commit_window` of every database. A name that no setting has is refused with the one that was probably
meant, in every table of the file, of whichever database: a mistake is best found at the first start. The environment
belongs to others too, so there only a near miss is refused. `change_settings` changes one table of the file.
"""

import contextlib
import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from interlock.core.decide import suggestion
from interlock.errors import BadUsage, DefinitionError, UnusableFile
from interlock.lanes.lane_settings import KINDS, LaneSettings
from interlock.urls import SWITCH, resolve_url

FILE = "interlock.toml"
FILE_VARIABLE = "INTERLOCK_CONFIG"
PREFIX = "INTERLOCK_"
SECTIONS = ("defaults", "databases", "tools", "engine")
PROGRAM: dict[str, type[object]] = {
    "home": str,
    "postgres": str,
    "redis": str,
    "server": str,
    "key_file": str,
    "host": str,
    "port": int,
    "workers": int,
    "leave_s": float,
    "rate_per_s": float,
    "burst": float,
    "in_flight_max": int,
}
"""Settings of the program, above all sections, by the names of its options."""

NEAR_MISS = 0.85
"""Similarity from which a variable counts as a misspelt setting; 1 is equal."""

DECLARATIONS: dict[str, type[float]] = {
    "write_latency_budget": float,
    "aggregate_write_rate": float,
    "latency_critical": bool,
    "shardable": bool,
}
"""Declarations of a tool."""

KNOBS: dict[str, type[float]] = {
    "counter_shard_count": int,
    "counter_kind": str,  # type: ignore[dict-item]  # The one word among numbers.
    "group_commit_window": float,
    "group_commit_max_batch": int,
    "contention_flag_threshold": float,
    "contention_flag_wait_s": float,
    "db_per_write_stream": bool,
}
"""Settings of a tool."""

_MISSPELT = "An unknown setting is a spelling mistake."
_ALLOWED: dict[type[object], str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def configured(
    name: str | None,
    kinds: Mapping[str, type[float]],
    *,
    tool: str | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> dict[str, float]:
    """Return the settings for a database from the environment and the file; `kinds` has every setting and its type.

    `tool` is the name of the tool that it belongs to, unless that is its own.
    """
    environment, path, content = _load_file(environment, folder)
    file = _checked_file(path, content, kinds)
    chosen = {**file.defaults, **file.tools.get(tool or name or "", {}), **file.databases.get(name or "", {})}
    return _with_environment(environment, kinds, chosen)


def configured_tool(
    name: str, *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> dict[str, float]:
    """Return the declarations and knobs of a tool, from the environment and the file."""
    environment, path, content = _load_file(environment, folder)
    file = _checked_file(path, content, KINDS)
    return _with_environment(environment, {**DECLARATIONS, **KNOBS}, {**file.defaults, **file.tools.get(name, {})})


def configured_engine(kinds: Mapping[str, type[float]]) -> dict[str, float]:
    """Return the settings for engines from the environment and section [engine] of the file."""
    environment, path, content = _load_file(None, None)
    return _with_environment(environment, kinds, _settings(content.get("engine", {}), path, "engine", kinds))


def configured_program(
    *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> dict[str, object]:
    """Return the settings of the program from the file, above all sections. The program reads the environment itself.

    A home with a relative path, `lanes://./data`, is beside the file, so that a project can be moved as a whole.
    """
    _, path, content = _load_file(environment, folder)
    chosen: dict[str, object] = {}
    for name, value in content.items():
        if name in PROGRAM:
            _check_kind(value, PROGRAM[name], f"{path}: {name}")
            chosen[name] = value
        elif name not in SECTIONS:
            raise _unknown_section(path, name, {**KINDS, **KNOBS, **DECLARATIONS})
    if "home" in chosen:
        chosen["home"] = resolve_url(str(chosen["home"]), path.absolute().parent)
    return chosen


def _with_environment(
    environment: Mapping[str, str], kinds: Mapping[str, type[float]], chosen: Mapping[str, float]
) -> dict[str, float]:
    """Return those of the chosen settings that have a kind, with those of the environment."""
    settings = {setting: value for setting, value in chosen.items() if setting in kinds}
    for variable, text in environment.items():
        setting = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        if variable == PREFIX + setting.upper() and setting in kinds:
            kind = kinds[setting]
            try:
                settings[setting] = SWITCH[text.strip().lower()] if kind is bool else kind(text)
            except (KeyError, ValueError):
                allowed = ", ".join(SWITCH) if kind is bool else _ALLOWED[kind]
                raise _bad_value(text, variable, allowed) from None
        elif close := difflib.get_close_matches(setting, kinds, n=1, cutoff=NEAR_MISS):
            raise BadUsage(
                f"the environment has {variable}, which no setting is called. Did you mean {PREFIX}{close[0].upper()}?",
                why=_MISSPELT,
                fix="Correct or unset it.",
            )
    return settings


def lane_settings(chosen: Mapping[str, float]) -> LaneSettings:
    """Return the settings of a lane. Raises DefinitionError for an unknown name."""
    unknown = sorted(set(chosen) - set(KINDS))
    if unknown:
        raise DefinitionError(
            f"a database has no setting {unknown[0]!r}.{suggestion(unknown[0], KINDS)}",
            why=_MISSPELT,
            fix=f"Settings are {', '.join(KINDS)}.",
            rule="unknown-setting",
        )
    return LaneSettings(**chosen)  # type: ignore[arg-type]  # Checked by LaneSettings itself.


class _File(NamedTuple):
    defaults: dict[str, float]
    databases: dict[str, dict[str, float]]
    tools: dict[str, dict[str, float]]


def _checked_file(path: Path, content: Mapping[str, object], kinds: Mapping[str, type[float]]) -> _File:
    of_databases = {**kinds, **KNOBS}
    of_all = {**of_databases, **DECLARATIONS}
    for section in content:
        if section not in SECTIONS and section not in PROGRAM:
            raise _unknown_section(path, section, of_all)

    def tables(section: str, kinds: Mapping[str, type[float]]) -> dict[str, dict[str, float]]:
        content_of = _table(content.get(section, {}), path, section)
        return {name: _settings(table, path, f"{section}.{name}", kinds) for name, table in content_of.items()}

    defaults = _settings(content.get("defaults", {}), path, "defaults", of_all)
    return _File(defaults, tables("databases", of_databases), tables("tools", {**DECLARATIONS, **KNOBS}))


def _load_file(
    environment: Mapping[str, str] | None, folder: Path | None
) -> tuple[Mapping[str, str], Path, dict[str, object]]:
    """Return the environment, the path of the file and its content; empty for a file that is not there."""
    environment = os.environ if environment is None else environment
    path = _path(environment, folder)
    try:
        return environment, path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not environment.get(FILE_VARIABLE):
            return environment, path, {}
        raise BadUsage(
            f"{FILE_VARIABLE} names {environment[FILE_VARIABLE]}, which does not exist.",
            why="A file of settings that is asked for and not there would leave every setting at its default.",
            fix="Correct or unset it.",
        ) from None
    except OSError as error:
        raise BadUsage(
            f"{path} cannot be read: {error.strerror}.",
            why="It may hold settings, and going on without them would be a guess.",
            fix=f"Make it a readable file, remove it, or name another one in {FILE_VARIABLE}.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadUsage(
            f"{path} cannot be read: {error}.", why="It has to be TOML, in UTF-8.", fix="Correct the line."
        ) from error


def _path(environment: Mapping[str, str], folder: Path | None) -> Path:
    named = environment.get(FILE_VARIABLE)
    return Path(named) if named else (folder or Path()) / FILE


def _unknown_section(path: Path, section: str, kinds: Mapping[str, type[float]]) -> BadUsage:
    if section in kinds:
        return BadUsage(
            f"{path}: {section} stands outside a section.",
            why="A setting belongs to one database or to all of them, and the section says which.",
            fix="Put it below [defaults] for every database, or below [databases.NAME] or [tools.NAME] for one.",
        )
    return BadUsage(
        f"{path} has no section {section!r}.{suggestion(section, (*SECTIONS, *PROGRAM, *kinds))}",
        why=_MISSPELT,
        fix="Sections are [defaults], [databases.NAME], [tools.NAME] and [engine]; above them stand the settings of "
        f"the program: {', '.join(PROGRAM)}.",
    )


def _settings(table: object, path: Path, part: str, kinds: Mapping[str, type[float]]) -> dict[str, float]:
    chosen: dict[str, float] = {}
    for setting, value in _table(table, path, part).items():
        if setting not in kinds:
            elsewhere = " The others of a database stand below [databases.NAME]." * part.startswith("tools.")
            raise BadUsage(
                f"{path}: [{part}] has no setting {setting!r}.{suggestion(setting, kinds)}",
                why=_MISSPELT,
                fix=f"Settings are {', '.join(kinds)}.{elsewhere}",
            )
        _check_kind(value, kinds[setting], f"{path}: [{part}] {setting}")
        chosen[setting] = cast("float", value)
    return chosen


def _check_kind(value: object, kind: type[object], where: str) -> None:
    # A whole number is a number; no other kind is converted, and true is not 1.
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise _bad_value(value, where, _ALLOWED[kind])


def _table(value: object, path: Path, part: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadUsage(
            f"{path}: {part} is {value!r}, not a table.",
            why="Settings stand below the section they belong to.",
            fix=f"Write [{part}] on a line of its own, and the settings below it.",
        )
    return cast("dict[str, object]", value)


def _bad_value(value: object, where: str, allowed: str) -> BadUsage:
    allowed = f"one of {allowed}" if "," in allowed else allowed
    why = "A value that is not understood would leave the setting at its default."
    return BadUsage(f"{where} is {value!r}; it must be {allowed}.", why=why, fix=f"Write {allowed}.")


# --- Changes to the file ---------------------------------------------------------------------------------------------
# One table changes; the rest of the file keeps its text. The file has a user's comments and order, so it is changed
# line by line. The new text is parsed before it replaces the old one, and must contain exactly the requested change. A
# file in a form that this does not understand (a table inside of braces, a text over several lines) is left unchanged;
# the error has the lines to add by hand.

Setting = bool | int | float | str


class SettingsTable(NamedTuple):
    """A table of the file, such as `[tools.views]`."""

    section: str
    name: str

    def __str__(self) -> str:
        plain = re.fullmatch(r"[A-Za-z0-9_-]+", self.name)
        return f"[{self.section}.{self.name if plain else json.dumps(self.name, ensure_ascii=False)}]"


def settings_file(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Path:
    """Return the path of the settings: the file that the environment names, or the one of this folder."""
    return _path(os.environ if environment is None else environment, folder).absolute()


def settings_in(path: Path, table: SettingsTable) -> dict[str, Setting]:
    """Return the settings in one table of a file. Raises UnusableFile."""
    section = cast("dict[str, dict[str, Setting]]", _parse(path, _read_text(path)).get(table.section, {}))
    return dict(section.get(table.name, {}))


def change_settings(path: Path, table: SettingsTable, changes: Mapping[str, Setting | None]) -> None:
    """Set these values, and remove those that are None, durably and atomically. Raises UnusableFile."""
    text = _read_text(path)
    changed = _checked_change(path, text, table, changes)
    if changed != text:
        _replace_file(path, changed)


def with_settings(text: str, table: SettingsTable, changes: Mapping[str, Setting | None]) -> str:
    """Return the text with the changes, if its form is understood; the caller verifies the result."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(newline)
    start = next((at for at, line in enumerate(lines) if _header(line) == [table.section, table.name]), None)
    if start is None:
        added = [f"{name} = {toml_text(value)}" for name, value in changes.items() if value is not None]
        if not added:
            return text
        before = [] if not text.strip() else [text.rstrip("\r\n"), ""]
        return newline.join([*before, str(table), *added, ""])
    end = next((at for at in range(start + 1, len(lines)) if _header(lines[at]) is not None), len(lines))
    body = lines[start + 1 : end]
    for name, value in changes.items():
        body = _change_line(body, name, value)
    head = lines[: start + 1]
    if not any(line.strip() for line in body):
        # Nothing is left in it: the table goes too, with the blank line that was put in front of it.
        head, body = lines[:start], []
        while end == len(lines) and head and not head[-1].strip():
            head.pop()
        body = [""] if end == len(lines) and head else []
    return newline.join([*head, *body, *lines[end:]])


def toml_text(value: Setting) -> str:
    """Return a value as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _change_line(body: list[str], name: str, value: Setting | None) -> list[str]:
    line = re.compile(
        rf"""^(\s*(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')\s*=\s*)([^#]*?)(\s*(?:#.*)?)$"""
    )
    for at, text in enumerate(body):
        if found := line.match(text):
            new = [] if value is None else [f"{found[1]}{toml_text(value)}{found[3]}"]
            return [*body[:at], *new, *body[at + 1 :]]
    if value is None:
        return body
    last = max((at for at, text in enumerate(body) if text.strip() and not text.lstrip().startswith("#")), default=-1)
    return [*body[: last + 1], f"{name} = {toml_text(value)}", *body[last + 1 :]]


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


def _checked_change(path: Path, text: str, table: SettingsTable, changes: Mapping[str, Setting | None]) -> str:
    wanted = _parse(path, text)
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
    lines = "\n".join(f"  {name} = {toml_text(value)}" for name, value in changes.items() if value is not None)
    raise UnusableFile(
        f"{path} was left alone: {table} of it is written in a way that is only changed by hand.",
        why="It is changed line by line, so that comments stay, and the change would have been another one.",
        fix=f"Have these below {table}:\n{lines}" if lines else f"Take {', '.join(changes)} out of {table}.",
    )


def _without_empty(content: dict[str, object], table: SettingsTable) -> dict[str, object]:
    """Return the content without the table if nothing is in it, and without its section if that was all."""
    section = dict(cast("dict[str, object]", content.get(table.section, {})))
    if not section.get(table.name):
        section.pop(table.name, None)
    rest = {name: value for name, value in content.items() if name != table.section}
    return {**rest, table.section: section} if section else rest


def _parse(path: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnusableFile(f"{path} cannot be read: {error}.", why="It has to be TOML.", fix="Correct it.") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableFile(f"{path} cannot be read: {error}.") from error


def _replace_file(path: Path, text: str) -> None:
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
