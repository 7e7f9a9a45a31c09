"""The program itself: its commands, its version, and what becomes of an error.

Every command is a plain function in a module of its own; this one puts them together. The invariant: whatever is
wrong with the user's input ends with three readable parts and a fixed exit code, and only what nobody expected ends
with a traceback.
"""

import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from interlock.cli.advise import advise
from interlock.cli.bench import bench
from interlock.cli.breakers import breakers
from interlock.cli.check import check
from interlock.cli.demo.command import demo
from interlock.cli.diagram import describe, diagram
from interlock.cli.doctor import doctor
from interlock.cli.exits import Exit, exit_for
from interlock.cli.hot import hot
from interlock.cli.letters import compensations, dead_letters
from interlock.cli.looking import allowed, find, history, show, stalled
from interlock.cli.migrate import migrate
from interlock.cli.moving import send, start
from interlock.cli.output import show_error, show_raw, stderr, tolerate_narrow_encodings
from interlock.cli.plan import plan
from interlock.cli.prune import prune
from interlock.cli.restore import restore
from interlock.cli.simulate import simulate
from interlock.errors import InterlockError, InternalError

_EXITS = (
    "Exit codes: 0 ok, 1 error, 2 usage, 3 refused, 4 not found, 5 unavailable, 130 interrupted. "
    "Machines are named as in an import statement: shop.orders:order is `from shop.orders import order`."
)

app = typer.Typer(
    name="interlock",
    help="Interlock: durable state-machine workflows. Check and draw machines; start, move and watch workflows.",
    epilog=_EXITS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command(epilog="Example: interlock demo --orders 20000 --seed 7 --output demo.svg")(demo)
app.command(epilog="Example: interlock check shop.orders:order shop.returns --severity warning")(check)
app.command(epilog="Example: interlock diagram shop.orders:order --format svg --output order.svg")(diagram)
app.command(epilog="Example: interlock describe shop.orders:order --output releases/order-1.json")(describe)
app.command(epilog="Example: interlock plan releases/order-1.json shop.orders:order --rename packed=ready")(plan)
app.command(epilog="Example: interlock doctor lanes:///var/shop/stock -o json")(doctor)
app.command(epilog="Example: interlock restore s3://backups/shop/stock --at 4711 stock.lane")(restore)
app.command(epilog="Example: interlock start shop.orders:order o-1 '{\"cents\": 999}' --home lanes:///var/shop")(start)
app.command(epilog="Example: interlock send shop.orders:order o-1 CANCEL --key click-7 --home lanes:///var/shop")(send)
app.command(epilog="Example: interlock show shop.orders:order o-1 --home lanes:///var/shop")(show)
app.command(epilog="Example: interlock history o-1 -o json --home lanes:///var/shop")(history)
app.command(epilog="Example: interlock find shop.orders:order --state charging -o ids --home lanes:///var/shop")(find)
app.command(epilog="Example: interlock stalled shop.orders:order --older-than 2h --home lanes:///var/shop")(stalled)
app.command(epilog="Example: interlock allowed shop.orders:order o-1 CANCEL --home lanes:///var/shop")(allowed)
app.command(epilog="Example: interlock compensations shop.orders --home lanes:///var/shop")(compensations)
app.add_typer(dead_letters, name="dead-letters")
app.command(epilog="Example: interlock breakers -o json --home postgresql://shop@db.internal/shop")(breakers)
app.command(epilog="Example: interlock hot lanes:///var/shop --limit 5")(hot)
app.command(epilog="Example: interlock advise --evidence windows.json --tool shop.tools:stock")(advise)
app.command(epilog="Example: interlock prune --older-than 30d --dry-run --home postgresql://shop@db.internal/shop")(
    prune
)
app.command(epilog="Example: interlock migrate postgresql://shop@db.internal/shop --dry-run")(migrate)
app.add_typer(bench, name="bench")
app.add_typer(simulate, name="simulate")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (`sys.argv` without one) and return its exit code."""
    tolerate_narrow_encodings()
    code: int = Exit.OK
    try:
        app(args=None if arguments is None else list(arguments), prog_name="interlock")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else Exit.OK if left.code is None else Exit.ERROR
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except InterlockError as error:
        if isinstance(error, InternalError):
            # A bug of ours asks to be reported with its traceback.
            traceback.print_exception(error, file=sys.stderr)
        show_error(error)
        code = exit_for(error)
    if code == Exit.INTERRUPTED:
        stderr().print("Interrupted.")
    return int(code)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 -- typer calls it with the value of the flag.
    if not wanted:
        return
    try:
        show_raw(f"interlock {metadata.version('interlock')}")
    except metadata.PackageNotFoundError:
        show_raw("interlock (run from its source, not installed)")
    raise typer.Exit(Exit.OK)


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold the options of the program itself."""
