"""The list of commands: the name, module, help line and example of each.

A program start pays only for the command that it runs: the module of any other is not imported, and help lists it by
the line here. The invariant: that line is the first paragraph of the command's own help, which a test compares.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple, cast

import typer

from interlock.errors import InternalError


class Command(NamedTuple):
    """One command, or one group of them, before it is imported."""

    name: str
    module: str
    attribute: str
    """A function, or a `Typer` with commands of its own."""
    summary: str
    example: str = ""


COMMANDS = (
    Command(
        "demo",
        "interlock.cli.demo.command",
        "demo",
        "Walk thousands of orders through a bad day, kill the worker in the middle, and lose nothing.",
        "demo --orders 20000 --seed 7 --output demo.svg",
    ),
    Command(
        "new",
        "interlock.cli.new",
        "new",
        "Make a project: a machine with steps and undos, its tests, an App, and two commands that work.",
        "new my-shop && cd my-shop && make test",
    ),
    Command(
        "serve",
        "interlock.cli.serve",
        "serve",
        "Serve machines over HTTP, and run their steps, until Ctrl-C.",
        "serve shop.orders:app --home lanes:///var/shop --port 8080",
    ),
    Command(
        "worker",
        "interlock.cli.worker",
        "worker",
        "Run the steps, timers, undos and effects of machines, without HTTP, until Ctrl-C.",
        "worker shop.orders:app --home postgresql://shop@db.internal/shop",
    ),
    Command(
        "check",
        "interlock.cli.check",
        "check",
        "Check machines: what keeps them from being used, and what is worth a look.",
        "check shop.orders:order shop.returns --severity warning",
    ),
    Command(
        "diagram",
        "interlock.cli.diagram",
        "diagram",
        "Draw a machine as Mermaid, Graphviz, SVG or Markdown tables.",
        "diagram shop.orders:order --format svg --output order.svg",
    ),
    Command(
        "describe",
        "interlock.cli.diagram",
        "describe",
        "Print a machine as JSON, to keep beside a release and compare later with `interlock plan`.",
        "describe shop.orders:order --output releases/order-1.json",
    ),
    Command(
        "plan",
        "interlock.cli.plan",
        "plan",
        "Say what happens to stored workflows when the machine OLD becomes the machine NEW.",
        "plan releases/order-1.json shop.orders:order --rename packed=ready",
    ),
    Command(
        "databases",
        "interlock.cli.databases",
        "databases",
        "List the databases of a home: where each of them lives, and what is moving. Changes nothing.",
        "databases --home lanes:///var/shop",
    ),
    Command(
        "doctor",
        "interlock.cli.doctor",
        "doctor",
        "Look at a lane: is it whole, who owns it, what stands in its way. Changes nothing.",
        "doctor lanes:///var/shop/stock -o json",
    ),
    Command(
        "backup",
        "interlock.cli.backup",
        "backup",
        "Copy a database into a local file: one instant of it, with everything that was acknowledged before.",
        "backup lanes:///var/shop/stock stock-copy.lane",
    ),
    Command(
        "restore",
        "interlock.cli.restore",
        "restore",
        "Restore a database in a bucket, as it was at one place of its log, into a local file; or put a copy back.",
        "restore s3://backups/shop/stock --at 4711 stock.lane",
    ),
    Command(
        "start",
        "interlock.cli.moving",
        "start",
        "Start a workflow. The same id with the same context again is the one that exists.",
        "start shop.orders:order o-1 '{\"cents\": 999}' --home lanes:///var/shop",
    ),
    Command(
        "send",
        "interlock.cli.moving",
        "send",
        "Send an event to a workflow; it is durable when the command ends.",
        "send shop.orders:order o-1 CANCEL --key click-7 --home lanes:///var/shop",
    ),
    Command(
        "show",
        "interlock.cli.looking",
        "show",
        "Show a workflow: its state, its context, its version, and what it waits for. Changes nothing.",
        "show shop.orders:order o-1 --home lanes:///var/shop",
    ),
    Command(
        "history",
        "interlock.cli.looking",
        "history",
        "Show everything that happened to a workflow, in the order it happened. Changes nothing.",
        "history o-1 -o json --home lanes:///var/shop",
    ),
    Command(
        "find",
        "interlock.cli.looking",
        "find",
        "List the workflows of a machine, page by page. Changes nothing.",
        "find shop.orders:order --state charging -o ids --home lanes:///var/shop",
    ),
    Command(
        "stalled",
        "interlock.cli.looking",
        "stalled",
        "List the workflows that have been in their state for too long, the longest first. Changes nothing.",
        "stalled shop.orders:order --older-than 2h --home lanes:///var/shop",
    ),
    Command(
        "allowed",
        "interlock.cli.allowing",
        "allowed",
        "List the events that have a transition from where a workflow stands. Changes nothing.",
        "allowed shop.orders:order o-1 CANCEL --home lanes:///var/shop",
    ),
    Command(
        "compensations",
        "interlock.cli.letters",
        "compensations",
        "List the undos that are owed: pending, being tried, or given up. Changes nothing.",
        "compensations shop.orders --home lanes:///var/shop",
    ),
    Command(
        "dead-letters",
        "interlock.cli.letters",
        "dead_letters",
        "What gave up and waits for a person: list it, have it tried again, or say that it is dealt with.",
    ),
    Command(
        "breakers",
        "interlock.cli.breakers",
        "breakers",
        "List the breakers of dependencies: as engines last noted them, or as a server has them; or hold one.",
        "breakers -o json --home postgresql://shop@db.internal/shop",
    ),
    Command(
        "hot",
        "interlock.cli.hot",
        "hot",
        "List the rows and workflows that writers wait for each other on, worst first. Changes nothing.",
        "hot lanes:///var/shop --limit 5",
    ),
    Command(
        "advise",
        "interlock.cli.advise",
        "advise",
        "Say where workloads should live: verdict, evidence, the command to run. Changes nothing without --apply.",
        "advise --evidence windows.json --tool shop.tools:stock",
    ),
    Command(
        "route",
        "interlock.cli.route",
        "route",
        "Move a database, or workflows, to another place while they are used: copied, caught up with, compared, "
        "switched.",
        "route stock --to postgresql://shop@db.internal/shop?schema=stock --home lanes:///var/shop --dry-run",
    ),
    Command(
        "prune",
        "interlock.cli.prune",
        "prune",
        "Remove workflows that ended some time ago: the workflow, its history, its effects and letters.",
        "prune --older-than 30d --dry-run --home postgresql://shop@db.internal/shop",
    ),
    Command(
        "migrate",
        "interlock.cli.migrate",
        "migrate",
        "Apply the migrations that a store in PostgreSQL has not seen yet, all or none.",
        "migrate postgresql://shop@db.internal/shop --dry-run",
    ),
    Command(
        "keys",
        "interlock.cli.keys",
        "keys",
        "API keys of a server: make one, list them, revoke one. A running server takes notice within a second.",
    ),
    Command(
        "audit",
        "interlock.cli.keys",
        "audit",
        "Show what operators did, the newest first: who, what, when; before and after are in the JSON. "
        "Changes nothing.",
        "audit --limit 20 --home lanes:///var/shop",
    ),
    Command(
        "bench",
        "interlock.cli.bench",
        "bench",
        "Run an experiment on this machine and this disk, with a table, JSON and a plot.",
    ),
    Command(
        "chaos",
        "interlock.cli.chaos",
        "chaos",
        "Break everything around running orders, and check that what was promised is kept.",
        "chaos --only kill-postgres --only freeze-worker --seconds 5",
    ),
    Command(
        "simulate",
        "interlock.cli.simulate",
        "simulate",
        "Tell stories in which everything goes wrong, and check each of them.",
    ),
)


def add_command(program: typer.Typer, command: Command, *, loaded: bool) -> None:
    """Add the command and import its module; or, when another one runs, add only its name and help line."""
    epilog = f"Example: interlock {command.example}" if command.example else None
    if not loaded:
        program.command(command.name, help=command.summary, epilog=epilog)(_unloaded)
        return
    found: object = getattr(importlib.import_module(command.module), command.attribute)
    if isinstance(found, typer.Typer):
        program.add_typer(found, name=command.name)
    else:
        program.command(command.name, epilog=epilog)(cast("Callable[..., None]", found))


def _unloaded() -> None:
    raise InternalError("A command was run that the program had not loaded.")
