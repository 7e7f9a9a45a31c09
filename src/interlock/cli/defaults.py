"""Defaults of options from `interlock.toml`, below the command line and the environment.

The parser takes defaults by the names of commands, and the file has settings by the names of options, so each setting
is given to every command with such an option. A command without one does not read the file.
"""

from collections.abc import Mapping
from typing import Protocol, cast

from interlock.catalog.configuration import PROGRAM, configured_program


class _Parameter(Protocol):
    name: str | None


class _Command(Protocol):
    params: list[_Parameter]


def defaults_for(program: object, invoked: str | None) -> dict[str, object]:
    """Return the defaults for one command of the program, or for all commands of one group."""
    command = _commands(program).get(invoked or "")
    if invoked is None or command is None or not _wants(command):
        return {}
    found = configured_program()
    below = _commands(command)
    return {invoked: dict.fromkeys(below, found) if below else found}


def _wants(command: object) -> bool:
    below = _commands(command)
    if below:
        return any(map(_wants, below.values()))
    return any(parameter.name in PROGRAM for parameter in cast("_Command", command).params)


def _commands(group: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", getattr(group, "commands", {}))
