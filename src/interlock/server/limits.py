"""What the server bounds: sizes, times and how many of everything (G6).

Each bound is a clear answer when it is reached (413, 408, 429 or 503), and never a slow death.
"""

import msgspec

from interlock.errors import DefinitionError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one app; all of them are numbers above 0."""

    connections_max: int = 10_000
    """Connections at once, of `interlock serve`; a server that you mount the app in has bounds of its own."""

    head_bytes_max: int = 65_536
    """The head of one request: its address and its headers. Of `interlock serve`, as above."""

    head_s: float = 15.0
    """How long a head may take, and how long a new connection may say nothing. Of `interlock serve`, as above."""

    body_bytes_max: int = 2_097_152
    """The body of one request, and one line of a batch. A context may have half of it."""

    body_s: float = 30.0
    """How long the next piece of a body may take."""

    request_s: float = 60.0
    """How long one answer may take. Streams and batches are bounded piece by piece instead."""

    unread_s: float = 60.0
    """How long a client may take nothing of what was written to it, before it is cut off. Of `interlock serve`."""

    requests_max: int = 10_000
    """Requests under way at once."""

    batch_lines_max: int = 100_000
    """Lines of one batch."""

    batch_group_max: int = 125
    """Lines of a batch that are handed over together; what is decided together is up to the engine."""

    batch_answer_bytes_max: int = 67_108_864
    """Answers of one batch that wait for a client which sends and does not read."""

    streams_max: int = 200
    """Streams of events at once."""

    stream_events_max: int = 10_000
    """Events that a stream which was cut off can catch up with."""

    stream_alive_s: float = 15.0
    """How often a silent stream says that it is there."""

    stream_s: float = 30.0
    """How long one stream of a mounted app lasts: the client continues it, and a server that stops is not kept."""

    databases_max: int = 100
    """Databases that are open at once."""

    statements_max: int = 100
    """Statements of one transaction."""

    rows_max: int = 10_000
    """Rows of one answer."""

    ready_s: float = 2.0
    """How long the store may take to answer before the server says that it is not ready."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise DefinitionError(
                    f"Limits.{name} is {getattr(self, name)!r}; it must be above 0.",
                    why="With nothing allowed, nothing could ever be answered.",
                    fix=f"Give {name} a number above 0.",
                    rule="value-out-of-range",
                )
