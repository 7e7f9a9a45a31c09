"""Completion of what a machine has: its states and its events, when the machine is already on the line.

It imports the user's module, as the command itself would. Whatever goes wrong there completes to nothing: a shell that
completes must not print.
"""

import contextlib
import io

import typer

from interlock.cli.homes import several_machines
from interlock.runtime.bound import Bound


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    """The states of the machine that is named before."""
    return _fitting([name for bound in _bound(context) for name in _names(bound)], incomplete)


def complete_event(context: typer.Context, incomplete: str) -> list[str]:
    """The events of the machine that is named before."""
    return _fitting([name for bound in _bound(context) for name in bound.table.events], incomplete)


def _names(bound: Bound) -> list[str]:
    return [node.name for node in bound.table.nodes.values()]


def _fitting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.lower().startswith(incomplete.lower())]


def _bound(context: typer.Context) -> list[Bound]:
    # Behind an option without its value, the parser has not yet said which word is which.
    words: list[object] = [context.params.get("target"), *context.args]
    target = next((word for word in words if isinstance(word, str) and ":" in word), None)
    if target is None:
        return []
    silent = io.StringIO()
    with contextlib.suppress(Exception), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        return [Bound(machine) for machine in several_machines(target)]
    return []
