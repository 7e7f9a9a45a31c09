"""The address of a schema in PostgreSQL: the driver's own URL, and five options that are ours.

    postgresql://user:password@host:5432/shop?schema=stock
    postgresql://user:@/shop?host=/run/postgresql&schema=stock
    postgresql://pooler:6432/shop?pgbouncer=true&connections_max=20

What is ours is taken out before the driver sees the rest, because it would hand unknown options to the server as
settings, and a pooler refuses those. An option of ours that is misspelt must not get that far either: it is refused
with the one that was probably meant. `statement_timeout_s` bounds one statement as seen from here, and
`connect_timeout_s` how long a server is waited for that takes no connection.
"""

import difflib
import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from interlock.errors import BadUsage

SCHEMES = ("postgresql", "postgres")
SCHEMA = "interlock"
CONNECTIONS_MAX = 200
STATEMENT_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
IDENTIFIER_BYTES_MAX = 63

OPTIONS = ("schema", "pgbouncer", "connections_max", "statement_timeout_s", "connect_timeout_s")
"""Ours."""

DRIVER_OPTIONS = (
    "host", "port", "user", "password", "database", "dbname", "passfile", "service", "sslmode", "sslcert", "sslkey",
    "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version",
    "target_session_attrs", "krbsrvname", "gsslib", "application_name",
)  # fmt: skip
"""The driver's. Everything else would become a setting of the server, and a misspelt secret would be sent to it."""

_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_SECRETS = ("password", "sslpassword")


class Address(NamedTuple):
    """The address of a schema, with the options of its connections."""

    url: str
    """For the driver."""
    shown: str
    """For people: without anything secret."""
    schema: str = SCHEMA
    pgbouncer: bool = False
    """The server is reached through a pooler in transaction mode, which keeps no state between two transactions."""
    connections_max: int = CONNECTIONS_MAX
    statement_timeout_s: float = STATEMENT_TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    """How long a call waits for a server that is full, starting or away while this node has no connection to it."""


def is_postgres(url: str) -> bool:
    """Return whether the address is one of PostgreSQL."""
    return url.partition("://")[0] in SCHEMES and "://" in url


def parsed(url: str) -> Address:
    """The address in a text. Raises BadUsage, which says what is wrong and shows no secret."""
    shown = redacted(url)
    try:
        scheme, _, _, query, fragment = urlsplit(url)
    except ValueError:
        # What it says may quote the address, password and all.
        raise _bad(shown, "cannot be read: its host is neither a name nor an address") from None
    if scheme not in SCHEMES:
        raise _bad(shown, "does not begin with postgresql://")
    if fragment:
        raise _bad(shown, "has a # in it", "Write %23 for a # in a name or a password.")
    ours: dict[str, str] = {}
    others: list[str] = []
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in OPTIONS:
            ours[name] = unquote(value)
        elif name in DRIVER_OPTIONS:
            others.append(option)
        else:
            close = difflib.get_close_matches(name, (*OPTIONS, *DRIVER_OPTIONS), n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise _bad(shown, f"has an option {_shown_name(name)} that does not exist.{hint}".removesuffix("."))
    rest = url.partition("?")[0] + ("?" + "&".join(others) if others else "")
    return Address(
        rest,
        shown,
        _schema(shown, ours.get("schema", SCHEMA)),
        _switch(shown, ours.get("pgbouncer", "false")),
        int(_number(shown, "connections_max", ours.get("connections_max", str(CONNECTIONS_MAX)), whole=True)),
        _number(shown, "statement_timeout_s", ours.get("statement_timeout_s", str(STATEMENT_TIMEOUT_S)), whole=False),
        _number(shown, "connect_timeout_s", ours.get("connect_timeout_s", str(CONNECT_TIMEOUT_S)), whole=False),
    )


def redacted(url: str) -> str:
    """The URL as it may be shown. Takes any text, also a wrong address."""
    # Mask the password first: one that is not quoted may contain a slash, a question mark, a # and an @.
    url = re.sub(r"(?s)(?<=://)([^/@:?#\[]*):.*@", r"\1:***@", url)
    shown, mark, query = url.partition("#")[0].partition("?")
    options = [_shown_option(option) for option in query.split("&")] if mark else []
    return shown + mark + "&".join(options)


def _shown_option(option: str) -> str:
    name, mark, value = option.partition("=")
    known = name in OPTIONS or (name in DRIVER_OPTIONS and name not in _SECRETS)
    if not mark:
        return name if known else "***"
    return f"{name}={value if known else '***'}"


def _shown_name(name: str) -> str:
    """An option's name; whatever else stands in its place may be the rest of a password that had a ? in it."""
    return repr(name) if re.fullmatch(r"[A-Za-z_]{1,40}", name) else "***"


def _schema(shown: str, name: str) -> str:
    # A name that needs no quoting on any way to a person, be it psql, a log or a grant.
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) is None or len(name) > IDENTIFIER_BYTES_MAX or name.startswith("pg_"):
        raise _bad(
            shown,
            f"names a schema {name!r}",
            "A schema has lower-case letters, digits and underscores, at most 63 of them, and does not begin with pg_.",
        )
    return name


def _switch(shown: str, text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise _bad(shown, f"says pgbouncer={text!r}", "Write pgbouncer=true or pgbouncer=false.")
    return _SWITCH[text.lower()]


def _number(shown: str, name: str, text: str, *, whole: bool) -> float:
    pattern = r"[0-9]{1,6}" if whole else r"[0-9]{1,6}(\.[0-9]{1,6})?"
    if re.fullmatch(pattern, text) is None or float(text) <= 0:
        raise _bad(shown, f"says {name}={text!r}", f"Write a number above 0: {name}=20.")
    return float(text)


def _bad(shown: str, what: str, fix: str = "Write postgresql://user@host/database?schema=interlock.") -> BadUsage:
    return BadUsage(
        f"{shown!r} {what}.",
        why="The address says which server, database and schema are meant, and how to reach them.",
        fix=fix,
    )
