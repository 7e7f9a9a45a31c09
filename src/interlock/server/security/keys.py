"""API keys: their scopes and limits, creation, verification of a presented key, and the store of a home's keys.

A key is `ilk_<id>_<secret>`. The id is public and finds the record; the secret has 256 random bits and is shown once.
Stored is a BLAKE2b digest with a salt of its own. A slow hash protects passwords, which can be guessed. 256 random bits
cannot be guessed, and a slow hash on every request would make the server easy to overload. The salt forces a separate
search for each stolen record. Digests are compared in constant time, and an unknown id takes as long as a wrong secret.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from interlock.clock import Secrets
from interlock.errors import BadUsage, CorruptionError, LimitReached, TargetNotFound
from interlock.redaction import Secret

# --- Scopes and limits -----------------------------------------------------------------------------------------------
# Scopes are a ladder. A sender may read, because it needs the version it sends to. An operator may send, because a
# workflow is repaired by events. An administrator may do everything. Limits narrow a key to machines and to prefixes of
# ids. An empty limit means all, several values mean any of them, and both limits must hold.

LIMITS_MAX = 100
"""Machines or prefixes of one key."""

LIMIT_CHARACTERS_MAX = 200
"""Length of a machine or prefix: that of an id."""


class Scope(StrEnum):
    """A set of permitted actions."""

    READ = "read"
    """Read machines, workflows, their history, pending undos and stalled workflows."""
    SEND = "send"
    """Also start workflows and send events."""
    OPERATE = "operate"
    """Also retry and resolve dead letters, force breakers, and set limits and admission."""
    ADMIN = "admin"
    """Also prune workflows and run SQL in databases: every action."""


LADDER: Final = tuple(Scope)
"""Scopes from the least to the most."""


def with_lower_scopes(scopes: tuple[Scope, ...]) -> frozenset[Scope]:
    """Return these scopes and all scopes below them."""
    highest = max((LADDER.index(scope) for scope in scopes), default=-1)
    return frozenset(LADDER[: highest + 1])


class KeyBounds(msgspec.Struct, frozen=True):
    """The machines and id prefixes to which a key is limited."""

    machines: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()


def checked_limits(machines: tuple[str, ...], prefixes: tuple[str, ...]) -> KeyBounds:
    """Return the limits. Raises BadUsage for a value that cannot be a machine's name or an id's prefix."""
    for kind, values in (("machine", machines), ("prefix", prefixes)):
        if len(values) > LIMITS_MAX:
            raise BadUsage(f"a key has at most {LIMITS_MAX} limits of a kind; {len(values)} of {kind} were passed.")
        for value in values:
            if not 0 < len(value) <= LIMIT_CHARACTERS_MAX or not value.isprintable() or "/" in value:
                raise BadUsage(
                    f"{value[:100]!r} is not a {kind} that a key can be limited to.",
                    why="An empty limit would mean all, and an invalid one would match nothing.",
                    fix=f"Pass 1 to {LIMIT_CHARACTERS_MAX} printable characters without a slash, or no limit.",
                )
    return KeyBounds(tuple(sorted(set(machines))), tuple(sorted(set(prefixes))))


# --- Keys ------------------------------------------------------------------------------------------------------------

PREFIX: Final = "ilk"
ID_BYTES: Final = 10
SECRET_BYTES: Final = 32
SALT_BYTES: Final = 16
DIGEST_BYTES: Final = 32
NAME_CHARACTERS_MAX = 100
PRESENTED_CHARACTERS_MAX = 200
"""A longer text is not a key, and is not hashed."""

_FORM: Final = re.compile(r"ilk_([a-z2-7]{16})_([a-z2-7]{52})")
_PURPOSE: Final = b"interlock key 1"
"""Separates these digests from any other use of the same hash."""


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part of a key: everything but its secret."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    limits: KeyBounds = KeyBounds()
    salt: bytes
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used: datetime | None = None
    """Rounded to the hour; stored from time to time, and never while a request waits."""

    def __repr__(self) -> str:
        return f"KeyRecord(id={self.id!r}, name={self.name!r}, scopes={[str(scope) for scope in self.scopes]})"

    def state(self, now: datetime) -> str:
        """Return `active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


class CreatedKey(NamedTuple):
    """A new key: its record, and the text that is shown once."""

    record: KeyRecord
    key: Secret


class Presented(NamedTuple):
    """The two parts of a text that has the form of a key. Its repr hides both."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return "Presented(***)"


def make_key(
    secrets: Secrets,
    *,
    name: str,
    scopes: tuple[Scope, ...],
    limits: KeyBounds,
    now: datetime,
    expires_at: datetime | None = None,
) -> CreatedKey:
    """Create a key. Raises BadUsage for an invalid name, no scope, or an expiry in the past."""
    if len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise BadUsage(
            f"{name[:NAME_CHARACTERS_MAX]!r} is not a name for a key.",
            why="The name is shown in listings and in the audit log.",
            fix=f"Use at most {NAME_CHARACTERS_MAX} printable characters.",
        )
    if not scopes:
        raise BadUsage(
            "scopes is empty: a key without a scope permits nothing.", fix="Pass one of read, send, operate and admin."
        )
    if expires_at is not None and expires_at <= now:
        raise BadUsage(f"expires_at is in the past: {expires_at.isoformat()}.", fix="Pass a time in the future.")
    identity, secret = _encode(secrets.token(ID_BYTES)), _encode(secrets.token(SECRET_BYTES))
    salt = secrets.token(SALT_BYTES)
    record = KeyRecord(
        id=identity,
        name=name,
        scopes=tuple(scope for scope in Scope if scope in scopes),
        limits=limits,
        salt=salt,
        digest=digest_of(secret.encode(), salt),
        created_at=now,
        expires_at=expires_at,
    )
    return CreatedKey(record, Secret(f"{PREFIX}_{identity}_{secret}"))


def parse_key(text: str) -> Presented | None:
    """Return the parts of a key; None for a text that does not have the form of one."""
    found = _FORM.fullmatch(text) if len(text) <= PRESENTED_CHARACTERS_MAX else None
    return None if found is None else Presented(found[1], found[2].encode())


def digest_of(secret: bytes, salt: bytes) -> bytes:
    """Return the digest that is stored of a secret."""
    return hashlib.blake2b(secret, digest_size=DIGEST_BYTES, salt=salt, person=_PURPOSE).digest()


def has_digest(secret: bytes, salt: bytes, digest: bytes) -> bool:
    """Return whether the secret has this digest. Takes constant time."""
    return hmac.compare_digest(digest_of(secret, salt), digest)


def _encode(data: bytes) -> str:
    # Lower-case letters and digits only: a double click selects the whole key, and no shell or URL has to quote it.
    return base64.b32encode(data).decode().rstrip("=").lower()


# --- Key store -------------------------------------------------------------------------------------------------------
# All keys are in one document, which is bounded. A revoked key stays in it for REVOKED_KEPT. It can be distinguished
# from an unknown key, and a home whose last key was revoked does not become one without keys.

KEYS_MAX = 1_000
"""Keys of one home, including revoked ones."""

REVOKED_KEPT: Final = timedelta(days=90)
FORMAT = 1


Edit = Callable[[bytes | None], bytes]
"""Maps the current content, or None without a document, to the new content. May run more than once."""


class Document(Protocol):
    """A document, read whole and replaced whole unless another process has replaced it meanwhile.

    There is one for each kind of home, and one suite of tests for all. Readers see the old or the new content.
    """

    async def read(self) -> bytes | None:
        """Return the newest content; None without a document. Raises UnavailableError when it cannot be read."""
        ...

    async def change(self, edit: Edit) -> None:
        """Replace the content by the result of `edit`, durably; if `edit` raises, nothing changes."""
        ...

    async def close(self) -> None:
        """Close connections, where there are any."""
        return  # A body that is only a docstring would be abstract.


class _KeyDocument(msgspec.Struct, frozen=True):
    format: int
    keys: tuple[KeyRecord, ...]


class KeyStore:
    """The keys stored in a document."""

    def __init__(self, document: Document, home: str) -> None:
        self._document = document
        self.home = home
        """The home's address without its secrets."""
        self._content: bytes | None = None
        self._records: tuple[KeyRecord, ...] = ()

    async def load(self) -> tuple[KeyRecord, ...]:
        """Return all keys as they are now. Returns the same tuple while nothing has changed."""
        content = await self._document.read()
        if content != self._content:
            self._records = self._decode(content)
            self._content = content
        return self._records

    async def add(self, record: KeyRecord) -> None:
        """Store a new key; it is valid when this returns. Raises LimitReached."""

        def edit(content: bytes | None) -> bytes:
            kept = [
                each
                for each in self._decode(content)
                if each.revoked_at is None or record.created_at - each.revoked_at < REVOKED_KEPT
            ]
            if all(each.id != record.id for each in kept):  # It is present when a write of unknown outcome is retried.
                kept.append(record)
            if len(kept) > KEYS_MAX:
                raise LimitReached(
                    f"{self.home} has {KEYS_MAX:,} API keys.",
                    why="Every server reads all of them every second.",
                    fix=f"Revoke unused keys; revoked ones are removed after {REVOKED_KEPT.days} days.",
                )
            return _encode_document(kept)

        await self._document.change(edit)

    async def revoke(self, key_id: str, now: datetime) -> tuple[KeyRecord, KeyRecord]:
        """Revoke a key; returns it before and after. A revoked key stays as it is. Raises TargetNotFound."""
        changed: list[KeyRecord] = []

        def edit(content: bytes | None) -> bytes:
            records = self._decode(content)
            before = next((each for each in records if each.id == key_id), None)
            if before is None:
                raise self._unknown_key(key_id)
            after = before if before.revoked_at is not None else msgspec.structs.replace(before, revoked_at=now)
            changed[:] = [before, after]
            return _encode_document([after if each is before else each for each in records])

        await self._document.change(edit)
        before, after = changed
        return before, after

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Store when keys were last used; times never decrease, and unknown ids are ignored."""

        def edit(content: bytes | None) -> bytes:
            return _encode_document([_with_use(each, uses.get(each.id)) for each in self._decode(content)])

        await self._document.change(edit)

    async def close(self) -> None:
        """Close connections."""
        await self._document.close()

    def _decode(self, content: bytes | None) -> tuple[KeyRecord, ...]:
        if content is None:
            return ()
        try:
            written = msgspec.json.decode(content, type=_KeyDocument)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # Not chained: the text of the error could hold content of the document.
            raise CorruptionError(
                f"the API keys of {self.home} cannot be read: {type(error).__name__}.",
                why="Interlock replaces them as a whole, so another program has changed or damaged them.",
                fix="Restore the document from a backup, or remove it and create new keys.",
            ) from None
        if written.format != FORMAT:
            raise CorruptionError(
                f"the API keys of {self.home} have format {written.format}; this version knows {FORMAT}.",
                why="Another version of Interlock wrote them, and guessing could accept an invalid key.",
                fix="Use the version of Interlock that wrote them, or a later one.",
            )
        return written.keys

    def _unknown_key(self, key_id: str) -> TargetNotFound:
        # The argument may be a whole key, pasted by mistake: it is not shown.
        which = f"with the id {key_id!r}" if len(key_id) <= len("abcdefghijklmnop") else "of that id"
        return TargetNotFound(
            f"there is no API key {which} at {self.home}.",
            why="A key is named by its id: the part between the underscores, or the first column of the listing.",
            fix="Look it up: interlock keys list.",
        )


def _with_use(record: KeyRecord, at: datetime | None) -> KeyRecord:
    if at is None or (record.last_used is not None and record.last_used >= at):
        return record
    return msgspec.structs.replace(record, last_used=at)


def _encode_document(records: list[KeyRecord]) -> bytes:
    return msgspec.json.encode(_KeyDocument(FORMAT, tuple(records)))
