"""The guard: authenticates a request by its headers, in a few microseconds; and the audit log of operators.

It holds all keys of the home, read at most a second ago: every process refuses a revoked key within a second. `fresh`
reads them again, ahead of time and for all requests together; `check` uses the keys in memory. While the keys cannot
be read, the last ones are valid for `STALE_S_MAX`; then every request is refused.

Without keys the server listens on loopback, and every client may do everything. A page in a local browser is a client
too. A request must therefore not come from a foreign page (Origin, Sec-Fetch-Site) nor use a foreign name (Host, DNS
rebinding). Once the guard has loaded a key, it always requires one.
"""

import asyncio
import ipaddress
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from interlock.clock import Clock, Ids, RandomIds
from interlock.errors import BadUsage, InterlockError, NotAuthenticated, NotPermitted, UnavailableError
from interlock.redaction import redacted_text, redacted_value
from interlock.server.security.keys import (
    DIGEST_BYTES,
    LADDER,
    SALT_BYTES,
    KeyBounds,
    KeyRecord,
    KeyStore,
    Scope,
    has_digest,
    parse_key,
    with_lower_scopes,
)

FRESH_S = 0.5
"""Age of the keys after which they are read again in the background."""

LATE_S = 1.0
"""Age of the keys after which a request waits for them: a revoked key is refused after this time."""

STALE_S_MAX = 10.0
"""How long the last keys are valid while they cannot be read."""

READ_TIMEOUT_S = 5.0
USES_EVERY_S = 60.0
"""Uses are stored at most this often, rounded to the hour."""

ACTOR_CHARACTERS_MAX = 200
"""Length of an actor's name: that of an id."""

_UNKNOWN_KEY = (bytes(SALT_BYTES), bytes(DIGEST_BYTES))
"""Compared for an unknown id, so that it takes the same time as a wrong secret."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The client of a request: its key, scopes and limits. It holds no secret, so it may be logged."""

    key: str
    """The id of the key; empty without one."""
    name: str
    scopes: frozenset[Scope]
    """All scopes that the key's scopes cover."""
    limits: KeyBounds = field(default_factory=KeyBounds)
    actor: str = field(init=False, compare=False, repr=False)
    """Its name in history and logs."""

    def __post_init__(self) -> None:
        """Compose the name once: every event has it."""
        object.__setattr__(self, "actor", str(self))

    def acting(self, by: str) -> str:
        """Return the actor of a request (F1): this client, with the person whom it names.

        Both are recorded, so no key can act in another's name unseen.
        """
        most = ACTOR_CHARACTERS_MAX - len(self.actor) - len(" with ")
        return f"{by[:most]} with {self.actor}" if by and most > 0 else self.actor

    @property
    def limited(self) -> bool:
        """Whether limits restrict it to some machines or ids."""
        return bool(self.limits.machines or self.limits.prefixes)

    def allows(self, machine: str | None, workflow: str | None) -> bool:
        """Return whether a machine and an id are inside its limits; an unknown one (None) is not checked."""
        limits = self.limits
        if limits.machines and machine is not None and machine not in limits.machines:
            return False
        return not limits.prefixes or workflow is None or workflow.startswith(limits.prefixes)

    def covers(self, machine: str | None, workflow: str | None) -> bool:
        """Return whether a machine and an id are certainly inside its limits; an unknown one (None) is not."""
        if (self.limits.machines and machine is None) or (self.limits.prefixes and workflow is None):
            return False
        return self.allows(machine, workflow)

    def require(
        self, scope: Scope, *, machine: str | None = None, workflow: str | None = None, whole: bool = False
    ) -> None:
        """Raise NotPermitted unless it may act on this workflow; `whole` is for the whole home, without limits."""
        if scope not in self.scopes:
            raise NotPermitted(
                f"{self} has no scope {scope}; it has {', '.join(each for each in LADDER if each in self.scopes)}.",
                fix=f"Use a key of scope {scope}: interlock keys create --scope {scope}.",
            )
        if not self.allows(machine, workflow):
            raise NotPermitted(f"{self} is limited to {self._limited_to()}, and this is not among them.")
        if whole and self.limited:
            raise NotPermitted(
                f"{self} is limited to {self._limited_to()}, and this is about all workflows.",
                why="The request concerns the whole home, which cannot be shown or changed in part.",
                fix="Use a key without limits.",
            )

    def __str__(self) -> str:
        if not self.key:
            return self.name
        return f"the key {self.key} ({self.name})" if self.name else f"the key {self.key}"

    def _limited_to(self) -> str:
        machines = f"machines {', '.join(self.limits.machines)}" if self.limits.machines else ""
        prefixes = f"ids that begin with {', '.join(self.limits.prefixes)}" if self.limits.prefixes else ""
        return " and ".join(filter(None, (machines, prefixes)))


LOCAL: Final = Identity("", "local", frozenset(Scope))
"""Any client of a server without keys, which listens on loopback only."""

MOUNTED: Final = Identity("", "mounted", frozenset(Scope))
"""Any client that is admitted by the program into which the server is mounted."""


class _LoadedKey(NamedTuple):
    record: KeyRecord
    identity: Identity
    expires_s: float


class Guard:
    """Authenticates and authorizes requests. Belongs to one event loop."""

    def __init__(self, store: KeyStore | None, *, clock: Clock, hosts: frozenset[str] = frozenset()) -> None:
        """`hosts` are names of a server without keys that are accepted beside those of loopback."""
        self._store = store
        self._clock = clock
        self._hosts = hosts
        self._host: str | None = None
        """The last accepted Host header: most requests have the same, and parsing an address is slow."""
        self._records: tuple[KeyRecord, ...] | None = None if store else ()
        self._keys: dict[str, _LoadedKey] = {}
        self._keyed = False
        self._trusting = False
        self._read_s = float("-inf")
        self._tried_s = float("-inf")
        self._stored_s = clock.monotonic_s()
        self._used: set[str] = set()
        self._reading: asyncio.Task[None] | None = None
        self._failure: InterlockError | None = None

    @classmethod
    def trusting(cls, clock: Clock) -> "Guard":
        """Return a guard that permits everything, for a server mounted into a program that has its own guard."""
        guard = cls(None, clock=clock)
        guard._trusting = True
        return guard

    @property
    def has_keys(self) -> bool:
        """Whether requests need a key; without keys the server listens on loopback only."""
        return self._keyed

    @property
    def is_fresh(self) -> bool:
        """Whether the keys are fresh, so that `fresh` has nothing to do."""
        return self._store is None or self._clock.monotonic_s() - self._read_s < FRESH_S

    async def fresh(self) -> None:
        """Ensure that the keys were read within the last second; they nearly always were.

        Raises UnavailableError when they could not be read for `STALE_S_MAX`.
        """
        if self._store is None:
            return
        now_s = self._clock.monotonic_s()
        age_s = now_s - self._read_s
        if age_s < FRESH_S:
            return
        if self._reading is None and now_s - self._tried_s >= FRESH_S:
            self._tried_s = now_s
            self._reading = asyncio.ensure_future(self._read(self._store, now_s))
        if age_s >= LATE_S and self._reading is not None:
            await asyncio.wait({self._reading}, timeout=READ_TIMEOUT_S)
        self._refuse_stale()

    def check(
        self, headers: Mapping[bytes, bytes], scope: Scope, machine: str | None = None, workflow: str | None = None
    ) -> Identity:
        """Return the identity of the client if it may act on this workflow. Header names are in lower case, as in ASGI.

        Raises NotAuthenticated (401) without a valid key, and NotPermitted (403) for an action that the key does not
        permit.
        """
        identity = self.identify(headers)
        identity.require(scope, machine=machine, workflow=workflow)
        return identity

    def identify(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Return the client's identity. Raises NotAuthenticated; without keys, NotPermitted for a foreign page."""
        if self._trusting:
            return MOUNTED
        self._refuse_stale()
        if not self._keyed:
            self._refuse_foreign(headers)
            return LOCAL
        scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if not text:
            raise NotAuthenticated("the request has no API key.")
        key = parse_key(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise _refused("the request has an Authorization header that is not an API key of Interlock.")
        loaded = self._keys.get(key.id)
        salt, digest = _UNKNOWN_KEY if loaded is None else (loaded.record.salt, loaded.record.digest)
        if not has_digest(key.secret, salt, digest) or loaded is None:
            raise _refused("the API key of the request is not known here.")
        # Only a client that has the secret may learn the state of the key.
        if loaded.record.revoked_at is not None:
            raise _refused(f"the API key {key.id} was revoked at {loaded.record.revoked_at.isoformat()}.")
        if self._clock.wall_s() >= loaded.expires_s:  # An expiry is a date, so the wall clock decides.
            raise _refused(f"the API key {key.id} has expired.")
        self._used.add(key.id)
        return loaded.identity

    async def revalidate(self, identity: Identity) -> None:
        """Check again that an identity is valid, during a call longer than a request. Raises as `identify` does."""
        await self.fresh()
        if self._trusting:
            return
        self._refuse_stale()
        loaded = self._keys.get(identity.key)
        if not self._keyed and identity is LOCAL:
            return
        if (
            loaded is None
            or loaded.identity != identity
            or loaded.record.revoked_at
            or self._clock.wall_s() >= loaded.expires_s
        ):
            raise _refused("the API key of the request has expired or was revoked.")

    async def close(self) -> None:
        """Store the uses of keys, and close the store."""
        if self._reading is not None:
            await asyncio.wait({self._reading})
        if self._store is not None:
            await self._note_uses(self._store)
            await self._store.close()

    async def _read(self, store: KeyStore, began_s: float) -> None:
        try:
            if self._clock.monotonic_s() - self._stored_s >= USES_EVERY_S:
                await self._note_uses(store)
            records = await store.load()
            if records is not self._records:
                self._take(records)
            self._read_s, self._failure = began_s, None
        except InterlockError as error:
            self._failure = error
        finally:
            self._reading = None

    def _take(self, records: tuple[KeyRecord, ...]) -> None:
        self._records = records
        self._keyed = self._keyed or bool(records)
        self._keys = {
            record.id: _LoadedKey(
                record,
                Identity(record.id, record.name, with_lower_scopes(record.scopes), record.limits),
                float("inf") if record.expires_at is None else record.expires_at.timestamp(),
            )
            for record in records
        }

    async def _note_uses(self, store: KeyStore) -> None:
        self._stored_s = self._clock.monotonic_s()
        used, self._used = self._used, set()
        hour = datetime.fromtimestamp(self._clock.wall_s(), UTC).replace(minute=0, second=0, microsecond=0)
        news = {each: hour for each in used if each in self._keys and self._keys[each].record.last_used != hour}
        if news:
            try:
                await store.note_uses(news)
            except InterlockError:
                self._used |= used  # Uses are only informative; they are stored next time.

    def _refuse_stale(self) -> None:
        if self._records is None or (
            self._store is not None and self._clock.monotonic_s() - self._read_s > STALE_S_MAX
        ):
            reason = f": {self._failure.what}" if self._failure else "."
            raise UnavailableError(
                f"the API keys could not be read{reason}",
                why="A key may have been revoked meanwhile, so every request is refused.",
                fix="Make the home reachable again; the server then reads the keys again.",
            )

    def _refuse_foreign(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host != self._host:
            if not is_loopback(name_of_host(host)) and name_of_host(host) not in self._hosts:
                raise _foreign(f"the Host header of the request names {host[:100]!r}.")
            self._host = host
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2].lower() != host.lower():
            raise _foreign(f"the request comes from a page of {origin[:100].decode('latin-1')!r}.")
        if headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}:
            raise _foreign("the request comes from a page of another server.")


def _refused(what: str) -> NotAuthenticated:
    return NotAuthenticated(what, why="It is unknown, wrong, revoked or expired.", presented=True)


def _foreign(what: str) -> NotPermitted:
    return NotPermitted(
        what,
        why="Without API keys this server trusts local clients, and a page in a local browser could send requests.",
        fix="Call it by 127.0.0.1 or localhost, or make a key: interlock keys create --scope admin.",
    )


_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,@/\[\]]+)(?::[0-9]{1,5})?")


def check_address(host: str, *, keyed: bool) -> None:
    """Raise BadUsage for an address that other machines can reach while there are no keys.

    Names are not resolved, because a name's address can change after the check.
    """
    if keyed or is_loopback(host):
        return
    raise BadUsage(
        f"the server has no API keys, so it does not listen on {host!r}.",
        why="Without keys every client may do everything; only 127.0.0.1, ::1 and localhost are loopback.",
        fix="Make a key first, interlock keys create --scope admin --home …, or leave --host out.",
    )


def is_loopback(host: str) -> bool:
    """Return whether the name or address is certainly loopback."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def name_of_host(header: str) -> str:
    """Return the host in a Host header, without its port; empty for an invalid header."""
    found = _HOST.fullmatch(header)
    return found[1] if found else ""


# --- Audit log -------------------------------------------------------------------------------------------------------
# Every action of an operator, with its target, time, and values before and after. It is written durably before it is
# carried out, and again if it fails. No action can be missing; one that the process's death prevented may be logged
# too. The log is append-only, kept for `retention`, and bounded. Secrets are masked before anything is written.

RETENTION: Final = timedelta(days=400)
"""A year, and some weeks to review it."""

VALUE_BYTES_MAX = 16_384
"""Size of `before` and of `after`; a larger value is replaced by its size."""

TEXT_CHARACTERS_MAX = 500
"""Length of an action, a target or a name."""

ENTRIES_READ_MAX = 10_000
PRUNE_EVERY_S = 3_600.0


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One action of an operator."""

    id: str
    at: datetime
    key: str
    """The id of the key that was used; empty on the command line and without keys."""
    who: str
    action: str
    """The kind of action, such as `breaker.force` or `keys.revoke`."""
    target: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")
    failed: str = ""
    """The code of the error, in the entry for an action that failed."""


class Trail(Protocol):
    """A store of audit entries. There is one for each kind of home, and one suite of tests for all."""

    async def append(self, entry: AuditEntry) -> None:
        """Write an entry; it is durable when this returns."""
        ...

    async def read(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        ...

    async def prune(self, before: datetime) -> None:
        """Remove entries before this time; some may be removed later."""
        ...

    async def close(self) -> None:
        """Close connections, where there are any."""
        return  # A body that is only a docstring would be abstract.


class Audit:
    """The audit log of one home."""

    def __init__(self, trail: Trail, *, clock: Clock, ids: Ids | None = None, retention: timedelta = RETENTION) -> None:
        self._trail = trail
        self._clock = clock
        self._ids = ids or RandomIds()
        self._retention = retention
        self._pruned_s = float("-inf")

    async def record(
        self,
        identity: Identity,
        action: str,
        target: str,
        before: object,
        after: object,
        *,
        by: str = "",
        failed: str = "",
    ) -> AuditEntry:
        """Write one action; it is durable when this returns. `before` and `after` are any values that JSON can hold.

        `by` is the person whom the client names (F1).
        """
        now = datetime.fromtimestamp(self._clock.wall_s(), UTC)
        entry = AuditEntry(
            id=self._ids.text(),
            at=now,
            key=identity.key,
            who=_bounded(f"{by} with {identity.name or identity.actor}" if by else identity.name),
            action=_bounded(action),
            target=_bounded(target),
            before=_value(before),
            after=_value(after),
            failed=failed,
        )
        await self._trail.append(entry)
        if self._clock.monotonic_s() - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = self._clock.monotonic_s()
            await self._trail.prune(now - self._retention)
        return entry

    @asynccontextmanager
    async def action(
        self, identity: Identity, action: str, target: str, *, before: object, after: object, by: str = ""
    ) -> AsyncGenerator[AuditEntry]:
        """Write an action, then run the block that carries it out; if the block raises, write its failure too."""
        entry = await self.record(identity, action, target, before, after, by=by)
        try:
            yield entry
        except Exception as error:
            failed = error.code if isinstance(error, InterlockError) else "internal"
            await self.record(identity, action, target, before, None, by=by, failed=failed)
            raise

    async def read(self, limit: int = 100) -> list[AuditEntry]:
        """Return the newest entries, newest first."""
        return await self._trail.read(min(limit, ENTRIES_READ_MAX))

    async def close(self) -> None:
        """Close connections."""
        await self._trail.close()


def _value(value: object) -> msgspec.Raw:
    plain: object = msgspec.to_builtins(value, str_keys=True)
    encoded = msgspec.json.encode(redacted_value(plain))
    if len(encoded) > VALUE_BYTES_MAX:
        encoded = msgspec.json.encode({"left_out": f"{len(encoded):,} bytes; the audit log keeps {VALUE_BYTES_MAX:,}"})
    return msgspec.Raw(encoded)


def _bounded(text: str) -> str:
    masked = redacted_text(text)
    return masked if len(masked) <= TEXT_CHARACTERS_MAX else masked[: TEXT_CHARACTERS_MAX - 1] + "…"
