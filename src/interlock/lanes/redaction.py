"""Redaction of addresses: shows the values of options that are known to be harmless, and no others.

A misspelt secret is still a secret. Every text that names an address, of a bucket or elsewhere, shows it through this.
"""

import re
from typing import Final
from urllib.parse import unquote

MASK: Final = "***"

S3_OPTIONS: Final = (
    "endpoint",
    "region",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "virtual_hosted",
    "allow_http",
)
GS_OPTIONS: Final = ("endpoint", "service_account", "allow_http")
AZ_OPTIONS: Final = ("endpoint", "account", "access_key", "sas", "allow_http")

OPTIONS: Final = {"s3": S3_OPTIONS, "gs": GS_OPTIONS, "az": AZ_OPTIONS}
SECRETS: Final = frozenset({"secret_access_key", "session_token", "access_key", "sas"})

POSTGRES_OPTIONS: Final = ("schema", "host", "port", "dbname")
"""Options that say where on PostgreSQL a database was moved to: without them it could not be found there."""

_HARMLESS: Final = frozenset({*POSTGRES_OPTIONS, *(name for names in OPTIONS.values() for name in names)}) - SECRETS


def redacted(url: str) -> str:
    """Return the URL as it may be shown: in an error, in a log, in `Database.url`. Takes any text, also a wrong one."""
    # No bucket has a colon in its name: what comes before an @ then is a secret, also one with a slash in it.
    url = re.sub(r"(?s)(?<=://)[^/@]*:.*@", f"{MASK}@", url)
    text, hash_mark, _ = url.partition("#")
    text, mark, query = text.partition("?")
    text = re.sub(r"(?<=://)[^/@]*@", f"{MASK}@", text)
    text = re.sub(r"(?i)((?:secret|key|token|sas|sig|password)[^=&/]*=)[^&]*", rf"\1{MASK}", text)
    options = [_shown_option(option) for option in query.split("&")] if mark else []
    return text + mark + "&".join(options) + (f"#{MASK}" if hash_mark else "")


def _shown_option(option: str) -> str:
    name, mark, value = option.partition("=")
    if not mark:
        return name if name in _HARMLESS | SECRETS else MASK
    if name == "endpoint":
        value = re.sub(r"^(\w+://)?[^/@]*@", rf"\1{MASK}@", unquote(value)).partition("?")[0]
    return f"{name}={value if name in _HARMLESS else MASK}"
