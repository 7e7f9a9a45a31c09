"""The declarations of a program that serves: `App` with its webhooks, and the limits of a server.

    app = App(machines=[order], dependencies=[Dependency("gateway")], webhooks=[Webhook("stripe", secret=…, map=…)])

An App opens nothing: the home of the workflows is passed when it is served. `Limits` bounds sizes, times and numbers of
everything that a client can make grow (G6); a request that reaches a bound is answered with 413, 408, 429 or 503.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from interlock.core.events import Event
from interlock.core.policies import Dependency
from interlock.engine.bound_machine import AnyMachine
from interlock.engine.open_engine import refuse_other_machines
from interlock.engine.path.caller_commands import Beginning
from interlock.engine.schedules import Schedule
from interlock.errors import DefinitionError
from interlock.hotrow.tool_declarations import Tool
from interlock.server.webhook_signatures import (
    PREFIX,
    SCHEMES,
    Header,
    Scheme,
    keys_of,
    matches,
    standard_content,
    verify,
    with_version,
)

NAME_CHARACTERS_MAX = 100

Mapped = tuple[str, Event | str, str | None] | tuple[str, Event, str | None, Beginning]
"""The workflow, the event (or its name, if it has no fields), and its key; None for the delivery's own id.

A fourth part, `(machine, context)`, starts a workflow that does not exist (E5).
"""

Mapper = Callable[[dict[str, object], str], Mapped | Awaitable[Mapped | None] | None]
"""Maps a payload and the id of its delivery to the event to send; None for a payload to ignore."""


class Webhook:
    """A source of webhooks: its name in the address, its secret (or several, during a change), and its mapper.

    `scheme` is how the sender signs: "standard" (Standard Webhooks), "stripe", "github", "shopify" or "slack".
    """

    def __init__(
        self,
        source: str,
        *,
        secret: str | Sequence[str],
        map: Mapper,  # noqa: A002 -- the public name.
        scheme: Scheme = "standard",
    ) -> None:
        unchecked: object = secret  # Often a variable of the environment, which may be unset.
        secrets = () if unchecked is None else (secret,) if isinstance(secret, str) else tuple(secret)
        wrong, fix = None, 'Write Webhook("stripe", scheme="stripe", secret="whsec_…", map=function).'
        if not source or "/" in source or not source.isprintable() or len(source) > NAME_CHARACTERS_MAX:
            wrong = f"the source {source!r:.100} is not a part of an address"
        elif not secrets or not all(isinstance(each, str) and each.removeprefix(PREFIX) for each in secrets):
            wrong = f"the source {source!r} has no secret"
            fix = "Pass the signing secret. If it comes from the environment, set the variable."
        elif not callable(map):
            wrong = f"the mapper of {source!r} cannot be called"
        elif not _takes_two(map):
            wrong = f"the mapper of {source!r} does not take two arguments"
            fix = "Declare it as: def mapper(payload: dict[str, object], delivery_id: str)."
        elif scheme not in SCHEMES:
            wrong = f"the scheme {scheme!r:.100} of {source!r} is unknown; there are {', '.join(SCHEMES)}"
        if wrong is not None:
            raise DefinitionError(
                f"{wrong}.",
                why="A delivery is verified by its secret, and mapped to an event by its mapper.",
                fix=fix,
                rule="bad-webhook",
            )
        self.source = source
        self.map = map
        self.scheme: Scheme = scheme
        self._keys = tuple(key for each in secrets for key in keys_of(scheme, each))

    def __repr__(self) -> str:
        return f"Webhook({self.source!r}, secret=…)"

    def verify(self, header: Header, body: bytes, now_s: float) -> str | None:
        """Return the id of a delivery with a valid and fresh signature, or None."""
        return verify(self.scheme, self._keys, header, body, now_s)

    def signed(self, delivery: str, timestamp: str, body: bytes, signatures: str) -> bool:
        """Return whether one of these signatures of Standard Webhooks is valid."""
        content = standard_content(delivery, timestamp, body)
        return matches("standard", self._keys, content, with_version(signatures, "v1"))


def _takes_two(mapper: Mapper) -> bool:
    """Return whether a mapper can be called with a payload and an id; True where that cannot be known."""
    try:
        inspect.signature(mapper).bind({}, "")
    except TypeError:
        return False
    except ValueError:  # Some built-ins have no signature.
        return True
    return True


def by_source(webhooks: Sequence[Webhook]) -> dict[str, Webhook]:
    """Return the webhooks by name. Raises DefinitionError for two of one name."""
    found: dict[str, Webhook] = {}
    for webhook in webhooks:
        entry: object = webhook  # Programs without a type checker may pass anything.
        if not isinstance(entry, Webhook) or entry.source in found:
            raise DefinitionError(
                f"webhooks= has {entry!r:.200}, "
                + ("a second time." if isinstance(entry, Webhook) else "which is not a Webhook."),
                why="The source in the address names one of them.",
                fix='Pass each once: webhooks=[Webhook("stripe", secret=…, map=…)].',
                rule="bad-webhook",
            )
        found[entry.source] = entry
    return found


class App:
    """Machines, dependencies, webhooks, tools, schedules and resources of one server."""

    def __init__(
        self,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency] = (),
        webhooks: Sequence[Webhook] = (),
        tools: Sequence[Tool] = (),
        schedules: Sequence[Schedule] = (),
        provide: Sequence[object] = (),
    ) -> None:
        if not machines:
            raise DefinitionError(
                "machines= is empty.",
                why="A server runs the machines of its App, and needs at least one.",
                fix="Pass them: App(machines=[order]).",
                rule="no-machine",
            )
        refuse_other_machines(machines)
        for tool in tools:
            entry: object = tool  # Programs without a type checker may pass anything.
            if not isinstance(entry, Tool):
                raise DefinitionError(
                    f"tools= has {entry!r:.200}, which is not a Tool.",
                    why="A tool declares a workload and its latency and rate.",
                    fix='Pass Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500).',
                    rule="bad-tool",
                )
        self.machines = tuple(machines)
        self.dependencies = tuple(dependencies)
        self.webhooks = tuple(by_source(webhooks).values())
        self.tools = tuple(tools)
        self.schedules = tuple(schedules)
        self.provide = tuple(provide)

    def __repr__(self) -> str:
        return f"App(machines=[{', '.join(machine.name for machine in self.machines)}])"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one app; all of them are numbers above 0."""

    connections_max: int = 10_000
    """Open connections of `interlock serve`; a server that you mount the app in has bounds of its own."""

    head_bytes_max: int = 65_536
    """The head of one request: its address and its headers. Only in `interlock serve`."""

    head_s: float = 15.0
    """How long a head may take, and how long a new connection may stay silent. Only in `interlock serve`."""

    body_bytes_max: int = 2_097_152
    """The body of one request, and one line of a batch. A context may have half of this."""

    body_s: float = 30.0
    """How long the next piece of a body may take."""

    request_s: float = 60.0
    """How long one answer may take. Streams and batches are bounded piece by piece instead."""

    unread_s: float = 60.0
    """How long a client may read nothing of its answer before it is disconnected. Only in `interlock serve`."""

    requests_max: int = 10_000
    """Requests under way concurrently."""

    batch_lines_max: int = 100_000
    """Lines of one batch."""

    batch_group_max: int = 125
    """Lines of a batch that are passed to the engine together; the engine forms its own groups."""

    batch_answer_bytes_max: int = 67_108_864
    """Bytes of a batch's answers that wait for a client which sends and does not read."""

    streams_max: int = 200
    """Open streams of events."""

    stream_events_max: int = 10_000
    """Events that are kept for streams which reconnect."""

    stream_alive_s: float = 15.0
    """How often a silent stream sends a sign of life."""

    stream_s: float = 30.0
    """How long one stream of a mounted app lasts; the client reconnects, so that a stopping server does not wait."""

    databases_max: int = 100
    """Open databases."""

    statements_max: int = 100
    """Statements of one transaction."""

    rows_max: int = 10_000
    """Rows of one answer."""

    ready_s: float = 2.0
    """How long the store may take to answer before `/readyz` fails."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise DefinitionError(
                    f"Limits.{name} is {getattr(self, name)!r}; it must be above 0.",
                    why="With a limit of 0 no request could be answered.",
                    fix=f"Set {name} to a number above 0.",
                    rule="value-out-of-range",
                )
