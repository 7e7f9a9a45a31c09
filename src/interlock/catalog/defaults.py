"""Default addresses of unmoved names: below the home, each in a database of its own (D4).

On a disk and in a bucket that is a place with its name; on PostgreSQL a schema beside the home's own. A name that no
schema can have, or that another schema has already, becomes a digest: no two names ever share a place.
"""

import hashlib
import re
from typing import Final
from urllib.parse import quote

from interlock.lanes.objects.addresses import is_bucket
from interlock.sql.postgres.address import IDENTIFIER_BYTES_MAX, SCHEMA, is_postgres, parsed

DIGEST_PREFIX: Final = "db_"

_TAKEN = frozenset({SCHEMA, "public", "information_schema"})
"""Workflows live in the first, databases without a schema in their address in the second."""


def below(home: str, name: str) -> str:
    """Return the address of a name at its home."""
    if home == "memory:":
        return home
    if is_postgres(home):
        return _beside(home, _schema(name, parsed(home).schema))
    folder, mark, options = home.partition("?") if is_bucket(home) else (home, "", "")
    return f"{folder.rstrip('/')}/{quote(name)}{mark}{options}"


def _beside(home: str, schema: str) -> str:
    place, _, query = home.partition("?")
    others = [option for option in query.split("&") if option and not option.startswith("schema=")]
    return f"{place}?{'&'.join([*others, f'schema={schema}'])}"


def _schema(name: str, of_home: str) -> str:
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and len(name) <= IDENTIFIER_BYTES_MAX
    # Two underscores separate a database from its streams, and precede the remains of a move.
    own = name not in _TAKEN | {of_home} and "__" not in name and not name.startswith(("pg_", DIGEST_PREFIX))
    if plain and own:
        return name
    return DIGEST_PREFIX + hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
