"""The settings of a lane: its timeouts, bounds and signals (D16, G6).

Each has a least value and must be finite: a bound that is not a bound would be noticed only under load. A count is an
int and a switch is a bool, exactly: half a reader means nothing, and the text "no" would be true.
"""

import msgspec

from interlock.errors import DefinitionError


class LaneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound of a lane has its name here; reaching one is a clear error or backpressure, never a slow death."""

    group_commit_window: float = 0.0
    """Seconds to wait for further transactions before a group starts. 0: natural batching, without a wait."""

    group_commit_max_batch: int = 1_000
    """Transactions in one group."""

    queue_max: int = 10_000
    """Transactions that may wait; one more is refused with Overloaded."""

    statement_timeout_s: float = 30.0
    """How long one statement may run."""

    transaction_timeout_s: float = 5.0
    """How long one function given to `transact`, or one interactive transaction, may hold the lane."""

    seal_wait_s: float = 10.0
    """How long a group waits for a mover that has sealed the lane; then it is refused, and did not happen."""

    wal_bytes_max: int = 16_777_216
    """The write-ahead log is folded into the database file when it is larger than this."""

    keys_max: int = 1_000_000
    """Idempotency keys kept; the oldest go first."""

    keys_retained_s: float = 7 * 24 * 3_600.0
    """How long a key is kept."""

    key_result_bytes_max: int = 1_048_576
    """The largest result that is kept with a key."""

    readers_max: int = 4
    """Connections that read beside the writer. The threads for them are shared by all lanes of the process: a lane has
    its first before others have their second, and further ones only while half of them are free."""

    idle_s: float = 1.0
    """A lane without work gives its thread back after this time, and its files a little later."""

    db_per_write_stream: bool = False
    """Each key given to `Database.stream` has a database of its own."""

    counter_shard_count: int = 16
    """Parts of a sharded counter that is made with this database; on a lane each is a database of its own."""

    counter_kind: str = "auto"
    """The kind of a counter that is opened without one: auto, exact, sharded or event_log."""

    streams_max: int = 1_000
    """Streams open simultaneously below one database. One more closes the least recently requested one, if it rests."""

    contention_rows_max: int = 1_000
    """Rows that the contention signal remembers."""

    contention_flag_threshold: float = 50.0
    """A row with more serialized hand-offs per second than this is flagged."""

    contention_flag_wait_s: float = 0.0
    """A row whose handed-off writes wait longer than this in the mean is flagged as well; 0 flags by rate alone."""

    lease_s: float = 10.0
    """On a bucket: another process may take the lane over when its owner has shown no sign of life for this time."""

    append_deadline_s: float = 30.0
    """On a bucket: how long an append without a clear answer is retried; then its outcome is unknown."""

    request_timeout_s: float = 10.0
    """On a bucket: how long one request may take."""

    snapshot_bytes_min: int = 4_194_304
    """On a bucket: how much the log after the last snapshot weighs before another is taken (a group counts 4 KiB)."""

    snapshots_retained: int = 2
    """On a bucket: how many snapshots are always kept."""

    retention_s: float = 24 * 3_600.0
    """On a bucket: for how long every state can be restored."""

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value: object = getattr(self, name)
            if kind is bool:
                good, allowed = isinstance(value, bool), "True or False"
            elif name in CHOICES:
                good, allowed = value in CHOICES[name], f"one of {', '.join(CHOICES[name])}"
            else:
                least, most = _LEAST.get(name, 1), _MOST.get(name, MOST)
                good, allowed = _within(value, kind, least, most), f"{_ALLOWED[kind]} from {least:g} to {most:,}"
            if not good:
                raise DefinitionError(
                    f"{name} is {value!r}; it must be {allowed}.",
                    why="A bound that is not a bound would be noticed only under load.",
                    fix=f"Give {name} {allowed}.",
                    rule="value-out-of-range",
                )


KINDS: dict[str, type[float]] = {field.name: field.type for field in msgspec.structs.fields(LaneSettings)}
"""Every setting, and whether it is a switch, a count or a number of seconds; those of `CHOICES` are texts."""

CHOICES: dict[str, tuple[str, ...]] = {"counter_kind": ("auto", "exact", "sharded", "event_log")}
"""Settings that are one of a few words."""

_ALLOWED: dict[type[float], str] = {int: "a whole number", float: "a number"}


def _within(value: object, kind: type[float], least: float, most: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and isinstance(value, float)):
        return False
    return least <= value <= most


MOST = 4_000_000_000
"""The upper limit of every bound: a larger one would bound nothing, and a thread cannot wait so long."""

COUNTER_SHARDS_MAX = 256
"""Each shard is a row, on lanes a database of its own, and reading a counter reads all of them."""

_MOST: dict[str, int] = {"counter_shard_count": COUNTER_SHARDS_MAX}
"""Settings with a lower limit of their own."""

_LEAST: dict[str, float] = {
    "group_commit_window": 0.0,
    "statement_timeout_s": 0.001,
    "transaction_timeout_s": 0.001,
    "seal_wait_s": 0.001,
    "wal_bytes_max": 65_536,
    "key_result_bytes_max": 64,
    "idle_s": 0.0,
    "contention_flag_threshold": 0.0,
    "contention_flag_wait_s": 0.0,
    "lease_s": 0.1,
    "append_deadline_s": 0.1,
    "request_timeout_s": 0.01,
    "snapshot_bytes_min": 4_096,
    "retention_s": 0.0,
}
"""The least value of a setting; of all others it is 1."""
