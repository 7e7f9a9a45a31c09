"""Arguments of commands: strict parsers, commands over many ids, and shell completion.

Ids, JSON, states and durations are parsed before anything is changed; an error names the wrong value and the allowed
ones. Of many ids each has its own result, and a failure does not stop the others.
"""

import asyncio
import contextlib
import io
import re
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import Annotated, TypeVar, cast

import msgspec
import typer

from interlock.cli.console import Exit, ListingFormat, ResultFormat, counting, exit_for, show_error
from interlock.cli.load_machines import load_machines
from interlock.core.decide import suggestion
from interlock.core.events import Event
from interlock.engine.bound_machine import BoundMachine
from interlock.errors import BadUsage, InterlockError, InternalError, InvalidPayload

# --- Options of several commands --------------------------------------------------------------------------------------

LIMIT_MAX = 10_000

Output = Annotated[ListingFormat, typer.Option("--output", "-o", help="A table, JSON, or only the ids.")]
OutputOfOne = Annotated[ResultFormat, typer.Option("--output", "-o", help="Text for people, or JSON.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=LIMIT_MAX, help="The maximum number of results.")]
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
