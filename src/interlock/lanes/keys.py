"""Idempotency keys: a transaction with a key happens once, and a repetition returns the first result.

The key, a digest of the call, and the result are written in the same transaction (G3), so neither exists without the
other. Retention is bounded by age and by number; every keyed transaction removes a few
of the oldest, so that no call ever pays for a big clean-up.
"""

from interlock.errors import KeyReused, TransactionError
from interlock.lanes.results import MakeRow, decode_result, encode_result
from interlock.lanes.session import Session
from interlock.lanes.settings import LaneSettings

SCHEMA = """
CREATE TABLE IF NOT EXISTS interlock_keys (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL,
    result BLOB NOT NULL,
    at_us INTEGER NOT NULL
)
"""
FIND = "SELECT digest, result FROM interlock_keys WHERE key = ?1"
INSERT = "INSERT INTO interlock_keys (key, digest, result, at_us) VALUES (?1, ?2, ?3, ?4)"
REMOVE = """
DELETE FROM interlock_keys WHERE number IN (SELECT number FROM interlock_keys ORDER BY number LIMIT ?1)
AND (at_us < ?2 OR number <= (SELECT max(number) FROM interlock_keys) - ?3)"""
REMOVED_PER_TRANSACTION = 4
KEY_CHARACTERS_MAX = 500


class Keys:
    """The keys of one lane. Runs inside the transaction whose key it is."""

    def __init__(self, settings: LaneSettings, *, mark: str, make_row: MakeRow) -> None:
        # Marked as the writer's control statements are: a user who writes the same text must not get ours.
        self._find = FIND + mark
        self._insert = INSERT + mark
        self._remove = REMOVE + mark
        self._make_row = make_row
        self._retained_us = int(settings.keys_retained_s * 1_000_000)
        self._keys_max = settings.keys_max
        self._result_bytes_max = settings.key_result_bytes_max

    def first_result(self, session: Session, key: str, digest: bytes) -> tuple[bool, object]:
        """Return (True, first result) for a key used with the same call, (False, None) for a new one."""
        rows = session.query(self._find, (key,))
        if not rows:
            return False, None
        before, result = rows[0]
        if before != digest:
            raise KeyReused(
                f"key {key!r} was used before, for another transaction.",
                why="A key stands for one call: the same method, the same SQL or function, the same arguments. The "
                "first result is not this one's, and giving it back would hide that this one never ran.",
                fix="Repeat a key only with the very same call, and use a new key for a new one.",
            )
        assert isinstance(result, bytes)
        return True, decode_result(result, self._make_row)

    def remember(self, session: Session, key: str, digest: bytes, result: object) -> None:
        """Keep the result with its key, and remove a few keys that are too old or too many."""
        data = encode_result(result)
        if len(data) > self._result_bytes_max:
            raise TransactionError(
                f"the result has {len(data):,} bytes; with a key at most {self._result_bytes_max:,} are kept.",
                why="The same key again gives the first result back, so it is stored with the transaction.",
                fix="Return less, or raise key_result_bytes_max.",
            )
        now_us = session.now_us()
        session.execute(self._insert, (key, digest, data, now_us))
        session.execute(self._remove, (REMOVED_PER_TRANSACTION, now_us - self._retained_us, self._keys_max))
