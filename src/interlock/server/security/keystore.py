"""The API keys of a home: added, revoked, listed, and read every second by every server.

All keys are in one document, which is bounded. A revoked key stays in it for REVOKED_KEPT. It can be distinguished from
an unknown key, and a home whose last key was revoked does not become one without keys.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from interlock.errors import CorruptionError, LimitReached, TargetNotFound
from interlock.server.security.documents import Document
from interlock.server.security.keys import KeyRecord

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
            return _encode(kept)

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
            return _encode([after if each is before else each for each in records])

        await self._document.change(edit)
        before, after = changed
        return before, after

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Store when keys were last used; times never decrease, and unknown ids are ignored."""

        def edit(content: bytes | None) -> bytes:
            return _encode([_with_use(each, uses.get(each.id)) for each in self._decode(content)])

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


def _encode(records: list[KeyRecord]) -> bytes:
    return msgspec.json.encode(_KeyDocument(FORMAT, tuple(records)))
