"""The entry of DATABASES for an address."""

from urllib.parse import parse_qs, unquote, urlsplit


def database(url: str) -> dict[str, object]:
    """Return the entry: a lane by its address; a PostgreSQL with Django's own backend, in the schema of the address."""
    if not url.startswith("postgresql:"):
        return {"ENGINE": "interlock.django", "NAME": url}
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
