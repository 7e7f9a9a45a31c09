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
from typing import Annotated, Final, Protocol, cast

import typer
from typer.core import TyperGroup

from interlock.cli.console import Exit, exit_for, show_error, show_raw, stderr, tolerate_narrow_encodings
from interlock.errors import BadUsage, InterlockError, InternalError
from interlock.settings import PROGRAM, configured_program

# --- Commands --------------------------------------------------------------------------------------------------------
# The help line of a command is the first paragraph of its own help, which a test compares.


PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "Build": {
        "interlock.cli.new:new": (
            "Make a project: a machine with steps and undos, its tests, and an app to serve.",
            "new my-shop && cd my-shop && make test",
        ),
        "interlock.cli.machine_commands:check": (
            "Check machines: errors that prevent their use, warnings and remarks.",
            "check shop.orders:order shop.returns --severity warning",
        ),
        "interlock.cli.machine_commands:diagram": (
            "Draw a machine as Mermaid, Graphviz, SVG or Markdown tables.",
            "diagram shop.orders:order --format svg --file order.svg",
        ),
        "interlock.cli.machine_commands:describe": (
            "Print a machine as JSON, which `interlock plan` compares with a later version.",
            "describe shop.orders:order --file releases/order-1.json",
        ),
        "interlock.cli.machine_commands:plan": (
            "Show what a new version of a machine does to the workflows that are stored.",
            "plan releases/order-1.json shop.orders:order --rename packed=ready",
        ),
    },
    "Run": {
        "interlock.cli.demo.command:demo": (
            "Run thousands of orders through an outage and a kill -9, and verify that nothing is lost.",
            "demo --orders 20000 --seed 7 --plot demo.svg",
        ),
        "interlock.cli.serve:serve": (
            "Serve machines over HTTP, and run their steps, until Ctrl-C.",
            "serve shop.orders:app --home lanes:///var/shop --port 8080",
        ),
        "interlock.cli.serve:worker": (
            "Run the steps, timers, undos and effects of machines, without HTTP, until Ctrl-C.",
            "worker shop.orders:app --home postgresql://shop@db.internal/shop",
        ),
        "interlock.cli.workflow_commands:start": (
            "Start a workflow. Starting it again with the same id and context changes nothing.",
            "start shop.orders:order o-1 '{\"cents\": 999}' --home lanes:///var/shop",
        ),
        "interlock.cli.workflow_commands:send": (
            "Send an event to a workflow; it is durable when the command ends.",
            "send shop.orders:order o-1 CANCEL --key click-7 --home lanes:///var/shop",
        ),
    },
    "Look": {
        "interlock.cli.workflow_commands:show": (
            "Show a workflow: its state, its context, its version, and what it waits for. Changes nothing.",
            "show shop.orders:order o-1 --home lanes:///var/shop",
        ),
        "interlock.cli.workflow_commands:history": (
            "Show everything that happened to a workflow, in the order it happened. Changes nothing.",
            "history o-1 -o json --home lanes:///var/shop",
        ),
        "interlock.cli.workflow_commands:children": (
            "List the workflows that a workflow has started as its children, page by page. Changes nothing.",
            "children o-1 --home lanes:///var/shop",
        ),
        "interlock.cli.explanations:why": (
            "Say in plain words why a workflow is where it is, and what would move it. Changes nothing.",
            "why shop.orders:order o-1 --home lanes:///var/shop",
        ),
        "interlock.cli.explanations:attempts": (
            "List the attempts of a workflow's steps, undos and effects, the oldest first. Changes nothing.",
            "attempts o-1 --home lanes:///var/shop",
        ),
        "interlock.cli.workflow_commands:find": (
            "List the workflows of a machine, or of all, page by page. Changes nothing.",
            "find shop.orders:order --state charging -o ids --home lanes:///var/shop",
        ),
        "interlock.cli.workflow_commands:stalled": (
            "List the workflows that have been in their state for too long, the longest first. Changes nothing.",
            "stalled shop.orders:order --older-than 2h --home lanes:///var/shop",
        ),
        "interlock.cli.workflow_commands:allowed": (
            "List the events that have a transition from a workflow's current state. Changes nothing.",
            "allowed shop.orders:order o-1 CANCEL --home lanes:///var/shop",
        ),
        "interlock.cli.task_commands:tasks": (
            "List the tasks that wait for a person, the most urgent first, page by page. Changes nothing.",
            "tasks shop.orders:order --role finance --home lanes:///var/shop",
        ),
        "interlock.cli.operator_commands:compensations": (
            "List the undos that are owed: pending, being tried, or given up. Changes nothing.",
            "compensations shop.orders --home lanes:///var/shop",
        ),
        "interlock.cli.database_commands:databases": (
            "List the databases of a home: where each of them lives, and what is moving. Changes nothing.",
            "databases --home lanes:///var/shop",
        ),
        "interlock.cli.database_commands:hot": (
            "List hot rows and hot workflows, whose writers wait for each other, worst first. Changes nothing.",
            "hot lanes:///var/shop --limit 5",
        ),
        "interlock.cli.operator_commands:audit": (
            "List what operators did: who, what and when, the newest first. Changes nothing.",
            "audit --limit 20 --home lanes:///var/shop",
        ),
    },
    "Operate": {
        "interlock.cli.explanations:fork": (
            "Start a new workflow in the state and with the context that another one had at a version.",
            "fork shop.orders:order o-1 o-1-again --at 3 --home lanes:///var/shop",
        ),
        "interlock.cli.explanations:rewind": (
            "Set a workflow back to the state and context of an earlier version.",
            "rewind shop.orders:order o-1 --to 3 --dry-run --home lanes:///var/shop",
        ),
        "interlock.cli.operator_commands:dead_letters": (
            "List dead letters: steps, undos and effects that gave up. Retry or resolve them.",
        ),
        "interlock.cli.task_commands:task": (
            "Claim a task for yourself, release it, or show it. List them with `interlock tasks`.",
        ),
        "interlock.cli.schedule_commands:schedules": (
            "List schedules (cron or interval), or put, pause, resume, trigger and delete them.",
        ),
        "interlock.cli.bulk_commands:bulk": (
            "Act on all workflows of a filter: send an event, retry dead letters, pause, resume. List what ran.",
        ),
        "interlock.cli.operator_commands:pause": (
            "Pause a machine, a state or a workflow: nothing begins there. Without one, list the pauses.",
            "pause shop:order --state charging --note 'the bank is down' --home lanes:///var/shop",
        ),
        "interlock.cli.operator_commands:resume": (
            "Resume a machine, a state or a workflow that `interlock pause` has paused.",
            "resume shop:order --state charging --home lanes:///var/shop",
        ),
        "interlock.cli.operator_commands:breakers": (
            "List the circuit breakers of dependencies, or hold one open or closed.",
            "breakers -o json --home postgresql://shop@db.internal/shop",
        ),
        "interlock.cli.operator_commands:prune": (
            "Remove workflows that ended some time ago, with their history, effects and dead letters.",
            "prune --older-than 30d --dry-run --home postgresql://shop@db.internal/shop",
        ),
        "interlock.cli.operator_commands:keys": (
            "List the API keys of a server, make one or revoke one. A running server applies it within a second.",
        ),
        "interlock.cli.database_commands:doctor": (
            "Inspect a lane: whether its file is healthy, and which process owns it. Changes nothing.",
            "doctor lanes:///var/shop/stock -o json",
        ),
        "interlock.cli.database_commands:backup": (
            "Copy a database into a local file: a consistent snapshot with everything that was acknowledged before.",
            "backup lanes:///var/shop/stock stock-copy.lane",
        ),
        "interlock.cli.database_commands:restore": (
            "Restore a database from a bucket at any point of its log, or from a copy.",
            "restore s3://backups/shop/stock --at 4711 stock.lane",
        ),
        "interlock.cli.database_commands:migrate": (
            "Apply the pending migrations of a store in PostgreSQL, all or none.",
            "migrate postgresql://shop@db.internal/shop --dry-run",
        ),
    },
    "Prove": {
        "interlock.cli.bench:bench": (
            "Run an experiment on this machine and this disk, with a table, JSON and a plot.",
        ),
        "interlock.cli.chaos_and_simulate:chaos": (
            "Break servers, workers and disks under running orders, and check every guarantee.",
            "chaos --only kill-postgres --only freeze-worker --seconds 5",
        ),
        "interlock.cli.chaos_and_simulate:simulate": (
            "Simulate crashes, outages and lost answers from seeds, and check every run.",
        ),
    },
    "Move": {
        "interlock.cli.advise:advise": (
            "Recommend a place for each workload, with evidence and command. Changes nothing without --apply.",
            "advise --evidence windows.json --tool shop.tools:stock",
        ),
        "interlock.cli.route:route": (
            "Move a database, or workflows, to another place while they are in use.",
            "route stock --to postgresql://shop@db.internal/shop?schema=stock --home lanes:///var/shop --dry-run",
        ),
    },
}
"""By the part of the help that it is in: MODULE:FUNCTION with the help line and an example; or MODULE:TYPER, whose
commands have examples of their own."""

COMMANDS = {path: texts for commands in PANELS.values() for path, texts in commands.items()}


def command_name(path: str) -> str:
    """Return the name of a command on the command line."""
    return path.rpartition(":")[2].replace("_", "-")


def add_command(program: typer.Typer, path: str, *, loaded: bool) -> None:
    """Add the command and import its module; or, when another one runs, add only its name and help line."""
    name, (summary, *examples) = command_name(path), COMMANDS[path]
    panel = next(panel for panel, commands in PANELS.items() if path in commands)
    epilog = f"Example: interlock {examples[0]}" if examples else None
    if not loaded:
        program.command(name, help=summary, epilog=epilog, rich_help_panel=panel)(_unloaded_command)
        return
    module, _, attribute = path.partition(":")
    found: object = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        program.add_typer(found, name=name, rich_help_panel=panel)
    else:
        program.command(name, epilog=epilog, rich_help_panel=panel)(cast("Callable[..., None]", found))


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


WORDS_OF_OTHER_TOOLS: Final = {
    **dict.fromkeys(("list", "ls", "ps", "search", "query"), "find"),
    **dict.fromkeys(("get", "status", "state", "inspect"), "show"),
    **dict.fromkeys(("log", "logs", "events"), "history"),
    **dict.fromkeys(("init", "create", "scaffold"), "new"),
    **dict.fromkeys(("run", "dev", "server", "dashboard", "ui", "web"), "serve"),
    **dict.fromkeys(("draw", "graph", "visualize"), "diagram"),
    **dict.fromkeys(("validate", "lint"), "check"),
    **dict.fromkeys(("signal", "event", "emit"), "send"),
    **dict.fromkeys(("retry", "failed", "dlq"), "dead-letters"),
    **dict.fromkeys(("cron", "schedule"), "schedules"),
    **dict.fromkeys(("approvals", "inbox"), "tasks"),
    **dict.fromkeys(("approve", "reject"), "send"),
    **dict.fromkeys(("gc", "clean", "cleanup"), "prune"),
    "move": "route",
    "undo": "compensations",
    "help": "--help",
}
"""Words under which other tools have what a command of ours does."""


def _with_value(error: typer.BadParameter) -> str:
    message = error.message.removeprefix("Value error, ")
    details = getattr(error.__cause__, "errors", None)
    if details is None or not message.startswith("Input should be "):
        return message
    rule = message.removeprefix("Input should be ").partition(",")[0].replace("a valid integer", "a whole number")
    return f"{details()[0]['input']!r} is not valid; it should be {rule}."


class _Program(TyperGroup):
    """The program, which knows the words that newcomers try first."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Raise BadUsage for a word of another tool, with the command that does the same here."""
        meant = WORDS_OF_OTHER_TOOLS.get(args[0]) if args and args[0] not in self.commands else None
        if meant is None or ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        raise BadUsage(
            f"there is no command {args[0]!r}. Did you mean {meant}?",
            why="Other tools have this word for it.",
            fix="Run interlock --help, which lists all commands by what they are for.",
        )

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command. The error of a wrong value names the value, which the parser's message leaves out."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _with_value(error)
            raise
        except typer.TyperException as error:
            if getattr(error, "option_name", "") != "--server":
                raise
            raise BadUsage(
                f"`interlock {ctx.invoked_subcommand}` has no --server.",
                why="It works on the store itself.",
                fix=f"Pass --home URL; `interlock {ctx.invoked_subcommand} --help` has its options.",
            ) from None


def program_for(wanted: str | None = None) -> typer.Typer:
    """Build the program with the wanted command, and only the names of the others; without a name, with all."""
    app = typer.Typer(
        name="interlock",
        cls=_Program,
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
