"""API keys: creation, verification of a presented key, and the store of a home's keys.

A key is `ilk_<id>_<secret>`. The id is public and finds the record; the secret has 256 random bits and is shown once.
Stored is a BLAKE2b digest with a salt of its own. A slow hash protects passwords, which can be guessed. 256 random bits
cannot be guessed, and a slow hash on every request would make the server easy to overload. The salt forces a separate
search for each stolen record. Digests are compared in constant time, and an unknown id takes as long as a wrong secret.
"""

import asyncio
import base64
import fcntl
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from interlock.clock import Secrets
from interlock.errors import BadUsage, CorruptionError, LimitReached, TargetNotFound, UnusableFile
from interlock.redaction import Secret
from interlock.server.security.scopes import Limits, Scope

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


def make_key(
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


# --- Documents -------------------------------------------------------------------------------------------------------
# A lane has one owner, so the command line could not change a database of the home while a server runs. A document
# is read whole, and replaced whole unless another process has replaced it meanwhile. Readers see the old or the new
# content. There is one for each kind of home: a file here, an object in `stores`, a row in `postgres_store`. One suite
# of tests covers all of them.

BYTES_MAX = 8 << 20
"""Size of a document. Interlock never writes a larger one."""

PRIVATE = 0o600
WRITABLE_BY_OTHERS = 0o022

Edit = Callable[[bytes | None], bytes]
"""Maps the current content, or None without a document, to the new content. May run more than once."""


class Document(Protocol):
    """A document in some store."""

    async def read(self) -> bytes | None:
        """Return the newest content; None without a document. Raises UnavailableError when it cannot be read."""
        ...

    async def change(self, edit: Edit) -> None:
        """Replace the content by the result of `edit`, durably; if `edit` raises, nothing changes."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class MemoryDocument:
    """A document in memory, which ends with its process."""

    def __init__(self) -> None:
        self._content: bytes | None = None

    async def read(self) -> bytes | None:
        """Return the content."""
        return self._content

    async def change(self, edit: Edit) -> None:
        """Replace the content."""
        self._content = edit(self._content)

    async def close(self) -> None:
        """Do nothing."""


class FileDocument:
    """A document in a file that only its owner can read: locked while it is changed, and replaced by a rename.

    It is read whole each time, without a check of its modification time first. Two changes within one tick of the file
    system's clock can have the same time, inode and size, and a revoked key would stay valid. Reading costs less than
    a request.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> bytes | None:
        """Return the newest content. Raises UnusableFile for a file that others can write."""
        with usable(self._path):
            return private_content(self._path)

    async def change(self, edit: Edit) -> None:
        """Replace the content; waits for a change by another process."""
        await asyncio.to_thread(self._change, edit)

    async def close(self) -> None:
        """Do nothing."""

    def _change(self, edit: Edit) -> None:
        with usable(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._path.with_name(self._path.name + ".lock")):
                replace_durably(self._path, edit(private_content(self._path)))


@contextmanager
def usable(path: Path) -> Generator[None]:
    """Translate errors of the file system into UnusableFile."""
    try:
        yield
    except OSError as error:
        raise UnusableFile(
            f"{path} cannot be used: {error.strerror or error}.",
            why="API keys and the audit log are kept in private files of the home.",
            fix="Check that the home is a folder on a disk with room, and that this user owns the file.",
        ) from error


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a file; the system releases it when the process dies."""
    descriptor = private_file(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def private_file(path: Path, flags: int) -> int:
    """Open a file that only its owner can read, and create it if needed. A symbolic link is not followed."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
    if os.geteuid() == 0:
        # Created by root for a service that runs as another user, which must be able to read it.
        folder = path.parent.stat()
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def private_content(path: Path) -> bytes | None:
    """Return the content of the file; None if it does not exist. Raises UnusableFile for one that others can write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & WRITABLE_BY_OTHERS:
            raise UnusableFile(
                f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o}).",
                why="A user who can write it can create an API key.",
                fix=f"Look at what is in it, then run: chmod 600 {path}",
            )
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise UnusableFile(f"{path} has more than {BYTES_MAX:,} bytes.", fix="Restore it from a backup.")
    return content


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file as a whole: sync the content, rename the file, sync the folder."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # Left by a process that died; this one holds the lock.
    with os.fdopen(private_file(new, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- Key store -------------------------------------------------------------------------------------------------------
# All keys are in one document, which is bounded. A revoked key stays in it for REVOKED_KEPT. It can be distinguished
# from an unknown key, and a home whose last key was revoked does not become one without keys.

KEYS_MAX = 1_000
"""Keys of one home, including revoked ones."""

REVOKED_KEPT: Final = timedelta(days=90)
FORMAT = 1


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
