"""The program itself: its commands, its version, and what becomes of an error.

Every command is a plain function in a module of its own, and only that of the command that is run is imported: most of
a short command's time would else go into modules that it does not need. The invariant: whatever is wrong with the
user's input ends with three readable parts and a fixed exit code, and only what nobody expected ends with a traceback.
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
    """The program with the one command that is wanted, and the names of all others; with no name, all of them."""
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
    """What sets what becomes of Ctrl-C: nothing does where a program has others than us, or does not heed it."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if alone and raises and threading.current_thread() is threading.main_thread():
        return partial(signal.signal, signal.SIGINT)
    return lambda _: None


def _wanted(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """The name of the command: the first word that is no option, since no option of the program takes a value.

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
    """Hold the options of the program itself, and have the file speak for options that nobody gives."""
    del version
    context.default_map = defaults_for(context.command, context.invoked_subcommand)
