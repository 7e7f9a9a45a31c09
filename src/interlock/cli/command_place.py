"""The place of a command: a home that it opens itself (`--home`), or a server that owns it (`--server`).

A reading command opens only the store and changes nothing: it neither registers a machine nor resumes pending work.
A writing command opens an engine without a worker: it decides and commits, and never runs a step. Pending steps run
when the service opens the store, or immediately where PostgreSQL is shared with workers. A folder or a bucket has one
owner at a time: while the service runs, the command names the owner and exits with 5.
"""

import getpass
import os
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from interlock.catalog.catalog import FolderCatalog
from interlock.catalog.catalog_entries import below
from interlock.cli.load_machines import AnyMachine
from interlock.cli.parse_arguments import absolute_url
from interlock.client.client import Client
from interlock.clock import SystemClock
from interlock.core.policies import Retry
from interlock.engine.engine import Engine
from interlock.engine.follow_moves import StoreRoute
from interlock.errors import BadUsage, LaneOwned, MovedElsewhere, NotAuthenticated, TargetNotFound, UnusableFile
from interlock.store.open_store import NAME, migrate_store, open_store
from interlock.store.protocol import Store
from interlock.urls import (
    is_bucket_url,
    is_lane_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    redact_url,
    resolve_url,
)

# --- Homes -----------------------------------------------------------------------------------------------------------

FIRST = "0001_workflows"
"""The first migration: a schema without it has no store."""

StoreHome = Annotated[
    str,
    typer.Option(
        "--home",
        metavar="URL",
        envvar="INTERLOCK_HOME",
        callback=absolute_url,
        help="Where the workflows live: lanes://./shop, s3://bucket/shop or postgresql://host/shop.",
    ),
]


def missing_word(words: str, target: str | None = None) -> BadUsage:
    """Return the error for missing words; a server has the code, and needs no machine."""
    if target is not None and ":" in target:
        return BadUsage(
            f"a word is missing after {target}: the words are {words}.",
            why="The machine says what can happen to a workflow, and the next words say to which, and what.",
            fix=f"Write {words.replace('MACHINE', target)}.",
        )
    return BadUsage(
        f"MACHINE is missing: on a store the words are {words}.",
        why="The machine's code says what can happen to a workflow, and a store does not have it.",
        fix="Name the machine first, as MODULE:ATTR; or ask a server with --server, which has the code.",
    )


@asynccontextmanager
async def store_at(home: str) -> AsyncGenerator[Store]:
    """Open the store for reading. Raises TargetNotFound if it does not exist: reading creates nothing."""
    _refuse_absent(home)
    if is_postgres_url(home):
        with suppress(MovedElsewhere):  # The route follows it.
            if FIRST in (await migrate_store(home, dry_run=True)).names:
                raise _no_workflows(home)
    trail = StoreRoute(home)
    with _with_server_hint():
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
    with _with_server_hint():
        engine = await Engine.open(home, machines=machines, worker=False)
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def _with_server_hint() -> Generator[None]:
    """Add the hint to use --server to the error that another process owns the store."""
    try:
        yield
    except LaneOwned as error:
        error.fix = (
            "Ask its server, with --server URL. A program without one has to end first: `interlock serve` has one."
        )
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
    if is_bucket_url(home):
        # An extra, which may not be installed.
        from interlock.lanes.objectlog import log as objectlog_log  # noqa: PLC0415
        from interlock.lanes.objectlog import manifest  # noqa: PLC0415
        from interlock.lanes.objectlog.bucket_protocol import answering  # noqa: PLC0415 -- as above.

        address = parse_bucket_url(below(home, NAME))
        with answering("look for workflows"):
            manifest.manifest_at(objectlog_log.bucket_of(address), str(address))
    elif is_lane_url(home) and NAME not in FolderCatalog(home).names():
        raise _no_workflows(home)


def _no_workflows(home: str) -> TargetNotFound:
    path = lane_path(home) if home.startswith("lanes:") else None
    if path is not None and path.exists():
        return TargetNotFound(
            f"{redact_url(home)} is a database, {path}, and not a home of workflows.",
            why="A home is a folder; its workflows are in the database `workflows` there.",
            fix=f"Restore a copy of workflows into {redact_url(home)}/workflows, and name {redact_url(home)}.",
        )
    return TargetNotFound(
        f"there are no workflows at {redact_url(home)}.",
        why="No engine was ever opened there.",
        fix="Check the address; `interlock start` and Engine.open make a new home.",
    )


# --- Homes and servers on the command line ---------------------------------------------------------------------------
# The command line wins over the environment, and the environment over `interlock.toml`; two places from the same
# source are refused. The key of a server comes from the environment or from a file, never from an argument: every
# user who lists processes can read those.

KEY_VARIABLE = "INTERLOCK_KEY"
KEY_BYTES_MAX = 4_096
ATTEMPTS = Retry(attempts=3, first_s=0.1, max_s=1.0)
"""Few and short: a person waits for the error, and a script retries by the exit code."""

SOURCES = ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP")
"""The sources of an option's value, the strongest first."""


class RankedAddress(str):
    """An address with the rank of its source, which only the parser knows."""

    __slots__ = ("rank",)
    rank: int


def _with_source(context: typer.Context, option: typer.CallbackParam, value: str | None) -> str | None:
    if value is None:
        return None
    address = RankedAddress(resolve_url(value))
    source = context.get_parameter_source(option.name or "")
    address.rank = SOURCES.index(source.name) if source is not None and source.name in SOURCES else len(SOURCES)
    return address


Home = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="URL",
        envvar="INTERLOCK_HOME",
        callback=_with_source,
        help="Where the workflows live: lanes://./shop, s3://bucket/shop or postgresql://host/shop.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="INTERLOCK_SERVER",
        callback=_with_source,
        help="Ask the server at this address instead: http://127.0.0.1:8080. Its key is in INTERLOCK_KEY.",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file", metavar="FILE", envvar="INTERLOCK_KEY_FILE", help="Read the server's API key from this file."
    ),
]


class CommandPlace(NamedTuple):
    """A home, or a server with its key."""

    home: str = ""
    server: str | None = None
    key: str | None = None


def place_of(home: str | None, server: str | None, key_file: Path | None) -> CommandPlace:
    """Return the place of the command. Raises BadUsage for both and for neither."""
    if home is not None and server is not None:
        stronger = _rank(home) - _rank(server)
        if stronger == 0:
            raise BadUsage(
                "both a home and a server are given.",
                why="A command works on the store itself, or through the server that owns it, and not on both.",
                fix="Give --home or --server. In the environment they are INTERLOCK_HOME and INTERLOCK_SERVER.",
            )
        home, server = (None, server) if stronger > 0 else (home, None)
    if server is not None:
        if "@" in server:
            raise BadUsage(
                "the address of the server has a user or a password in it.",
                why="Addresses are shown in errors and in listings of processes, and a secret must not be.",
                fix=f"Leave it out, and put the API key into {KEY_VARIABLE}, or into a file for --key-file.",
            )
        return CommandPlace(server=server, key=_key(key_file, os.environ))
    if home is None:
        raise BadUsage(
            "neither a home nor a server is given.",
            why="The command opens a store, or asks a server.",
            fix="Write --home lanes://./shop or --server http://127.0.0.1:8080; or set INTERLOCK_HOME or "
            "INTERLOCK_SERVER, or home in interlock.toml.",
        )
    return CommandPlace(home=home)


def actor_at(place: CommandPlace, by: str | None) -> str | None:
    """Return the actor of a command (F1): the one that is given, or on a store the login name of its operator.

    A server knows the client by its key.
    """
    return by if by or place.server is not None else login_name()


def login_name() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown user"  # A user id that the system has no name for, as in a container.


@asynccontextmanager
async def client_at(place: CommandPlace) -> AsyncGenerator[Client]:
    """Open a client of the server. Errors about the key name the options of the command line."""
    async with Client(place.server or "", key=place.key, retry=ATTEMPTS) as client:
        try:
            yield client
        except NotAuthenticated as error:
            raise NotAuthenticated(
                error.what,
                why=error.why,
                fix=f"Put a key into {KEY_VARIABLE}, or into a file for --key-file; `interlock keys create` makes one.",
                presented=error.presented,
            ) from error


def _rank(address: str) -> int:
    return address.rank if isinstance(address, RankedAddress) else 0


def _key(file: Path | None, environment: Mapping[str, str]) -> str | None:
    if file is None:
        return environment.get(KEY_VARIABLE) or None
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(KEY_BYTES_MAX).strip()
    except FileNotFoundError:
        raise TargetNotFound(
            f"there is no file {file}.",
            why="The API key of the server is read from it.",
            fix=f"Check --key-file, or set {KEY_VARIABLE}.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a text"
        raise UnusableFile(f"the key in {file} cannot be read: {reason}.") from error
