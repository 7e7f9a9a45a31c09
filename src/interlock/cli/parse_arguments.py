"""Arguments of commands: strict parsers, commands over many ids, and shell completion.

Ids, JSON, states, durations and conditions are parsed before anything is changed; an error names the wrong value and
the allowed ones. Of many ids each has its own result, and a failure does not stop the others.
"""

import asyncio
import contextlib
import io
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Annotated, NamedTuple, TypedDict, TypeVar, cast

import msgspec
import typer
from typer.core import TyperGroup

from interlock.cli.console import Exit, ListingFormat, ResultFormat, counting, exit_for, show_error
from interlock.cli.load_machines import load_machines
from interlock.core.decide import suggestion
from interlock.core.events import Event
from interlock.core.search import MachineSearch, Search, search_from_json, search_of, where_of
from interlock.engine.bound_machine import BoundMachine
from interlock.engine.check_definitions import SEARCH_PREFIX
from interlock.errors import BadUsage, InterlockError, InternalError, InvalidPayload
from interlock.store.protocol import Store
from interlock.store.records import Row, RowsPage
from interlock.urls import resolve_url

# --- Options of several commands --------------------------------------------------------------------------------------

LIMIT_MAX = 10_000


def absolute_url(value: str | None) -> str | None:
    """Return the URL with an absolute path: the callback of every option and argument that takes a URL of a home."""
    return None if value is None else resolve_url(value)


Output = Annotated[ListingFormat, typer.Option("--output", "-o", help="A table, JSON, or only the ids.")]
OutputOfOne = Annotated[ResultFormat, typer.Option("--output", "-o", help="Text for people, or JSON.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=LIMIT_MAX, help="The maximum number of results.")]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Who acts, for history and the audit log. With --home it is the login name by default; a server records "
        "the key too.",
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


class ListingGroup(TyperGroup):
    """A group whose command `list` runs when no command is named."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put `list` in front of options that belong to it."""
        listing = not args or (args[0].startswith("-") and args[0] not in {"-h", "--help"})
        return super().parse_args(ctx, ["list", *args] if listing and not ctx.resilient_parsing else args)


# --- Parsers ---------------------------------------------------------------------------------------------------------

IDS_AT_ONCE = 1_000
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def ids_of(argument: str) -> Iterator[list[str]]:
    """Yield the id, or with `-` the ids on stdin, one per line, in batches. Raises BadUsage for an empty id."""
    if not argument:
        # Most likely a variable of a script that is not set; doing nothing would look like success.
        raise BadUsage(
            "the id is empty.",
            why="It names what the command is about.",
            fix="Give an id, or - to read ids from stdin, one per line.",
        )
    lines: Iterable[str] = [argument]
    if argument == "-":
        lines = (line.strip() for line in sys.stdin)
    ids = (line for line in lines if line)
    while some := list(islice(ids, IDS_AT_ONCE)):
        yield some


def context_of(bound: BoundMachine, text: str) -> object:
    """Decode the context from JSON. Raises BadUsage."""
    with refuse_invalid_payloads():
        return cast("object", bound.codec.decode_context(_json(text, "the context"), strict=True))


def event_of(bound: BoundMachine, name: str, text: str) -> Event:
    """Decode the event of that name from its JSON payload. Raises BadUsage."""
    known = list(bound.table.events)
    if name not in known:
        raise BadUsage(
            f"{bound.name} has no event {name!r:.100}; its events are {', '.join(known)}."
            f"{suggestion(name.upper().replace('-', '_'), known)}",
            why="A machine takes only the events of its own alphabet, by the names they are stored with.",
            fix="Write the name as `interlock allowed` and `interlock diagram` show it.",
        )
    with refuse_invalid_payloads():
        return cast("Event", bound.codec.decode_event(name, _json(text, f"the payload of {name}"), strict=True))


def object_of(text: str, what: str) -> dict[str, object]:
    """Decode a JSON object, for a machine whose code is not here. Raises BadUsage."""
    value: object = msgspec.json.decode(_json(text, what))
    if not isinstance(value, dict):
        raise BadUsage(
            f"{what} is {text[:100]!r}, not an object.",
            why="Contexts and events have fields by name.",
            fix="Write an object, in single quotes for the shell: '{\"cents\": 999}'.",
        )
    return cast("dict[str, object]", value)


@contextmanager
def refuse_invalid_payloads() -> Generator[None, None, None]:
    """Raise an invalid payload as BadUsage: it comes from the command line."""
    try:
        yield
    except InvalidPayload as error:
        raise BadUsage(error.what, why=error.why, fix=error.fix) from error


def _json(text: str, what: str) -> bytes:
    try:
        data = text.encode()
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise BadUsage(
            f"{what} is not JSON: {str(error) or 'it is nested too deeply'}: {text[:100]!r}.",
            why="It is read strictly, so that nothing is stored that was not meant.",
            fix="Write an object, in single quotes for the shell: '{\"cents\": 999}'.",
        ) from error
    return data


def state_of(bound: BoundMachine, text: str) -> Enum:
    """Return the state of that value or name. Raises BadUsage."""
    nodes = bound.table.nodes.values()
    for node in nodes:
        if text in (node.name, node.state.name):
            return node.state
    known = [node.name for node in nodes]
    raise BadUsage(
        f"{bound.name} has no state {text!r:.100}; its states are {', '.join(known)}.{suggestion(text.lower(), known)}",
        why="A machine has only the states that it declares.",
        fix="Write a state as it is stored.",
    )


def seconds_of(text: str) -> float:
    """`90`, `90s`, `15m`, `2h`, `7d` or `1h30m` as seconds. Raises BadUsage."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    whole = "".join(number + unit for number, unit in parts)
    if not parts or whole != text.strip() or (len(parts) > 1 and not all(unit for _, unit in parts)):
        raise BadUsage(
            f"{text!r} is not a duration.",
            why="It is a number of seconds, or numbers with units: s, m, h, d.",
            fix="Write 90s, 15m, 2h, 7d or 1h30m.",
        )
    return sum(float(number) * UNITS_S[unit or "s"] for number, unit in parts)


# --- Search ----------------------------------------------------------------------------------------------------------

WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="A condition on a searchable field, in quotes: 'customer=ada', 'cents>100', 'customer prefix ad'. May be "
        "given several times: all must hold.",
    ),
]
_Time = typer.Option(metavar="TIME", help="Only those that moved last since this time: 2026-01-31T12:00:00Z.")
UpdatedAfter = Annotated[str | None, _Time]
UpdatedBefore = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those that moved last before this time, as above.")
]
OrderOption = Annotated[
    str | None,
    typer.Option("--order", metavar="FIELD", help="updated_at, created_at or a searchable field; -FIELD reverses it."),
]


class SearchArguments(TypedDict, total=False):
    """The arguments of `find` that search; none of them when it only lists."""

    where: list[str]
    updated_after: datetime | None
    updated_before: datetime | None
    order: str | None


class SearchOptions(NamedTuple):
    """What the options of a command ask for."""

    arguments: SearchArguments

    def check_machine(self, target: str | None) -> None:
        """Raise BadUsage for a search without a machine."""
        if self.arguments and target is None:
            raise BadUsage(
                "no machine is searched.",
                why="The machine declares which fields can be searched, and of which types they are.",
                fix="Write its name as MACHINE, or MODULE:ATTR.",
            )

    async def declared(self, store: Store, machine: str) -> MachineSearch:
        """Return what the store's note says that a machine declares searchable. Raises BadUsage without one."""
        text = (await store.notes()).get(f"{SEARCH_PREFIX}{machine}")
        if text is None:
            raise BadUsage(
                f"{machine!r} is searched without its code, and the store does not say which fields it declares.",
                why="An engine of this release whose machine has search= writes that when it opens the store.",
                fix="Write MODULE:ATTR as MACHINE, or open the store once with this release.",
            )
        return search_from_json(machine, text)

    def search(self, declared: MachineSearch, states: Sequence[str], *, limit: int, cursor: str | None) -> Search:
        """Return the search of a page. Raises InvalidPayload."""
        arguments = self.arguments
        return search_of(
            declared,
            where=where_of(declared.machine, declared.fields, arguments.get("where", [])),
            updated_after=arguments.get("updated_after"),
            updated_before=arguments.get("updated_before"),
            order=arguments.get("order"),
            states=tuple(states),
            limit=limit,
            cursor=cursor,
        )


def search_options(
    where: list[str] | None, updated_after: str | None, updated_before: str | None, order: str | None
) -> SearchOptions:
    """Return the options of a search. Raises BadUsage for a wrong time."""
    arguments: SearchArguments = {}
    if where or updated_after or updated_before or order:
        arguments = {
            "where": where or [],
            "updated_after": _instant(updated_after),
            "updated_before": _instant(updated_before),
            "order": order,
        }
    return SearchOptions(arguments)


def _instant(text: str | None) -> datetime | None:
    try:
        at = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise BadUsage(
            f"{text!r:.100} is not a time.",
            why="It is a date and a time of day, as ISO 8601 writes them.",
            fix="Write 2026-01-31T12:00:00Z; without a timezone it is the time of this host.",
        ) from None
    return None if at is None else at.astimezone()


def late_before(bound: BoundMachine, now_us: int, dwell_s: float | None, states: list[Enum] | None) -> dict[str, int]:
    """Return for each state that can stall the entry time before which a workflow is late, in microseconds."""
    before_us: dict[str, int] = {}
    # Workflows that have not moved since their state was renamed are stored under its old name.
    for stored, node in bound.stored.items():
        longest_s = node.dwell_max_s if dwell_s is None else dwell_s
        if node.active and longest_s is not None and (states is None or node.state in states):
            before_us[stored] = now_us - round(longest_s * 1_000_000)
    return before_us


async def search_all(
    store: Store,
    options: SearchOptions,
    bound: BoundMachine | None,
    machine: str,
    state: str | None,
    *,
    limit: int,
    cursor: str | None,
) -> RowsPage:
    """Return up to `limit` workflows; a store may return them in several short pages.

    Without the machine's code the store's own note says what it declares, and a state is named as it is stored.
    """
    declared = await options.declared(store, machine) if bound is None else bound.machine.search
    states: Sequence[str] = () if state is None else (state,)
    if bound is not None and state is not None:
        node = bound.node_of(state)
        states = [name for name, each in bound.stored.items() if each is node]
    rows: list[Row] = []
    while True:
        page = await store.search(options.search(declared, states, limit=limit - len(rows), cursor=cursor))
        rows += page.rows
        cursor = page.cursor
        if cursor is None or len(rows) == limit:
            return RowsPage(tuple(rows), cursor)


# --- Many ids --------------------------------------------------------------------------------------------------------
# A failure is printed immediately, on stderr. The command exits with the code of the first failure, so that scripts
# with one id and with a thousand ids see the same codes.

ResultT = TypeVar("ResultT")


class Failures:
    """The failures of some of the ids."""

    def __init__(self) -> None:
        self.code = Exit.OK
        """The exit code of the command."""

    def add(self, error: InterlockError) -> None:
        """Print the error and keep its exit code. Raises an internal error, which needs its traceback."""
        if isinstance(error, InternalError):
            raise error
        show_error(error)
        # What does not fit was given on the command line.
        self.code = self.code or (Exit.USAGE if isinstance(error, InvalidPayload) else exit_for(error))

    async def each(self, ids: Sequence[str], act: Callable[[str], Awaitable[ResultT]]) -> list[ResultT]:
        """Call `act` for all ids concurrently; return the results of those that succeeded, in order."""
        results: list[ResultT] = []
        for answer in await asyncio.gather(*map(act, ids), return_exceptions=True):
            if isinstance(answer, InterlockError):
                self.add(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                results.append(answer)
        return results

    async def all(self, argument: str, act: Callable[[str], Awaitable[ResultT]]) -> list[ResultT]:
        """Call `act` for the id, or with `-` for the ids on stdin, in batches; show progress on a terminal."""
        results: list[ResultT] = []
        with counting("workflows" if argument == "-" else "") as count:
            for ids in ids_of(argument):
                results += await self.each(ids, act)
                count(len(ids))
        return results


# --- Shell completion ------------------------------------------------------------------------------------------------
# It imports the user's module, as the command itself would. An error there completes to nothing: a completion must
# not print.


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    """Return the states of the machine on the line."""
    bound = _machines_on_line(context)
    return _matching([node.name for each in bound for node in each.table.nodes.values()], incomplete)


def complete_event(context: typer.Context, incomplete: str) -> list[str]:
    """Return the events of the machine on the line."""
    return _matching([name for bound in _machines_on_line(context) for name in bound.table.events], incomplete)


def _matching(names: list[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.lower().startswith(incomplete.lower())]


def _machines_on_line(context: typer.Context) -> list[BoundMachine]:
    # After an option without its value, the parser has not assigned the words yet.
    words: list[object] = [context.params.get("target"), *context.args]
    target = next((word for word in words if isinstance(word, str) and ":" in word), None)
    if target is None:
        return []
    silent = io.StringIO()
    with contextlib.suppress(Exception), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        return [BoundMachine(machine) for machine in load_machines(target)]
    return []
