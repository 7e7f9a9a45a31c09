"""The place of a command: a store itself (`--home`), or a server that owns it (`--server`).

The command line wins over the environment, and the environment over `interlock.toml`; two places from the same source
are refused. The key of a server comes from the environment or from a file, never from an argument: every user who
lists processes can read those.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from interlock.access import NotAuthenticated
from interlock.client.client import Client
from interlock.core.policies import Retry
from interlock.errors import BadUsage, TargetNotFound, UnusableFile

KEY_VARIABLE = "INTERLOCK_KEY"
KEY_BYTES_MAX = 4_096
ATTEMPTS = Retry(attempts=3, first_s=0.1, max_s=1.0)
"""Few and short: a person waits for the error, and a script retries by the exit code."""

SOURCES = ("COMMANDLINE", "ENVIRONMENT", "DEFAULT_MAP")
"""The sources of an option's value, the strongest first."""


class Said(str):
    """An address with the rank of its source, which only the parser knows."""

    __slots__ = ("rank",)
    rank: int


def _with_source(context: typer.Context, option: typer.CallbackParam, value: str | None) -> str | None:
    if value is None:
        return None
    address = Said(value)
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
        help="Where the workflows live: lanes:///var/shop, s3://bucket/shop or postgresql://host/shop.",
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


class Place(NamedTuple):
    """A home, or a server with its key."""

    home: str = ""
    server: str | None = None
    key: str | None = None


def place_of(home: str | None, server: str | None, key_file: Path | None) -> Place:
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
        return Place(server=server, key=_key(key_file, os.environ))
    if home is None:
        raise BadUsage(
            "neither a home nor a server is given.",
            why="The command opens a store, or asks a server.",
            fix="Write --home lanes:///var/shop or --server http://127.0.0.1:8080; or set INTERLOCK_HOME or "
            "INTERLOCK_SERVER, or home in interlock.toml.",
        )
    return Place(home=home)


@asynccontextmanager
async def client_at(place: Place) -> AsyncGenerator[Client]:
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
    return address.rank if isinstance(address, Said) else 0


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
