"""The guard: from the headers of a request to the identity of whoever sent it, in a few microseconds.

It holds all keys of the home, as they were read at most a second ago, so a revoked key is refused within a second by
every process. `fresh` reads them again, ahead of time and for all requests together; `check` only looks at what was
read. While the keys cannot be read the last ones count for `STALE_S_MAX`, then nobody is let in.

Without any key the server listens on this machine alone, and whoever reaches it may do everything. A page in a browser
on this machine reaches it too, so there the request must not come from a foreign page (Origin, Sec-Fetch-Site) nor by a
foreign name (Host: a name that was made to point here). Once a key was seen, the guard never goes back to that.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from interlock.access import NotAuthenticated, NotPermitted
from interlock.errors import InterlockError, UnavailableError
from interlock.seams import Clock
from interlock.server.security.binding import is_loopback, name_of_host
from interlock.server.security.identity import LOCAL, MOUNTED, Identity
from interlock.server.security.keys import DIGEST_BYTES, SALT_BYTES, KeyRecord, presented, proves
from interlock.server.security.keystore import KeyStore
from interlock.server.security.routes import Route, Subject
from interlock.server.security.scopes import Scope, covered

FRESH_S = 0.5
"""So old may keys be before they are read again in the background."""

LATE_S = 1.0
"""Older keys are waited for: a revoked key is refused after this time."""

STALE_S_MAX = 10.0
"""While keys cannot be read, the last ones count for so long."""

READ_TIMEOUT_S = 5.0
USES_EVERY_S = 60.0
"""Uses are noted at most so often, to the hour."""

_NOBODY = (bytes(SALT_BYTES), bytes(DIGEST_BYTES))
"""Stands for an unknown id, so that it costs the same time as a wrong secret."""

_WANTED: Final = frozenset({b"authorization", b"host", b"origin", b"sec-fetch-site"})


class _Held(NamedTuple):
    record: KeyRecord
    identity: Identity
    expires_s: float


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that a guard reads, from the pairs of ASGI. One that comes twice is joined, and so fits nothing."""
    found: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in _WANTED:
            found[name] = b"%b, %b" % (found[name], value) if name in found else value
    return found


class Guard:
    """Lets requests in, or not. Belongs to one event loop."""

    def __init__(self, store: KeyStore | None, *, clock: Clock, hosts: frozenset[str] = frozenset()) -> None:
        """`hosts` are names by which a server without keys may be called, beside those of this machine."""
        self._store = store
        self._clock = clock
        self._hosts = hosts
        self._host: str | None = None
        """What a request has called this server last, and may: most say the same, and reading an address takes long."""
        self._records: tuple[KeyRecord, ...] | None = None if store else ()
        self._held: dict[str, _Held] = {}
        self._keyed = False
        self._trusting = False
        self._read_s = float("-inf")
        self._tried_s = float("-inf")
        self._noted_s = clock.monotonic_s()
        self._used: set[str] = set()
        self._reading: asyncio.Task[None] | None = None
        self._failure: InterlockError | None = None

    @classmethod
    def trusting(cls, clock: Clock) -> "Guard":
        """A guard that lets everybody do everything, for a server mounted into a program that has its own."""
        guard = cls(None, clock=clock)
        guard._trusting = True
        return guard

    @property
    def has_keys(self) -> bool:
        """Whether requests need a key; without one the server listens on this machine alone."""
        return self._keyed

    @property
    def is_fresh(self) -> bool:
        """Whether `fresh` has nothing to do."""
        return self._store is None or self._clock.monotonic_s() - self._read_s < FRESH_S

    async def fresh(self) -> None:
        """Have keys that were read within the last second; nearly always that is nothing to do.

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
        """Who asks, if they may do this to that. Names of headers are in lower case, as ASGI has them.

        Raises NotAuthenticated (401) without a valid key and NotPermitted (403) for what the key may not do.
        """
        identity = self.identify(headers)
        identity.require(scope, machine=machine, workflow=workflow)
        return identity

    def check_route(
        self, headers: Mapping[bytes, bytes], route: Route, *, machine: str | None = None, workflow: str | None = None
    ) -> Identity | None:
        """The same for a route of the table; None for one that needs no key."""
        if route.scope is None:
            return None
        identity = self.identify(headers)
        identity.require(route.scope, machine=machine, workflow=workflow, whole=route.subject is Subject.HOME)
        return identity

    def identify(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Who asks. Raises NotAuthenticated, or NotPermitted for a foreign page on a server without keys."""
        if self._trusting:
            return MOUNTED
        self._refuse_stale()
        if not self._keyed:
            self._refuse_foreign(headers)
            return LOCAL
        scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if not text:
            raise NotAuthenticated("the request has no API key.")
        key = presented(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise _refused("the request has an Authorization header that is not an API key of Interlock.")
        held = self._held.get(key.id)
        salt, digest = _NOBODY if held is None else (held.record.salt, held.record.digest)
        if not proves(key.secret, salt, digest) or held is None:
            raise _refused("the API key of the request is not known here.")
        # Only whoever has the secret learns what has become of the key.
        if held.record.revoked_at is not None:
            raise _refused(f"the API key {key.id} was revoked at {held.record.revoked_at.isoformat()}.")
        if self._clock.wall_s() >= held.expires_s:  # A date of the calendar, which only the wall clock knows.
            raise _refused(f"the API key {key.id} has expired.")
        self._used.add(key.id)
        return held.identity

    async def still(self, identity: Identity) -> None:
        """Have it that an identity is good by now, for what takes longer than a request. Raises as `identify` does."""
        await self.fresh()
        if self._trusting:
            return
        self._refuse_stale()
        held = self._held.get(identity.key)
        if not self._keyed and identity is LOCAL:
            return
        if (
            held is None
            or held.identity != identity
            or held.record.revoked_at
            or self._clock.wall_s() >= held.expires_s
        ):
            raise _refused("the API key of the request is good no longer.")

    async def close(self) -> None:
        """Note what was used, and let go of the store."""
        if self._reading is not None:
            await asyncio.wait({self._reading})
        if self._store is not None:
            await self._note_uses(self._store)
            await self._store.close()

    async def _read(self, store: KeyStore, began_s: float) -> None:
        try:
            if self._clock.monotonic_s() - self._noted_s >= USES_EVERY_S:
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
        self._held = {
            record.id: _Held(
                record,
                Identity(record.id, record.name, covered(record.scopes), record.limits),
                float("inf") if record.expires_at is None else record.expires_at.timestamp(),
            )
            for record in records
        }

    async def _note_uses(self, store: KeyStore) -> None:
        self._noted_s = self._clock.monotonic_s()
        used, self._used = self._used, set()
        hour = datetime.fromtimestamp(self._clock.wall_s(), UTC).replace(minute=0, second=0, microsecond=0)
        news = {each: hour for each in used if each in self._held and self._held[each].record.last_used != hour}
        if news:
            try:
                await store.note_uses(news)
            except InterlockError:
                self._used |= used  # It is for people to look at; the next time will do.

    def _refuse_stale(self) -> None:
        if self._records is None or (
            self._store is not None and self._clock.monotonic_s() - self._read_s > STALE_S_MAX
        ):
            told = f": {self._failure.what}" if self._failure else "."
            raise UnavailableError(
                f"the API keys could not be read{told}",
                why="A key may have been revoked meanwhile, so nobody is let in.",
                fix="Make the home reachable again; keys are read again by themselves.",
            )

    def _refuse_foreign(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if host != self._host:
            if not is_loopback(name_of_host(host)) and name_of_host(host) not in self._hosts:
                raise _foreign(f"the request calls this server {host[:100]!r}.")
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
        why="Without API keys this server trusts whoever is on this machine; a page in a browser here could ask it.",
        fix="Call it by 127.0.0.1 or localhost, or make a key: interlock keys create --scope admin.",
    )
