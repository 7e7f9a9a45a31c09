"""API keys: creation, stored form, and verification of a presented key.

A key is `ilk_<id>_<secret>`. The id is public and finds the record; the secret has 256 random bits and is shown once.
Stored is a BLAKE2b digest with a salt of its own. A slow hash protects passwords, which can be guessed. 256 random bits
cannot be guessed, and a slow hash on every request would make the server easy to overload. The salt forces a separate
search for each stolen record. Digests are compared in constant time, and an unknown id takes as long as a wrong secret.
"""

import base64
import hashlib
import hmac
import re
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from interlock.errors import BadUsage
from interlock.redaction import Secret
from interlock.seams import Secrets
from interlock.server.security.scopes import Limits, Scope

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
    limits: Limits = Limits()
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


def made(
    secrets: Secrets,
    *,
    name: str,
    scopes: tuple[Scope, ...],
    limits: Limits,
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


def presented(text: str) -> Presented | None:
    """Return the parts of a key; None for a text that does not have the form of one."""
    found = _FORM.fullmatch(text) if len(text) <= PRESENTED_CHARACTERS_MAX else None
    return None if found is None else Presented(found[1], found[2].encode())


def digest_of(secret: bytes, salt: bytes) -> bytes:
    """Return the digest that is stored of a secret."""
    return hashlib.blake2b(secret, digest_size=DIGEST_BYTES, salt=salt, person=_PURPOSE).digest()


def proves(secret: bytes, salt: bytes, digest: bytes) -> bool:
    """Return whether the secret has this digest. Takes constant time."""
    return hmac.compare_digest(digest_of(secret, salt), digest)


def _encode(data: bytes) -> str:
    # Lower-case letters and digits only: a double click selects the whole key, and no shell or URL has to quote it.
    return base64.b32encode(data).decode().rstrip("=").lower()
