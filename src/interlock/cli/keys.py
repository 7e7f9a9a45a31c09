"""`interlock keys` and `interlock audit`: the API keys of a home, and the actions of its operators.

Keys live beside the workflows, not in their database, so these commands work while a server runs, and it reloads the
keys within a second. The key itself is printed once, on stdout alone, and is stored nowhere.
"""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

import msgspec
import typer

from interlock.cli.arguments import Failures, Output, OutputOfOne, ids_of, seconds_of
from interlock.cli.console import (
    ListingFormat,
    ResultFormat,
    escaped,
    moment_text,
    remark,
    say,
    show_json,
    show_listing,
    show_raw,
)
from interlock.cli.homes import StoreHome
from interlock.clock import SystemClock, SystemSecrets
from interlock.errors import BadUsage
from interlock.server.security.audit import ENTRIES_READ_MAX, Entry
from interlock.server.security.guard import Identity
from interlock.server.security.keys import LADDER, CreatedKey, KeyRecord, Scope, checked_limits, make_key, parse_key
from interlock.server.security.stores import Security, security_at

EXPIRES_S_MAX = 10 * 366 * 86_400
"""Ten years; a longer lifetime is refused."""

ResultT = TypeVar("ResultT")

keys = typer.Typer(
    help="API keys of a server: make one, list them, revoke one. A running server takes notice within a second.",
    no_args_is_help=True,
)


class ShownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key without anything secret."""

    id: str
    name: str
    state: str
    scopes: tuple[str, ...]
    machines: tuple[str, ...]
    prefixes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used: datetime | None


@keys.command(epilog="Example: interlock keys create --scope send --machine order --home lanes:///var/shop -o json")
def create(
    *,
    home: StoreHome,
    scope: Annotated[
        list[Scope], typer.Option(help="What the key may do; each scope includes those before it. May be repeated.")
    ],
    machine: Annotated[
        list[str] | None, typer.Option(metavar="M", help="Only workflows of this machine. May be repeated.")
    ] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Only workflows whose id begins so. May be repeated.")
    ] = None,
    name: Annotated[str, typer.Option(metavar="TEXT", help="Whose key it is, for listings and the audit log.")] = "",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="The key ends after so long: 12h, 90d. Without it: never.")
    ] = None,
    output: OutputOfOne = ResultFormat.TABLE,
) -> None:
    """Make an API key and print it, once: it cannot be shown again.

    From the first key of a home on, its server requires a key of every client.
    """
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)
    limits = checked_limits(tuple(machine or ()), tuple(prefix or ()))
    expires_at = None if expires is None else now + _span(expires)
    created = make_key(SystemSecrets(), name=name, scopes=tuple(scope), limits=limits, now=now, expires_at=expires_at)

    async def act(security: Security) -> None:
        record = created.record
        async with security.audit.action(_me(), "keys.create", record.id, before=None, after=_key_view(record, now)):
            await security.keys.add(record)

    _run(home, act)
    _show_created(created, output)


@keys.command(name="list", epilog="Example: interlock keys list --home lanes:///var/shop")
def list_keys(*, home: StoreHome, output: Output = ListingFormat.TABLE) -> None:
    """List the API keys, the oldest first: never the keys themselves. Changes nothing."""
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)

    async def act(security: Security) -> list[ShownKey]:
        return [_key_view(record, now) for record in await security.keys.load()]

    found = _run(home, act)
    show_listing(
        output,
        found,
        ("id", "state", "scopes", "limits", "expires", "used", "name"),
        lambda each: (
            each.id,
            each.state,
            ",".join(each.scopes),
            " ".join((*each.machines, *(f"{prefix}…" for prefix in each.prefixes))),
            moment_text(each.expires_at),
            "" if each.last_used is None else f"{each.last_used:%Y-%m-%d %H}h",
            each.name,
        ),
        ids=(each.id for each in found),
    )


@keys.command(epilog="Example: interlock keys revoke mfzwk3tjnrsgc4tu --home lanes:///var/shop")
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of a key, or - for ids on stdin.")],
    *,
    home: StoreHome,
) -> None:
    """Revoke an API key: every server of the home refuses it within a second, for good.

    Exits with 4 when there is no such key. Revoking it again changes nothing.
    """
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)
    failures = Failures()

    async def act(security: Security) -> list[str]:
        async def revoked(argument: str) -> str:
            # The argument may be a whole key, one that has leaked for example; only its id is ever shown.
            whole = parse_key(argument)
            key_id = argument if whole is None else whole.id
            before, after = await security.keys.revoke(key_id, now)
            # Afterwards, unlike other actions: a key that has leaked is revoked also when the log cannot be written.
            await security.audit.record(_me(), "keys.revoke", key_id, _key_view(before, now), _key_view(after, now))
            return f"{key_id} is revoked."

        return [line for ids in ids_of(key) for line in await failures.each(ids, revoked)]

    for line in _run(home, act):
        say(escaped(line))
    raise typer.Exit(failures.code)


def audit(
    *,
    home: StoreHome,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=ENTRIES_READ_MAX, help="The maximum number of entries.")
    ] = 100,
    output: Annotated[
        ListingFormat, typer.Option("--output", "-o", help="A table, JSON, or only what they did it to.")
    ] = ListingFormat.TABLE,
) -> None:
    """Show what operators did, the newest first: who, what, when; before and after are in the JSON. Changes nothing."""

    async def act(security: Security) -> list[Entry]:
        return await security.audit.read(limit)

    entries = _run(home, act)
    show_listing(
        output,
        entries,
        ("time", "key", "who", "action", "target", "result"),
        lambda each: (moment_text(each.at), each.key or "-", each.who, each.action, each.target, each.failed or "ok"),
        ids=dict.fromkeys(each.target for each in entries),
    )


def _run(home: str, act: Callable[[Security], Awaitable[ResultT]]) -> ResultT:
    if home == "memory:":
        raise BadUsage(
            "keys in memory cannot be reached from the command line.",
            why="They exist only inside the program that opened them.",
            fix="Name a home on a disk, in a bucket or in PostgreSQL: lanes:///var/shop.",
        )

    async def run() -> ResultT:
        security = security_at(home, clock=SystemClock())
        try:
            return await act(security)
        finally:
            await security.close()

    return asyncio.run(run())


def _show_created(created: CreatedKey, output: ResultFormat) -> None:
    if output is ResultFormat.JSON:
        show_json({"id": created.record.id, "key": created.key.reveal()})
        return
    # As it is, on a line of its own: for a person to copy, or for a script to read.
    show_raw(created.key.reveal())
    scopes = ", ".join(created.record.scopes)
    remark(
        f"Key {created.record.id} may {scopes}. This is the only time that it is shown; "
        "send it as `Authorization: Bearer …`."
    )


def _key_view(record: KeyRecord, now: datetime) -> ShownKey:
    return ShownKey(
        id=record.id,
        name=record.name,
        state=record.state(now),
        scopes=tuple(str(scope) for scope in LADDER if scope in record.scopes),
        machines=record.limits.machines,
        prefixes=record.limits.prefixes,
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used=record.last_used,
    )


def _me() -> Identity:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown user"  # A user id that the system has no name for, as in a container.
    return Identity("", f"{user}@{socket.gethostname()} (command line)", frozenset(Scope))


def _span(text: str) -> timedelta:
    seconds = seconds_of(text)
    if not 0 < seconds <= EXPIRES_S_MAX:
        raise BadUsage(f"{text!r} is not a time after which a key can end.", fix="Write 12h, 90d, at most ten years.")
    return timedelta(seconds=seconds)
