"""Shell completion of the states and events of a machine that is already on the line.

It imports the user's module, as the command itself would. An error there completes to nothing: a completion must not
print.
"""

import contextlib
import io

import typer

from interlock.cli.homes import several_machines
from interlock.runtime.bound import Bound


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    """Return the states of the machine on the line."""
    return _fitting([name for bound in _bound(context) for name in _names(bound)], incomplete)


def complete_event(context: typer.Context, incomplete: str) -> list[str]:
    """Return the events of the machine on the line."""
    return _fitting([name for bound in _bound(context) for name in bound.table.events], incomplete)


def _names(bound: Bound) -> list[str]:
    return [node.name for node in bound.table.nodes.values()]


def _fitting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.lower().startswith(incomplete.lower())]


def _bound(context: typer.Context) -> list[Bound]:
    # After an option without its value, the parser has not assigned the words yet.
    words: list[object] = [context.params.get("target"), *context.args]
    target = next((word for word in words if isinstance(word, str) and ":" in word), None)
    if target is None:
        return []
    silent = io.StringIO()
    with contextlib.suppress(Exception), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        return [Bound(machine) for machine in several_machines(target)]
    return []
