"""Names and idempotency keys of counters: their checks, and the text that the database stores.

The key that the database remembers names the counter too, with its length in front: one caller may use one key for two
counters, and no two pairs of counter and key make the same text.
"""

import hashlib
from typing import Final

from interlock.errors import InvalidPayload
from interlock.lanes.keys import KEY_CHARACTERS_MAX

NAME_CHARACTERS_MAX: Final = 500
_DIGEST_BYTES: Final = 20


def refuse_name(name: object) -> None:
    """Raise InvalidPayload for an invalid name of a counter."""
    wrong = _unusable(name, NAME_CHARACTERS_MAX)
    if wrong:
        raise InvalidPayload(
            f"the name of the counter {wrong}; it must be a text of 1 to {NAME_CHARACTERS_MAX} characters that UTF-8 "
            "can write.",
            why="A counter is found again by its name, which is a column of its table.",
            fix='Pass a text that names what is counted: db.counter(f"video:{video_id}").',
        )


def stored_key(name: str, key: object) -> str:
    """Return the key as the database stores it. Raises InvalidPayload for an invalid idempotency key."""
    wrong = _unusable(key, KEY_CHARACTERS_MAX)
    if wrong:
        raise InvalidPayload(
            f"the idempotency key {wrong}; it must be a text of 1 to {KEY_CHARACTERS_MAX} characters that UTF-8 can "
            "write.",
            why="The key is stored with the add and found again by its text.",
            fix='Pass a text that names the call, the same at every attempt: key=f"view-{request_id}".',
        )
    text = f"counter:{len(name)}:{name}:{key}"
    return text if len(text) <= KEY_CHARACTERS_MAX else f"counter:={_digest(text).hex()}"


def shard_of(key: str, count: int) -> int:
    """Return the shard of a key: the same in every process and after every restart, for the same count."""
    return int.from_bytes(_digest(key)) % count


def _unusable(text: object, characters_max: int) -> str:
    if not isinstance(text, str):
        return f"is {type(text).__name__}"
    if not 0 < len(text) <= characters_max:
        return f"has {len(text):,} characters"
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return f"{text!a} holds NUL or half of a surrogate pair"
    return ""


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
