"""The load and the place of an experiment: closed-loop clients, and databases that are removed afterwards.

Each client sends its next request as soon as the last was answered, so the rate is the lane's with that number of
clients, not a generator's. All clients start together, and the last answer is awaited: no request is interrupted.
An existing place is refused, so that only databases of the experiment are removed.
"""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

import msgspec

from interlock.clock import RandomIds
from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.file import lock_path
from interlock.lanes.objectlog.bucket_protocol import BucketError
from interlock.urls import (
    LANE_SUFFIX,
    PostgresAddress,
    has_schema,
    is_bucket_url,
    is_postgres_url,
    lane_path,
    parse_bucket_url,
    parse_postgres_url,
    redact_postgres_url,
    redact_url,
    with_schema,
)

if TYPE_CHECKING:
    from interlock.postgres.pool import Link

# --- Bounds and points -----------------------------------------------------------------------------------------------

ROUNDS: Final = 3
"""Number of rounds per setting, with the settings in turns; a point is the median of its rounds."""

SECONDS_MAX: Final = 60.0

PointT = TypeVar("PointT", bound=msgspec.Struct)


def median_point(rounds: Sequence[PointT], figures: Sequence[str]) -> PointT:
    """Return the rounds of one setting as one point, with the median of each of these figures."""
    medians = {name: statistics.median(getattr(point, name) for point in rounds) for name in figures}
    return msgspec.structs.replace(rounds[0], **medians)


def refuse_out_of_bounds(wrong: Sequence[str]) -> None:
    """Raise BadUsage for the first value that is out of bounds, if any."""
    if wrong:
        raise BadUsage(
            f"the experiment cannot have {wrong[0]}.",
            why="It is bounded in time and number, so that it always ends.",
            fix="Choose a number from this range.",
        )


# --- Clients ---------------------------------------------------------------------------------------------------------

Ask = Callable[[], Awaitable[object]]


class Load(NamedTuple):
    """Rate and latencies that the clients measured."""

    answers: int
    seconds: float
    cpu_s: float
    latencies_s: list[float]
    """Sorted."""

    @property
    def per_s(self) -> float:
        """The rate of answers."""
        return self.answers / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time per answer, in microseconds."""
        return 1e6 * self.cpu_s / self.answers

    def latency_ms(self, share: float) -> float:
        """Return the latency that this share of the answers did not exceed."""
        count = len(self.latencies_s)
        return 1e3 * self.latencies_s[min(count - 1, int(share * count))]


async def ask_within(seconds: float, asks: Sequence[Ask]) -> Load:
    """Run one client per request for `seconds`; the rate counts until the last answer within that time.

    The last answers arrive when most clients have stopped, and a rate that includes them would be that of fewer
    clients. Late answers are awaited, too, and their latencies are kept: they are the longest.
    """
    latencies: list[float] = []
    answers = 0
    cpu = time.process_time()
    begun = last = time.perf_counter()
    end = begun + seconds
    used = 0.0

    async def client(ask: Ask) -> None:
        nonlocal answers, last, used
        sent = begun
        while True:
            await ask()
            answered = time.perf_counter()
            latencies.append(answered - sent)
            late = answered >= end
            if late and not used:
                used = time.process_time() - cpu
            if not late or not answers:  # Without an answer in time, the first late one counts.
                answers += 1
                last = answered
            if late:
                return
            sent = answered

    async with asyncio.TaskGroup() as group:
        for ask in asks:
            group.create_task(client(ask))
    return Load(answers, last - begun, used, sorted(latencies))


# --- Place -----------------------------------------------------------------------------------------------------------
# An address names a place that does not exist yet: a folder of lanes, a folder of a bucket, schemas of PostgreSQL.
# Without an address the place is a temporary folder; in memory there is nothing to remove.

Kind = Literal["lane", "memory", "bucket", "postgres"]

PREFIX: Final = "interlock-bench-"
SCHEMA_CHARACTERS_MAX: Final = 40
"""Bound on the schema in an address: the experiment appends its own names to it."""

REQUEST_TIMEOUT_S: Final = 30.0
DELETED_AT_ONCE: Final = 500

SCHEMAS = "SELECT nspname::text FROM pg_namespace WHERE nspname = $1 OR nspname LIKE $2"


@dataclass(frozen=True, slots=True)
class Ground:
    """The place of one run."""

    kind: Kind
    public_url: str
    """The address, without secrets."""
    cache: Path
    """A folder for local files of databases in buckets."""
    before: str
    after: str = ""
    """The parts of an address before and after the name of a database."""

    def address(self, name: str) -> str:
        """Return the address of one of the experiment's databases; its name has letters, digits and underscores."""
        return self.before if self.kind == "memory" else f"{self.before}{name}{self.after}"


@asynccontextmanager
async def ground(url: str | None) -> AsyncGenerator[Ground]:
    """Make a fresh place at the address, and remove it afterwards. Raises BadUsage when the place exists."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        cache = Path(folder) / "cache"
        if url is None:
            yield Ground("lane", "a temporary folder", cache, f"lanes://{folder}/")
        elif url == "memory:":
            yield Ground("memory", url, cache, url)
        elif is_bucket_url(url):
            async with _bucket_ground(url, cache) as found:
                yield found
        elif is_postgres_url(url):
            async with _postgres_ground(url, cache) as found:
                yield found
        else:
            with_suffix = lane_path(url)
            assert with_suffix is not None, "memory was asked for above"
            path = with_suffix.with_name(with_suffix.name.removesuffix(LANE_SUFFIX))
            if path.exists() or with_suffix.exists() or lock_path(with_suffix).exists():
                raise _place_exists(url)
            try:
                yield Ground("lane", url, cache, f"{url.rstrip('/')}/")
            finally:
                shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def _bucket_ground(url: str, cache: Path) -> AsyncGenerator[Ground]:
    address = parse_bucket_url(url)
    place, mark, options = url.partition("?")
    from interlock.lanes.objectlog.remote_bucket import open_bucket  # noqa: PLC0415 -- an extra, which may not be installed.

    bucket = open_bucket(address, request_timeout_s=REQUEST_TIMEOUT_S)
    with _bucket_errors(url):
        taken = bool(bucket.keys(""))
    if taken:
        raise _place_exists(url)
    try:
        yield Ground("bucket", redact_url(url), cache, f"{place.rstrip('/')}/", mark + options)
    finally:
        with _bucket_errors(url):
            left = bucket.keys("")
            for begin in range(0, len(left), DELETED_AT_ONCE):
                bucket.delete(left[begin : begin + DELETED_AT_ONCE])


@contextmanager
def _bucket_errors(url: str) -> Generator[None]:
    try:
        yield
    except BucketError as error:
        raise UnavailableError(
            f"the bucket of {redact_url(url)} cannot be listed or cleaned: {error}.",
            why="The experiment looks whether its folder is empty, and empties it at the end.",
            fix="Check the address, the network, and the rights to list and to delete.",
        ) from error


@asynccontextmanager
async def _postgres_ground(url: str, cache: Path) -> AsyncGenerator[Ground]:
    address = parse_postgres_url(url)
    base = address.schema if has_schema(url) else f"interlock_bench_{RandomIds().new().hex[:8]}"
    if len(base) > SCHEMA_CHARACTERS_MAX:
        raise BadUsage(
            f"the schema {base!r} is too long a name for the experiment: at most {SCHEMA_CHARACTERS_MAX} characters.",
            why="The experiment makes several schemas, whose names begin with this one.",
            fix="Name a shorter one, or none at all.",
        )
    if await _existing_schemas(address, base):
        raise _place_exists(url)
    try:
        yield Ground("postgres", address.redacted_url, cache, with_schema(url, f"{base}_"))
    finally:
        await _drop_schemas(address, base)


@asynccontextmanager
async def _link(address: PostgresAddress) -> AsyncGenerator["Link"]:
    from interlock.postgres.pool import connected  # noqa: PLC0415 -- an extra, which may not be installed.

    link = await connected(address)
    try:
        yield link
    finally:
        await link.end(address.connect_timeout_s)


async def _existing_schemas(address: PostgresAddress, base: str) -> list[str]:
    async with _link(address) as link:
        rows = await link.read(SCHEMAS, (base, base.replace("_", r"\_") + r"\_%"))
    return [str(row[0]) for row in rows]


async def _drop_schemas(address: PostgresAddress, base: str) -> None:
    for schema in await _existing_schemas(address, base):
        # One transaction each: it locks every table of the schema, and a server bounds its number of locks.
        async with _link(address) as link:
            await link.script(f"DROP SCHEMA {schema} CASCADE")


def _place_exists(url: str) -> BadUsage:
    address = redact_postgres_url(url) if is_postgres_url(url) else redact_url(url)
    return BadUsage(
        f"there is something at {address} already.",
        why="The experiment makes databases of its own there and removes them afterwards; yours are not touched.",
        fix="Name a place that does not exist yet, on the disk, bucket or server to be measured.",
    )
