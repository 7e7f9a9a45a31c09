"""The declarations of a program that serves: `App` with its webhooks, and the limits of a server.

    app = App(machines=[order], dependencies=[Dependency("gateway")], webhooks=[Webhook("stripe", secret=…, map=…)])

An App opens nothing: the home of the workflows is passed when it is served. `Limits` bounds sizes, times and numbers of
everything that a client can make grow (G6); a request that reaches a bound is answered with 413, 408, 429 or 503.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from interlock.core.events import Event
from interlock.core.policies import Dependency
from interlock.engine.bound_machine import AnyMachine
from interlock.errors import DefinitionError
from interlock.hotrow.tools import Tool

SIGNATURES_MAX = 20
NAME_CHARACTERS_MAX = 100
PREFIX = "whsec_"

Mapped = tuple[str, Event | str, str | None]
"""The workflow, the event (or its name, if it has no fields), and its key; None for the delivery's own id."""

Mapper = Callable[[dict[str, object], str], Mapped | Awaitable[Mapped | None] | None]
"""Maps a payload and the id of its delivery to the event to send; None for a payload to ignore."""


class Webhook:
    """A source of webhooks: its name in the address, its secret (or several, during a change), and its mapper."""

    def __init__(self, source: str, *, secret: str | Sequence[str], map: Mapper) -> None:  # noqa: A002 -- the public name.
        secrets = (secret,) if isinstance(secret, str) else tuple(secret)
        wrong = None
        if not source or "/" in source or not source.isprintable() or len(source) > NAME_CHARACTERS_MAX:
            wrong = f"the source {source!r:.100} is not a part of an address"
        elif not secrets or not all(isinstance(each, str) and each.removeprefix(PREFIX) for each in secrets):
            wrong = f"the source {source!r} has no secret"
        elif not callable(map):
            wrong = f"the mapper of {source!r} cannot be called"
        if wrong is not None:
            raise DefinitionError(
                f"{wrong}.",
                why="A delivery is verified by its secret, and mapped to an event by its mapper.",
                fix='Write Webhook("stripe", secret="whsec_…", map=function).',
                rule="bad-webhook",
            )
        self.source = source
        self.map = map
        self._keys = tuple(key for each in secrets for key in _keys(each))

    def __repr__(self) -> str:
        return f"Webhook({self.source!r}, secret=…)"

    def signed(self, delivery: str, timestamp: str, body: bytes, signatures: str) -> bool:
        """Return whether one of the signatures is valid. Takes the same time for an invalid one."""
        content = f"{delivery}.{timestamp}.".encode() + body
        expected = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in self._keys]
        found = False
        for each in signatures.split(" ")[:SIGNATURES_MAX]:
            version, _, signature = each.partition(",")
            for known in expected:
                found |= version == "v1" and hmac.compare_digest(known, signature.encode())
        return found


def _keys(secret: str) -> list[bytes]:
    """Return the keys for a secret. Without the prefix, senders disagree on whether it is base64; both are accepted."""
    plain = secret.removeprefix(PREFIX)
    keys = [] if plain is not secret and plain != secret else [secret.encode()]
    try:
        keys.append(base64.b64decode(plain, validate=True))
    except (binascii.Error, ValueError):
        if not keys:
            keys.append(plain.encode())
    return [key for key in keys if key]


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
    """Machines, dependencies, webhooks and tools of one server."""

    def __init__(
        self,
        *,
        machines: Sequence[AnyMachine],
        dependencies: Sequence[Dependency] = (),
        webhooks: Sequence[Webhook] = (),
        tools: Sequence[Tool] = (),
    ) -> None:
        if not machines:
            raise DefinitionError(
                "machines= is empty.",
                why="A server runs the machines of its App, and needs at least one.",
                fix="Pass them: App(machines=[order]).",
                rule="no-machine",
            )
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
