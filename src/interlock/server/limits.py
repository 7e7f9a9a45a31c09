"""Bounds of the server: sizes, times and numbers of everything that a client can make grow (G6).

A request that reaches a bound is answered with 413, 408, 429 or 503.
"""

import msgspec

from interlock.errors import DefinitionError


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
