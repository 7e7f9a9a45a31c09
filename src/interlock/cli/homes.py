"""The home of workflows (`--home`): opening its store or its engine for a command.

A reading command opens only the store and changes nothing: it neither registers a machine nor resumes pending work.
A writing command opens an engine without a worker: it decides and commits, and never runs a step. Pending steps run
when the service opens the store, or immediately where PostgreSQL is shared with workers. A folder or a bucket has one
owner at a time: while the service runs, the command names the owner and exits with 5.
"""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, cast

import typer

from interlock.catalog.defaults import below
from interlock.catalog.folder import FolderCatalog
from interlock.cli.targets import load_machine, load_machines
from interlock.core.machine import Machine
from interlock.errors import BadUsage, LaneOwned, TargetNotFound
from interlock.lanes.objects.addresses import is_bucket, parse, redacted
from interlock.runtime.engine import Engine
from interlock.runtime.trail import Trail
from interlock.seams import SystemClock
from interlock.sql.postgres.address import is_postgres
from interlock.store.opening import NAME, migrate_store, open_store
from interlock.store.protocol import Store

AnyMachine = Machine[Any, Any, Any]

FIRST = "0001_workflows"
"""The first migration: a schema without it has no store."""

StoreHome = Annotated[
    str,
    typer.Option(
        "--home",
        metavar="URL",
        envvar="INTERLOCK_HOME",
        help="Where the workflows live: lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
    ),
]
OneMachine = Annotated[
    str, typer.Argument(metavar="MACHINE", help="The machine: MODULE:ATTR; with --server also its name alone.")
]
Machines = Annotated[
    str,
    typer.Argument(
        metavar="MACHINE",
        help="A machine, or several of them: MODULE[:ATTR]; with --server a machine's name, or nothing.",
    ),
]


def missing_word(words: str) -> BadUsage:
    """Return the error for missing words; a server has the code, and needs no machine."""
    return BadUsage(
        f"a word is missing; on a store they are {words}.",
        why="The machine's code says what can happen to a workflow, and a store does not have it.",
        fix="Name the machine first, as MODULE:ATTR; or ask a server with --server, which has the code.",
    )


def one_machine(target: str) -> AnyMachine:
    """Load the machine of `MODULE:ATTR`."""
    return cast("AnyMachine", load_machine(target))


def several_machines(target: str) -> list[AnyMachine]:
    """Load the machines of `MODULE:ATTR` or `MODULE`."""
    return cast("list[AnyMachine]", load_machines(target))


@asynccontextmanager
async def store_at(home: str) -> AsyncGenerator[Store]:
    """Open the store for reading. Raises TargetNotFound if it does not exist: reading creates nothing."""
    _refuse_absent(home)
    if is_postgres(home) and FIRST in (await migrate_store(home, dry_run=True)).names:
        raise _no_workflows(home)
    trail = Trail(home)
    with _asking_the_owner():
        await trail.begin()
        store = await trail.open(lambda place: open_store(place.url, clock=SystemClock(), epoch=place.seen_epoch))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def engine_at(home: str, machines: Sequence[AnyMachine], *, create: bool = False) -> AsyncGenerator[Engine]:
    """Open an engine without a worker, to move workflows."""
    _refuse_absent(home, create=create)
    with _asking_the_owner():
        engine = await Engine.open(home, machines=machines, worker=False)
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def _asking_the_owner() -> Generator[None]:
    """Add the hint to use --server to the error that another process owns the store."""
    try:
        yield
    except LaneOwned as error:
        error.fix = "Ask its server instead, with --server URL; or stop that process."
        raise


def refuse_memory(home: str) -> None:
    """Raise BadUsage for a store in memory, which ends with the command."""
    if home == "memory:":
        raise BadUsage(
            "workflows in memory cannot be reached from the command line.",
            why="They exist only inside the program that opened them, and a new store in memory is empty.",
            fix="Name a home on a disk, lanes:///var/shop, or in a bucket, s3://bucket/shop.",
        )


def _refuse_absent(home: str, *, create: bool = False) -> None:
    refuse_memory(home)
    if create:
        return
    if is_bucket(home):
        from interlock.lanes.objects import door, reading  # noqa: PLC0415 -- an extra, which may not be installed.
        from interlock.lanes.objects.answering import answering  # noqa: PLC0415 -- as above.

        address = parse(below(home, NAME))
        with answering("look for workflows"):
            reading.manifest_at(door.bucket_of(address), str(address))
    elif home.startswith("lanes:///") and NAME not in FolderCatalog(home).names():
        raise _no_workflows(home)


def _no_workflows(home: str) -> TargetNotFound:
    return TargetNotFound(
        f"there are no workflows at {redacted(home)}.",
        why="No engine was ever opened there.",
        fix="Check the address; `interlock start` and Engine.open make a new home.",
    )
