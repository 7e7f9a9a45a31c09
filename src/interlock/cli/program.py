"""The program `interlock`: its table of commands, its defaults, and its handling of errors.

Only the module of the running command is imported: most of a short command's time would otherwise go into unused
modules. Help lists the other commands by the line in the table here. The invariant: wrong input of the user ends with
three readable parts and a fixed exit code, and only an unexpected error ends with a traceback.
"""

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Annotated, Protocol, cast

import typer

from interlock.cli.console import Exit, exit_for, show_error, show_raw, stderr, tolerate_narrow_encodings
from interlock.errors import InterlockError, InternalError
from interlock.settings import PROGRAM, configured_program

# --- Commands --------------------------------------------------------------------------------------------------------
# The help line of a command is the first paragraph of its own help, which a test compares.


COMMANDS = {
    "interlock.cli.demo.command:demo": (
        "Walk thousands of orders through a bad day, kill the worker in the middle, and lose nothing.",
        "demo --orders 20000 --seed 7 --output demo.svg",
    ),
    "interlock.cli.new:new": (
        "Make a project: a machine with steps and undos, its tests, an App, and two commands that work.",
        "new my-shop && cd my-shop && make test",
    ),
    "interlock.cli.serve:serve": (
        "Serve machines over HTTP, and run their steps, until Ctrl-C.",
        "serve shop.orders:app --home lanes:///var/shop --port 8080",
    ),
    "interlock.cli.serve:worker": (
        "Run the steps, timers, undos and effects of machines, without HTTP, until Ctrl-C.",
        "worker shop.orders:app --home postgresql://shop@db.internal/shop",
    ),
    "interlock.cli.machines:check": (
        "Check machines: what keeps them from being used, and what is worth a look.",
        "check shop.orders:order shop.returns --severity warning",
    ),
    "interlock.cli.machines:diagram": (
        "Draw a machine as Mermaid, Graphviz, SVG or Markdown tables.",
        "diagram shop.orders:order --format svg --output order.svg",
    ),
    "interlock.cli.machines:describe": (
        "Print a machine as JSON, to keep beside a release and compare later with `interlock plan`.",
        "describe shop.orders:order --output releases/order-1.json",
    ),
    "interlock.cli.machines:plan": (
        "Say what happens to stored workflows when the machine OLD becomes the machine NEW.",
        "plan releases/order-1.json shop.orders:order --rename packed=ready",
    ),
    "interlock.cli.databases:databases": (
        "List the databases of a home: where each of them lives, and what is moving. Changes nothing.",
        "databases --home lanes:///var/shop",
    ),
    "interlock.cli.databases:doctor": (
        "Look at a lane: is it whole, who owns it, what stands in its way. Changes nothing.",
        "doctor lanes:///var/shop/stock -o json",
    ),
    "interlock.cli.databases:backup": (
        "Copy a database into a local file: one instant of it, with everything that was acknowledged before.",
        "backup lanes:///var/shop/stock stock-copy.lane",
    ),
    "interlock.cli.databases:restore": (
        "Restore a database in a bucket, as it was at one place of its log, into a local file; or put a copy back.",
        "restore s3://backups/shop/stock --at 4711 stock.lane",
    ),
    "interlock.cli.workflows:start": (
        "Start a workflow. The same id with the same context again is the one that exists.",
        "start shop.orders:order o-1 '{\"cents\": 999}' --home lanes:///var/shop",
    ),
    "interlock.cli.workflows:send": (
        "Send an event to a workflow; it is durable when the command ends.",
        "send shop.orders:order o-1 CANCEL --key click-7 --home lanes:///var/shop",
    ),
    "interlock.cli.workflows:show": (
        "Show a workflow: its state, its context, its version, and what it waits for. Changes nothing.",
        "show shop.orders:order o-1 --home lanes:///var/shop",
    ),
    "interlock.cli.workflows:history": (
        "Show everything that happened to a workflow, in the order it happened. Changes nothing.",
        "history o-1 -o json --home lanes:///var/shop",
    ),
    "interlock.cli.workflows:find": (
        "List the workflows of a machine, page by page. Changes nothing.",
        "find shop.orders:order --state charging -o ids --home lanes:///var/shop",
    ),
    "interlock.cli.workflows:stalled": (
        "List the workflows that have been in their state for too long, the longest first. Changes nothing.",
        "stalled shop.orders:order --older-than 2h --home lanes:///var/shop",
    ),
    "interlock.cli.workflows:allowed": (
        "List the events that have a transition from where a workflow stands. Changes nothing.",
        "allowed shop.orders:order o-1 CANCEL --home lanes:///var/shop",
    ),
    "interlock.cli.operator_commands:compensations": (
        "List the undos that are owed: pending, being tried, or given up. Changes nothing.",
        "compensations shop.orders --home lanes:///var/shop",
    ),
    "interlock.cli.operator_commands:dead_letters": (
        "What gave up and waits for a person: list it, have it tried again, or say that it is dealt with.",
    ),
    "interlock.cli.operator_commands:breakers": (
        "List the breakers of dependencies: as engines last noted them, or as a server has them; or hold one.",
        "breakers -o json --home postgresql://shop@db.internal/shop",
    ),
    "interlock.cli.databases:hot": (
        "List the rows and workflows that writers wait for each other on, worst first. Changes nothing.",
        "hot lanes:///var/shop --limit 5",
    ),
    "interlock.cli.advise:advise": (
        "Say where workloads should live: verdict, evidence, the command to run. Changes nothing without --apply.",
        "advise --evidence windows.json --tool shop.tools:stock",
    ),
    "interlock.cli.route:route": (
        (
            "Move a database, or workflows, to another place while they are used: copied, caught up with, "
            "compared, switched."
        ),
        "route stock --to postgresql://shop@db.internal/shop?schema=stock --home lanes:///var/shop --dry-run",
    ),
    "interlock.cli.operator_commands:prune": (
        "Remove workflows that ended some time ago: the workflow, its history, its effects and letters.",
        "prune --older-than 30d --dry-run --home postgresql://shop@db.internal/shop",
    ),
    "interlock.cli.databases:migrate": (
        "Apply the migrations that a store in PostgreSQL has not seen yet, all or none.",
        "migrate postgresql://shop@db.internal/shop --dry-run",
    ),
    "interlock.cli.keys:keys": (
        "API keys of a server: make one, list them, revoke one. A running server takes notice within a second.",
    ),
    "interlock.cli.keys:audit": (
        (
            "Show what operators did, the newest first: who, what, when; before and after are in the JSON. "
            "Changes nothing."
        ),
        "audit --limit 20 --home lanes:///var/shop",
    ),
    "interlock.cli.bench:bench": ("Run an experiment on this machine and this disk, with a table, JSON and a plot.",),
    "interlock.cli.chaos:chaos": (
        "Break everything around running orders, and check that what was promised is kept.",
        "chaos --only kill-postgres --only freeze-worker --seconds 5",
    ),
    "interlock.cli.simulate:simulate": ("Tell stories in which everything goes wrong, and check each of them.",),
}
"""MODULE:FUNCTION with the help line and an example; or MODULE:TYPER, whose commands have examples of their own."""


def command_name(path: str) -> str:
    """Return the name of a command on the command line."""
    return path.rpartition(":")[2].replace("_", "-")


def add_command(program: typer.Typer, path: str, *, loaded: bool) -> None:
    """Add the command and import its module; or, when another one runs, add only its name and help line."""
    name, (summary, *examples) = command_name(path), COMMANDS[path]
    epilog = f"Example: interlock {examples[0]}" if examples else None
    if not loaded:
        program.command(name, help=summary, epilog=epilog)(_unloaded_command)
        return
    module, _, attribute = path.partition(":")
    found: object = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        program.add_typer(found, name=name)
    else:
        program.command(name, epilog=epilog)(cast("Callable[..., None]", found))


def _unloaded_command() -> None:
    raise InternalError("A command was run that the program had not loaded.")


# --- Defaults from `interlock.toml` ----------------------------------------------------------------------------------
# The parser takes defaults by the names of commands, and the file has settings by the names of options, so each
# setting is given to every command with such an option. A command without one does not read the file.


class _Parameter(Protocol):
    name: str | None


class _Command(Protocol):
    params: list[_Parameter]


def defaults_for(program: object, invoked: str | None) -> dict[str, object]:
    """Return the defaults for one command of the program, or for all commands of one group."""
    command = _commands(program).get(invoked or "")
    if invoked is None or command is None or not _reads_settings(command):
        return {}
    found = configured_program()
    below = _commands(command)
    return {invoked: dict.fromkeys(below, found) if below else found}


def _reads_settings(command: object) -> bool:
    below = _commands(command)
    if below:
        return any(map(_reads_settings, below.values()))
    return any(parameter.name in PROGRAM for parameter in cast("_Command", command).params)


def _commands(group: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", getattr(group, "commands", {}))


# --- Program ---------------------------------------------------------------------------------------------------------

_EXITS = (
    "Exit codes: 0 ok, 1 error, 2 usage, 3 refused, 4 not found, 5 unavailable, 130 interrupted. "
    "Machines are named as in an import statement: shop.orders:order is `from shop.orders import order`."
)
COMPLETING = "_INTERLOCK_COMPLETE"
"""Set by the shell when it asks for completions."""


def program_for(wanted: str | None = None) -> typer.Typer:
    """Build the program with the wanted command, and only the names of the others; without a name, with all."""
    app = typer.Typer(
        name="interlock",
        help="Interlock: durable state-machine workflows. Check and draw machines; start, move and watch workflows.",
        epilog=_EXITS,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_options)
    for path in COMMANDS:
        add_command(app, path, loaded=wanted in {None, command_name(path)})
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (`sys.argv` without one) and return its exit code."""
    tolerate_narrow_encodings()
    interrupted_by = _interrupt_setter(alone=arguments is None)
    code: int = Exit.OK
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        program_for(_command_name(words, os.environ))(args=words, prog_name="interlock")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else Exit.OK if left.code is None else Exit.ERROR
    except KeyboardInterrupt:
        interrupted_by(signal.SIG_IGN)  # The words below are said to the end, however often it is pressed.
        code = Exit.INTERRUPTED
    except InterlockError as error:
        if isinstance(error, InternalError):
            # A bug of ours asks to be reported with its traceback.
            traceback.print_exception(error, file=sys.stderr)
        show_error(error)
        code = exit_for(error)
    if code == Exit.INTERRUPTED:
        stderr().print("Interrupted.")
    interrupted_by(signal.SIG_DFL)  # All is cleaned up: a thread that will not end is ended without a traceback.
    return int(code)


def _interrupt_setter(*, alone: bool) -> Callable[[signal.Handlers], object]:
    """Return a function that sets the handler of Ctrl-C. It does nothing in another program, or if it is ignored."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if alone and raises and threading.current_thread() is threading.main_thread():
        return partial(signal.signal, signal.SIGINT)
    return lambda _: None


def _command_name(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the name of the command: the first word that is not an option. No option of the program takes a value.

    A shell that asks for completions has the line in the environment instead.
    """
    line = environment.get("_TYPER_COMPLETE_ARGS") or environment.get("COMP_WORDS")
    if COMPLETING in environment and line is not None:
        words = line.split()[1:]
    return next((word for word in words if not word.startswith("-")), "")


def _show_version(wanted: bool) -> None:  # noqa: FBT001 -- typer calls it with the value of the flag.
    if not wanted:
        return
    try:
        show_raw(f"interlock {metadata.version('interlock')}")
    except metadata.PackageNotFoundError:
        show_raw("interlock (run from its source, not installed)")
    raise typer.Exit(Exit.OK)


def _options(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold the options of the program itself, and take missing options from `interlock.toml`."""
    del version
    context.default_map = defaults_for(context.command, context.invoked_subcommand)
