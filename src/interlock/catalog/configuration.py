"""Settings from outside the program: the environment first, then `interlock.toml` (D16).

    [defaults]
    group_commit_window = 0.002

    [databases.stock]
    group_commit_max_batch = 500

What the program itself says wins over both. `INTERLOCK_GROUP_COMMIT_WINDOW` in the environment is the setting
`group_commit_window` of every database. A name that no setting has is refused with the one that was probably meant.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from interlock.errors import BadUsage

FILE = "interlock.toml"
FILE_VARIABLE = "INTERLOCK_CONFIG"


def configured(
    name: str | None, known: Iterable[str], *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> dict[str, float]:
    """The settings for a database from the environment and the file; `known` are the names a setting may have."""
    names = tuple(known)
    environment = os.environ if environment is None else environment
    found = dict(_from_file(environment.get(FILE_VARIABLE), folder or Path.cwd(), name, names))
    for setting in names:
        text = environment.get(f"INTERLOCK_{setting.upper()}")
        if text is not None:
            found[setting] = _number(text, f"INTERLOCK_{setting.upper()}")
    return found


def _from_file(given: str | None, folder: Path, name: str | None, names: tuple[str, ...]) -> dict[str, float]:
    path = Path(given) if given else folder / FILE
    if not path.exists():
        if given:
            raise BadUsage(f"{FILE_VARIABLE} names {given}, which does not exist.", fix="Correct or unset it.")
        return {}
    try:
        content: dict[str, object] = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadUsage(f"{path} cannot be read: {error}.", why="It is TOML.", fix="Correct the line.") from error
    databases = _table(content.get("databases", {}), path, "databases")
    found: dict[str, float] = {}
    for part, table in (
        ("defaults", content.get("defaults", {})),
        (f"databases.{name}", databases.get(name or "", {})),
    ):
        for setting, value in _table(table, path, part).items():
            if setting not in names:
                close = difflib.get_close_matches(setting, names, n=1)
                hint = f" Did you mean {close[0]}?" if close else ""
                raise BadUsage(
                    f"{path}: [{part}] has no setting {setting!r}.{hint}",
                    why="A setting that nobody reads is a spelling mistake.",
                    fix=f"Settings are {', '.join(names)}.",
                )
            found[setting] = _number(value, f"{path}: [{part}] {setting}")
    return found


def _table(value: object, path: Path, part: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadUsage(f"{path}: [{part}] is not a table.", fix=f"Write [{part}] and settings below it.")
    return cast("dict[str, object]", value)


def _number(value: object, where: str) -> float:
    if isinstance(value, str):
        try:
            return int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            pass
    elif isinstance(value, int | float):
        return value
    raise BadUsage(f"{where} is {value!r}; it must be a number.", fix="Write a number.")
