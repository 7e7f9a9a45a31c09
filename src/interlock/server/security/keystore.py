"""The API keys of a home: added, revoked, listed, and read again and again by every server.

All of them are in one document, which is bounded. A revoked key stays in it for a while: it can be told from one that
never was, and a home whose last key was revoked is not taken for one that never had any.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from interlock.errors import CorruptionError, LimitReached, TargetNotFound
from interlock.server.security.documents import Document
from interlock.server.security.keys import KeyRecord

KEYS_MAX = 1_000
"""Of one home, revoked ones included."""

REVOKED_KEPT: Final = timedelta(days=90)
FORMAT = 1


class _Written(msgspec.Struct, frozen=True):
    format: int
    keys: tuple[KeyRecord, ...]


class KeyStore:
    """The keys in a document."""

    def __init__(self, document: Document, shown: str) -> None:
        self._document = document
        self.shown = shown
        """The home, as it may be shown."""
        self._content: bytes | None = None
        self._records: tuple[KeyRecord, ...] = ()

    async def load(self) -> tuple[KeyRecord, ...]:
        """All keys, the newest state of them. The same tuple again while nothing has changed."""
        content = await self._document.read()
        if content != self._content:
            self._records = self._decoded(content)
            self._content = content
        return self._records

    async def add(self, record: KeyRecord) -> None:
        """Store a new key; it is valid when this returns. Raises LimitReached."""

        def edit(content: bytes | None) -> bytes:
            kept = [
                each
                for each in self._decoded(content)
                if each.revoked_at is None or record.created_at - each.revoked_at < REVOKED_KEPT
            ]
            if all(each.id != record.id for each in kept):  # It is there when an unclear write is tried again.
                kept.append(record)
            if len(kept) > KEYS_MAX:
                raise LimitReached(
                    f"{self.shown} has {KEYS_MAX:,} API keys.",
                    why="Every server reads all of them every second.",
                    fix=f"Revoke keys that nobody uses; revoked ones make room after {REVOKED_KEPT.days} days.",
                )
            return _encoded(kept)

        await self._document.change(edit)

    async def revoke(self, key_id: str, now: datetime) -> tuple[KeyRecord, KeyRecord]:
        """Revoke a key; returns it as it was and as it is. A revoked one stays as it is. Raises TargetNotFound."""
        changed: list[KeyRecord] = []

        def edit(content: bytes | None) -> bytes:
            records = self._decoded(content)
            before = next((each for each in records if each.id == key_id), None)
            if before is None:
                raise self._absent(key_id)
            after = before if before.revoked_at is not None else msgspec.structs.replace(before, revoked_at=now)
            changed[:] = [before, after]
            return _encoded([after if each is before else each for each in records])

        await self._document.change(edit)
        before, after = changed
        return before, after

    async def note_uses(self, uses: Mapping[str, datetime]) -> None:
        """Note when keys were last used; times do not go back, and unknown ids are left out."""

        def edit(content: bytes | None) -> bytes:
            return _encoded([_used(each, uses.get(each.id)) for each in self._decoded(content)])

        await self._document.change(edit)

    async def close(self) -> None:
        """Let go of connections."""
        await self._document.close()

    def _decoded(self, content: bytes | None) -> tuple[KeyRecord, ...]:
        if content is None:
            return ()
        try:
            written = msgspec.json.decode(content, type=_Written)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # Not chained: the text of the error could hold what is in the document.
            raise CorruptionError(
                f"the API keys of {self.shown} cannot be read: {type(error).__name__}.",
                why="They are replaced as a whole, so something else has written to them or damaged them.",
                fix="Put the document back from a backup, or remove it and make new keys.",
            ) from None
        if written.format != FORMAT:
            raise CorruptionError(
                f"the API keys of {self.shown} have format {written.format}; this version knows {FORMAT}.",
                why="Another version of Interlock wrote them, and guessing could let somebody in.",
                fix="Use the version of Interlock that wrote them, or a later one.",
            )
        return written.keys

    def _absent(self, key_id: str) -> TargetNotFound:
        # What was given may be a whole key, pasted by mistake: it is not shown.
        shown = f"with the id {key_id!r}" if len(key_id) <= len("abcdefghijklmnop") else "of that id"
        return TargetNotFound(
            f"there is no API key {shown} at {self.shown}.",
            why="A key is named by its id: the part between the underscores, or the first column of the listing.",
            fix="Look it up: interlock keys list.",
        )


def _used(record: KeyRecord, at: datetime | None) -> KeyRecord:
    if at is None or (record.last_used is not None and record.last_used >= at):
        return record
    return msgspec.structs.replace(record, last_used=at)


def _encoded(records: list[KeyRecord]) -> bytes:
    return msgspec.json.encode(_Written(FORMAT, tuple(records)))
