"""The SQL of counters, one comment per statement: ordinary tables in the user's own database.

A counter is one row of `hotrow_counter`, up to `shard_count` rows of `hotrow_counter_shard`, the rows of
`hotrow_counter_event` that were not rolled up yet, and one row of `hotrow_counter_snapshot` for those that were. Its
value is always the sum of them, so every add may choose its form by itself. Every add is one statement that changes
exactly one row. Roll-ups have a row of their own, because concurrent adds to the counter's row would starve them.
"""

from typing import Final

COUNTER_TABLES: Final = (
    # `n` counts exact adds. `shard_count` is 0 until the first shard is written. `keyed` and
    # `keyed_shard_count` say where adds with a key go; they never change, or a retry could count twice (D5).
    """CREATE TABLE IF NOT EXISTS hotrow_counter (
        name text PRIMARY KEY,
        n bigint NOT NULL DEFAULT 0,
        shard_count integer NOT NULL DEFAULT 0,
        keyed text NOT NULL DEFAULT 'sharded',
        keyed_shard_count integer NOT NULL DEFAULT 16
    )""",
    """CREATE TABLE IF NOT EXISTS hotrow_counter_event (
        id bigserial PRIMARY KEY,
        name text NOT NULL,
        delta bigint NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS hotrow_counter_snapshot (
        name text PRIMARY KEY,
        n bigint NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS hotrow_counter_event_name ON hotrow_counter_event (name, id)",
)

SHARD_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS hotrow_counter_shard (
        name text NOT NULL,
        shard integer NOT NULL,
        n bigint NOT NULL,
        PRIMARY KEY (name, shard)
    )""",
)

# The header of a counter; no row when it does not exist.
HEADER: Final = "SELECT keyed, keyed_shard_count, shard_count FROM hotrow_counter WHERE name = $1"

# Create it. Of several concurrent calls, the first decides.
MAKE: Final = (
    "INSERT INTO hotrow_counter (name, keyed, keyed_shard_count) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING"
)

# Shards up to this one may hold something from now on. Committed before the first of them is written.
WIDEN: Final = "UPDATE hotrow_counter SET shard_count = $2 WHERE name = $1 AND shard_count < $2"

# Add to the row itself.
ADD: Final = (
    "INSERT INTO hotrow_counter (name, n) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter.n + excluded.n"
)

# Add to one shard, which the caller has chosen: a random() in WHERE would be another one for every row (D5).
ADD_SHARD: Final = (
    "INSERT INTO hotrow_counter_shard (name, shard, n) VALUES ($1, $2, $3) "
    "ON CONFLICT (name, shard) DO UPDATE SET n = hotrow_counter_shard.n + excluded.n"
)

# Add to the log.
APPEND: Final = "INSERT INTO hotrow_counter_event (name, delta) VALUES ($1, $2)"

# Take the oldest entries out of the log. It returns exactly the rows that it deletes: ids are not committed in their
# order on PostgreSQL, so "all up to the largest" may delete an entry that was not read.
TAKE: Final = (
    "DELETE FROM hotrow_counter_event WHERE id IN "
    "(SELECT id FROM hotrow_counter_event WHERE name = $1 ORDER BY id LIMIT $2) RETURNING delta"
)

# Keep what was taken out of the log, in the same transaction.
SNAP: Final = (
    "INSERT INTO hotrow_counter_snapshot (name, n) VALUES ($1, $2) "
    "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter_snapshot.n + excluded.n"
)

# The snapshot and the log in one statement: in two of them a roll-up in between would count twice, or not at all.
VALUE: Final = (
    "SELECT c.shard_count, c.n, "
    "(SELECT coalesce(sum(s.n), 0) FROM hotrow_counter_snapshot s WHERE s.name = $1) AS snapshot, "
    "(SELECT coalesce(sum(e.delta), 0) FROM hotrow_counter_event e WHERE e.name = $1) AS tail "
    "FROM hotrow_counter c WHERE c.name = $1"
)

# The shards that live in this database.
SHARDS: Final = "SELECT shard, n FROM hotrow_counter_shard WHERE name = $1"
