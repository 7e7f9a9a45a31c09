"""The program itself: its commands, its version, and its handling of errors.

Every command is a plain function in a module of its own, and only the module of the running command is imported: most
of a short command's time would otherwise go into unused modules. The invariant: wrong input of the user ends with three
readable parts and a fixed exit code, and only an unexpected error ends with a traceback.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Annotated

import typer

from interlock.cli.commands import COMMANDS, add_command
from interlock.cli.defaults import defaults_for
from interlock.cli.exits import Exit, exit_for
from interlock.cli.output import show_error, show_raw, stderr, tolerate_narrow_encodings
from interlock.errors import InterlockError, InternalError

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
    for command in COMMANDS:
        add_command(app, command, loaded=wanted in {None, command.name})
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (`sys.argv` without one) and return its exit code."""
    tolerate_narrow_encodings()
    interrupted_by = _interrupts(alone=arguments is None)
    code: int = Exit.OK
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        program_for(_wanted(words, os.environ))(args=words, prog_name="interlock")
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


def _interrupts(*, alone: bool) -> Callable[[signal.Handlers], object]:
    """Return a function that sets the handler of Ctrl-C. It does nothing in another program, or if it is ignored."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if alone and raises and threading.current_thread() is threading.main_thread():
        return partial(signal.signal, signal.SIGINT)
    return lambda _: None


def _wanted(words: Sequence[str], environment: Mapping[str, str]) -> str:
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
