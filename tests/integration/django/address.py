"""The entry of DATABASES for an address."""

from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

TRANSACTION_S: Final = 600.0
"""A migration is one transaction, and how long it takes says something about the machine."""


def database(url: str) -> dict[str, object]:
    """Return the entry: a lane by its address; a PostgreSQL with Django's own backend, in the schema of the address."""
    if not url.startswith("postgresql:"):
        return {"ENGINE": "interlock.django", "NAME": url, "OPTIONS": {"transaction_timeout_s": TRANSACTION_S}}
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": unquote(parts.username or ""),
        "HOST": asked.get("host", [parts.hostname or ""])[0],
        "PORT": parts.port or "",
        "OPTIONS": {"options": f"-c search_path={asked['schema'][0]}"} if "schema" in asked else {},
    }
