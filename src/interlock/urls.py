"""URLs of databases, of Redis and of servers: parse, check and redact them.

Each kind has a parser, which returns an address or raises BadUsage. No error, log or repr shows a secret: the redact
functions show the values of the options that are known to be harmless and no others, because a misspelt secret is
still a secret. For the same reason a misspelt option is refused, never ignored. Only the address of Redis may come
from the environment.

A plus sign in an option of a bucket or of PostgreSQL stands for itself, as in half of all secret keys, not for a space.

Sections: redaction, relative paths and guesses, secrets, buckets, PostgreSQL, lanes, Redis, servers.
"""

import difflib
import hashlib
import os
import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from interlock.errors import BadUsage, InvalidPayload
from interlock.redaction import MASK

BUCKET_OPTIONS: Final = {
    "s3": ("endpoint", "region", "access_key_id", "secret_access_key", "session_token", "virtual_hosted", "allow_http"),
    "gs": ("endpoint", "service_account", "allow_http"),
    "az": ("endpoint", "account", "access_key", "sas", "allow_http"),
}
BUCKET_SECRETS: Final = frozenset({"secret_access_key", "session_token", "access_key", "sas"})

POSTGRES_OPTIONS: Final = ("schema", "pgbouncer", "connections_max", "statement_timeout_s", "connect_timeout_s")
"""The options of PostgreSQL that are Interlock's own."""

DRIVER_OPTIONS: Final = (
    "host", "port", "user", "password", "database", "dbname", "passfile", "service", "sslmode", "sslcert", "sslkey",
    "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version",
    "target_session_attrs", "krbsrvname", "gsslib", "application_name",
)  # fmt: skip
"""The driver's. It would send any other to the server as a setting, and with it a misspelt secret."""

POSTGRES_SECRETS: Final = frozenset({"password", "sslpassword"})

# --- Redaction -------------------------------------------------------------------------------------------------------

_POSTGRES_HARMLESS: Final = frozenset({*POSTGRES_OPTIONS, *DRIVER_OPTIONS}) - POSTGRES_SECRETS
_BUCKET_NAMES: Final = frozenset(name for names in BUCKET_OPTIONS.values() for name in names)
# A database may have been moved to PostgreSQL: without these options it could not be found there.
_BUCKET_HARMLESS: Final = (_BUCKET_NAMES - BUCKET_SECRETS) | {"schema", "host", "port", "dbname"}


def redact_secrets(url: str) -> str:
    """Return the URL of a database of any kind as it may be shown."""
    return redact_postgres_url(url) if is_postgres_url(url) else redact_url(url)


def redact_url(url: str) -> str:
    """Return the URL of a bucket or lane as it may be shown. Takes any text, also an invalid URL."""
    # No bucket has a colon in its name: what comes before an @ then is a secret, also one with a slash in it.
    url = re.sub(r"(?s)(?<=://)[^/@]*:.*@", f"{MASK}@", url)
    text, hash_mark, _ = url.partition("#")
    text, mark, query = text.partition("?")
    text = re.sub(r"(?<=://)[^/@]*@", f"{MASK}@", text)
    text = re.sub(r"(?i)((?:secret|key|token|sas|sig|password)[^=&/]*=)[^&]*", rf"\1{MASK}", text)
    options = _redact_options(query, _BUCKET_HARMLESS, _BUCKET_HARMLESS | BUCKET_SECRETS) if mark else ""
    return text + mark + options + (f"#{MASK}" if hash_mark else "")


def redact_postgres_url(url: str) -> str:
    """Return the URL of PostgreSQL as it may be shown. Takes any text, also an invalid URL."""
    # Mask the password first: one that is not quoted may contain a slash, a question mark, a # and an @.
    url = re.sub(r"(?s)(?<=://)([^/@:?#\[]*):.*@", rf"\1:{MASK}@", url)
    text, mark, query = url.partition("#")[0].partition("?")
    return text + mark + (_redact_options(query, _POSTGRES_HARMLESS, _POSTGRES_HARMLESS) if mark else "")


def redact_redis_url(url: str) -> str:
    """Return the URL of a Redis as it may be shown: without user, password and options. Takes any text."""
    before, at, place = url.partition("?")[0].rpartition("@")
    scheme = before.partition("://")[0] + "://" if "://" in before else ""
    return f"{scheme}{MASK}@{place}" if at else place


def _redact_options(query: str, harmless: Collection[str], names: Collection[str]) -> str:
    """Mask the values of options that are not harmless, and a text without a value that is not among the names."""

    def redact(option: str) -> str:
        name, mark, value = option.partition("=")
        if not mark:
            return name if name in names else MASK
        if name == "endpoint":
            value = re.sub(r"^(\w+://)?[^/@]*@", rf"\1{MASK}@", unquote(value)).partition("?")[0]
        return f"{name}={value if name in harmless else MASK}"

    return "&".join(map(redact, query.split("&")))


def _did_you_mean(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}? " if close else ""


# --- Relative paths and guesses --------------------------------------------------------------------------------------
# Functions that take a URL from a user call `resolve_url` first: a stored or compared URL always has an absolute path,
# because the process may change its working directory. A URL that no engine has is refused with a guess.


def resolve_url(url: str, folder: Path | None = None) -> str:
    """Return the URL with an absolute path, and any other text unchanged.

    `lanes:shop`, `lanes://./shop` and `lanes://../shop` are below the folder, by default the working directory;
    `lanes:~/shop` is below the user's home directory; `memory://` is `memory:`. Raises BadUsage for `lanes:///~/shop`.
    """
    text: object = url  # Callers without a type checker may pass anything.
    if url == "memory://":
        return "memory:"
    if not isinstance(text, str) or not url.startswith("lanes:"):
        return url
    if url.startswith("lanes:///"):
        if url.startswith("lanes:///~"):
            # Otherwise the data would be in a folder whose name is a tilde, at the root of the disk.
            raise BadUsage(
                f"{redact_secrets(url)!r} has three slashes before the ~.",
                why="Three slashes begin an absolute path, and ~ is a home directory only at the beginning.",
                fix=f"Write lanes://{redact_secrets(url).removeprefix('lanes:///')}.",
            )
        return url
    place, mark, options = url.removeprefix("lanes:").partition("?")
    path = place.removeprefix("//")
    first, slash, rest = path.partition("/")
    if not path or (place != path and first not in {".", ".."} and not first.startswith("~")):
        return url  # `lanes://shop` may be a typing error for an absolute or for a relative path.
    if first.startswith("~"):
        known = os.path.expanduser(first)  # noqa: PTH111 -- a Path has no text of its own.
        if known == first:
            raise BadUsage(
                f"{url!r} names the home directory of a user that does not exist.",
                why="The path begins with ~ and a user's name.",
                fix="Write lanes:~/shop for your own home directory, or an absolute path.",
            )
        path = quote(known) + slash + rest
    here = (folder or Path.cwd()).absolute().as_posix()
    absolute = posixpath.normpath(posixpath.join(quote(here), path))
    return f"lanes:///{absolute.lstrip('/')}{mark}{options}"


def unknown_url(url: object, what: str, example: str = "lanes:///folder") -> BadUsage:
    """Return the error for a URL that no engine has, with the one that was probably meant."""
    redacted, absolute = redact_secrets(str(url)), example.replace("/folder", "/var/shop")
    return BadUsage(
        f"{redacted!r} is not {what}; {example}, s3://bucket/folder, postgresql://host/database and memory: are.",
        why="The scheme says which engine keeps the data.",
        fix=_guess(redacted) or f"Write lanes:// and a path: lanes://./shop, or {absolute}.",
    )


_MEANT: Final = {
    "sqlite": "lanes", "file": "lanes", "lane": "lanes", "postgresql": "postgresql", "postgres": "postgresql",
    "postgre": "postgresql", "pg": "postgresql", "psql": "postgresql", "gcs": "gs", "azure": "az", "abfs": "az",
    "s3a": "s3", "s3n": "s3",
}  # fmt: skip
_OTHER_KINDS: Final = {
    **dict.fromkeys(("redis", "rediss", "unix"), "A Redis is passed as redis= or --redis, beside the URL of a home."),
    **dict.fromkeys(("http", "https"), "A server is asked with Client(url), or on the command line with --server URL."),
    **dict.fromkeys(
        ("mysql", "mariadb", "mongodb", "oracle", "mssql"),
        "Interlock keeps data in a folder, lanes:///var/shop, in a bucket or in PostgreSQL.",
    ),
}


def _guess(url: str) -> str:
    """Return the remedy for a redacted URL that no engine has, or an empty text."""
    scheme, colon, rest = url.partition(":")
    scheme, driver, _ = scheme.lower().partition("+")
    if scheme in _OTHER_KINDS:
        return _OTHER_KINDS[scheme]
    known = ("lanes", "memory", "postgresql", *BUCKET_OPTIONS)
    path = rest.removeprefix("//")
    if url == "memory" or (scheme == "sqlite" and not path.strip("/")):
        return "Did you mean memory:?"  # `sqlite://` without a path is SQLite in memory.
    if not colon or "/" in scheme or scheme.startswith("~"):
        meant, path = ("lanes" if url and url.isprintable() else ""), url
    else:
        meant = _MEANT.get(scheme) or next(iter(difflib.get_close_matches(scheme, known, n=1, cutoff=0.7)), "")
    if meant == "memory" or "memory:" in rest:
        return "Did you mean memory:?"
    if url.startswith("lanes:///") or (scheme == "lanes" and path.startswith(("/", "./", "../", "~"))):
        folder = re.split("[?#]", path)[0]
        meant = f"Did you mean lanes://{folder}?"
        return meant if folder == path else f"A folder takes no options. {meant}"
    if scheme == "lanes" and path:
        return f"Did you mean lanes://./{path}, or with three slashes the absolute path lanes:///{path}?"
    if meant == "lanes":
        # `sqlite:///shop.db` is a relative path, and `sqlite:////var/shop.db` an absolute one.
        path = re.sub(r"\.(db|sqlite3?|lane)$", "", path.removeprefix("/") if scheme == "sqlite" else path)
        path = path if path.startswith(("/", ".", "~")) else f"./{path}"
    if meant in BUCKET_OPTIONS or (meant == "postgresql" and not rest.startswith("//")):
        path = path.lstrip("/")
    return f"Did you mean {meant}://{path}?{' It needs no driver.' * bool(driver)}" if meant else ""


# --- Secrets ---------------------------------------------------------------------------------------------------------
# A catalog and a tombstone never store a secret. A stored URL keeps the server and the user. A process that opens it
# takes the secret from the URL of the home or of the previous place, where that is the same user of the same server.
# Otherwise the drivers look for it themselves (PGPASSWORD and ~/.pgpass, AWS_…, GOOGLE_…, AZURE_…).

_OWNER_OPTIONS = frozenset({"endpoint", "account", "access_key_id", "host", "port", "user", "service"})
"""The options that identify the owner of a secret."""


def without_secrets(url: str) -> str:
    """Return the address without its secrets."""
    parts = _split_url(url)
    return url if parts is None else parts._replace(password="", options=parts.plain).url


def with_secrets(url: str, *known: str) -> str:
    """Return the address with the secrets of the first known address of the same user at the same server."""
    mine = _split_url(url)
    if mine is None or mine.password or mine.secret:
        return url
    for each in known:
        theirs = _split_url(each)
        if theirs is not None and theirs.owner == mine.owner:
            return mine._replace(password=theirs.password, options=(*mine.options, *theirs.secret)).url
    return url


class _UrlParts(NamedTuple):
    scheme: str
    user: str
    password: str
    server: str
    """Of PostgreSQL; of a bucket empty, because its options say which server it is on."""
    path: str
    options: tuple[str, ...]

    @property
    def secret(self) -> tuple[str, ...]:
        secrets = POSTGRES_SECRETS if is_postgres_url(f"{self.scheme}://") else BUCKET_SECRETS
        return tuple(option for option in self.options if option.partition("=")[0] in secrets)

    @property
    def plain(self) -> tuple[str, ...]:
        return tuple(option for option in self.options if option not in self.secret)

    @property
    def owner(self) -> tuple[str, ...]:
        # Neither the database nor the bucket: one user has one secret for all of them.
        named = sorted(option for option in self.options if option.partition("=")[0] in _OWNER_OPTIONS)
        return (self.scheme.replace("postgresql", "postgres"), self.user, self.server, *named)

    @property
    def url(self) -> str:
        password = f":{self.password}" if self.password else ""
        user = f"{self.user}{password}@" if self.user or password else ""
        query = f"?{'&'.join(self.options)}" if self.options else ""
        return f"{self.scheme}://{user}{self.server}{self.path}{query}"


def _split_url(url: str) -> _UrlParts | None:
    """Split an address; return None for one without secrets: a local lane, or memory."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    options = tuple(option for option in query.split("&") if option)
    if is_bucket_url(url):
        return _UrlParts(scheme, "", "", "", place, options)
    if not is_postgres_url(url):
        return None
    server, slash, path = place.partition("/")
    user, mark, server = server.rpartition("@")
    name, _, password = user.partition(":")
    # `user:@` says that there is no password to look for, which is part of the address.
    kept = f"{name}:" if mark and user.endswith(":") else name
    return _UrlParts(scheme, kept, password, server, slash + path, options)


# --- Buckets: `s3://bucket/folder/name`, `gs://bucket/name`, `az://container/name` -----------------------------------
# Options follow a question mark (`?endpoint=http://127.0.0.1:9000&region=eu-central-1`). The provider's own environment
# variables, which every tool of the provider reads, replace the options that are missing.

PATH_BYTES_MAX = 800
"""Folder and name together. A key has at most 1,024 bytes, and the longest one below them has about 90."""

RESERVED_NAMES: Final = frozenset({"log", "snapshot", "probe", "manifest"})
"""The names that a database uses below itself and the probe uses beside it: no database may have one of them."""

_BUCKET_SWITCHES = frozenset({"virtual_hosted", "allow_http"})
_BUCKET_PLACES = frozenset({"endpoint", "account"})
_BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_BUCKET_EXAMPLES = {"s3": "s3://bucket/shop/stock", "gs": "gs://bucket/shop/stock", "az": "az://container/shop/stock"}


class BucketAddress(NamedTuple):
    """The parts of the URL of a database in a bucket. Its text never shows its secrets."""

    scheme: str
    bucket: str
    folder: str
    """The folder that the database shares with others; may be empty."""
    name: str
    options: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        """The prefix of the database's keys."""
        return f"{self.folder}/{self.name}" if self.folder else self.name

    @property
    def root(self) -> str:
        """The folder in its bucket on its server: all databases with this root share one probe."""
        where = "&".join(f"{name}={value}" for name, value in self.options if name in _BUCKET_PLACES)
        return f"{self.scheme}://{self.bucket}/{quote(self.folder)}" + (f"?{where}" if where else "")

    def option(self, name: str) -> str | None:
        """Return the value of an option, or None when the URL does not have it."""
        return dict(self.options).get(name)

    def switch(self, name: str) -> bool | None:
        """Return the value of an option that is true or false."""
        value = self.option(name)
        return None if value is None else value == "true"

    def __str__(self) -> str:
        options = [f"{name}={MASK if name in BUCKET_SECRETS else value}" for name, value in self.options]
        return f"{self.scheme}://{self.bucket}/{quote(self.path)}" + (f"?{'&'.join(options)}" if options else "")

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def is_bucket_url(url: object) -> bool:
    """Whether the value is a text that begins with the scheme of a bucket."""
    return isinstance(url, str) and url.partition("://")[0] in BUCKET_OPTIONS and "://" in url


def parse_bucket_url(url: str) -> BucketAddress:
    """Parse the URL of a database in a bucket. Raises BadUsage, which never shows a secret."""
    bad = partial(_bad_bucket_url, url)
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in BUCKET_OPTIONS:
        raise bad("is not the address of a database in a bucket", "Begin with s3://, gs:// or az://.")
    if "#" in rest:
        raise bad("has a # in it", "Write %23 for a # that belongs to a name or a value.")
    rest, _, query = rest.partition("?")
    bucket, _, path = rest.partition("/")
    if "@" in bucket:
        raise bad("has credentials in front of the bucket", "Give them as options, or in the environment.")
    if not bucket:
        raise bad("names no bucket", f"Write it as {_BUCKET_EXAMPLES[scheme]}.")
    if not _BUCKET_NAME.fullmatch(bucket):
        letters = "A bucket's name has 2 to 222 letters, digits, dots, dashes and underscores"
        raise bad("does not begin with the name of a bucket", f"{letters}; a port belongs to ?endpoint=.")
    if "&" in path:
        raise bad("has an & in its path", "Options begin with a question mark; write %26 for an & in a name.")
    path = unquote(path.removesuffix("/"))
    if not path:
        raise bad("names a bucket but no database", f"Add the database's name: {_BUCKET_EXAMPLES[scheme]}.")
    folder, name = _folder_and_name(url, path)
    return BucketAddress(scheme, bucket, folder, name, _bucket_options(url, scheme, query))


def _folder_and_name(url: str, path: str) -> tuple[str, str]:
    bad = partial(_bad_bucket_url, url)
    if len(path.encode(errors="replace")) > PATH_BYTES_MAX:
        raise bad(f"has a path of more than {PATH_BYTES_MAX} bytes", "Use a shorter folder or name.")
    if not path.isprintable() or "\\" in path or "\ufffd" in path:
        raise bad("has a character in its path that no key can have", "Use printable characters, and no \\.")
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise bad("has an empty part, . or .. in its path", "Write each folder by its name, with one / between.")
    # Nothing is above the first folder but the bucket, which is not a database: that one may have any name.
    taken = [part for part in (parts[1:] or parts) if part in RESERVED_NAMES]
    if taken:
        names = ", ".join(sorted(RESERVED_NAMES))
        raise bad(
            f"has {taken[0]!r} in its path, where a database keeps its own objects",
            f"Use another name: {names} are taken, except for the first of several folders.",
        )
    return "/".join(parts[:-1]), parts[-1]


def _bucket_options(url: str, scheme: str, query: str) -> tuple[tuple[str, str], ...]:
    bad = partial(_bad_bucket_url, url)
    options: dict[str, str] = {}
    known = BUCKET_OPTIONS[scheme]
    for option in query.split("&") if query else []:
        name, _, value = option.partition("=")
        value = unquote(value)
        if name not in known:
            # Any other text may be half of a secret that had an & in it.
            label = name if re.fullmatch(r"[a-z_]{1,40}", name) else MASK
            fix = f"{_did_you_mean(name, known)}There are {', '.join(known)}."
            raise bad(f"has an option that {scheme}:// does not have, {label}", fix)
        if name in options:
            raise bad(f"has the option {name} twice", "Give it once.")
        if not value or not value.isprintable():
            raise bad(f"gives {name} no value", f"Write {name}=…, or leave it out.")
        if name in _BUCKET_SWITCHES and value not in {"true", "false"}:
            raise bad(f"gives {name} another value than true or false", f"Write {name}=true or {name}=false.")
        if name == "endpoint" and not _is_endpoint(value):
            fix = "Write it as endpoint=https://host or endpoint=http://host:port, without credentials."
            raise bad("has an endpoint that is not the address of a server", fix)
        options[name] = value
    if options.get("allow_http") == "false" and options.get("endpoint", "").startswith("http://"):
        raise bad("has an endpoint of http:// and allow_http=false", "Leave out one of the two.")
    return tuple(sorted(options.items()))


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        server = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return server and "@" not in parts.netloc and not parts.query and not parts.fragment


def _bad_bucket_url(url: str, what: str, fix: str) -> BadUsage:
    why = "A database in a bucket is named by its scheme, its bucket, a folder if you like, and its own name."
    return BadUsage(f"{redact_url(url)!r} {what}.", why=why, fix=fix)


# --- PostgreSQL: `postgresql://user@host:5432/shop?schema=stock` -----------------------------------------------------
# The address of a schema is the driver's own URL with five options of Interlock:
# postgresql://user:@/shop?host=/run/postgresql&schema=stock, postgresql://pooler:6432/shop?pgbouncer=true
#
# Interlock's options are taken out before the driver gets the URL: it would send them to the server as settings, and a
# pooler refuses those. `statement_timeout_s` bounds one statement as measured by the client. `connect_timeout_s` bounds
# the wait for a server that accepts no connection.

POSTGRES_SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "interlock"
CONNECTIONS_MAX = 200
STATEMENT_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
IDENTIFIER_BYTES_MAX = 63

SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
"""Values of a switch in a text."""


class PostgresAddress(NamedTuple):
    """The address of a schema, with the options of its connections."""

    url: str
    """For the driver."""
    redacted_url: str
    """For people: without anything secret."""
    schema: str = DEFAULT_SCHEMA
    pgbouncer: bool = False
    """The server is reached through a pooler in transaction mode, which keeps no state between two transactions."""
    connections_max: int = CONNECTIONS_MAX
    statement_timeout_s: float = STATEMENT_TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    """How long a call waits for a server that is full, starting or away while this node has no connection to it."""


def is_postgres_url(url: str) -> bool:
    """Whether the text begins with a scheme of PostgreSQL."""
    return url.partition("://")[0] in POSTGRES_SCHEMES and "://" in url


def parse_postgres_url(url: str) -> PostgresAddress:
    """Parse the URL of a schema in PostgreSQL. Raises BadUsage, which never shows a secret."""
    redacted = redact_postgres_url(url)
    try:
        scheme, _, _, query, fragment = urlsplit(url)
    except ValueError:
        # What it says may quote the address, password and all.
        raise _bad_postgres_url(redacted, "cannot be read: its host is neither a name nor an address") from None
    if scheme not in POSTGRES_SCHEMES:
        raise _bad_postgres_url(redacted, "does not begin with postgresql://")
    if fragment:
        raise _bad_postgres_url(redacted, "has a # in it", "Write %23 for a # in a name or a password.")
    ours: dict[str, str] = {}
    others: list[str] = []
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in POSTGRES_OPTIONS:
            ours[name] = unquote(value)
        elif name in DRIVER_OPTIONS:
            others.append(option)
        else:
            # Any other text may be the rest of a password that had a ? in it.
            label = repr(name) if re.fullmatch(r"[A-Za-z_]{1,40}", name) else MASK
            hint = _did_you_mean(name, (*POSTGRES_OPTIONS, *DRIVER_OPTIONS))
            fix = f"{hint}The options are {', '.join(POSTGRES_OPTIONS)}, and those of the driver."
            raise _bad_postgres_url(redacted, f"has an option {label} that does not exist", fix)

    def seconds_or_count(name: str, default: float, pattern: str = r"[0-9]{1,6}(\.[0-9]{1,6})?") -> float:
        text = ours.get(name, str(default))
        if re.fullmatch(pattern, text) is None or float(text) <= 0:
            raise _bad_postgres_url(redacted, f"says {name}={text!r}", f"Write a number above 0: {name}=20.")
        return float(text)

    switch = ours.get("pgbouncer", "false")
    schema = _postgres_schema(redacted, ours.get("schema", DEFAULT_SCHEMA))
    if switch.lower() not in SWITCH:
        raise _bad_postgres_url(redacted, f"says pgbouncer={switch!r}", "Write pgbouncer=true or pgbouncer=false.")
    return PostgresAddress(
        url.partition("?")[0] + ("?" + "&".join(others) if others else ""),
        redacted,
        schema,
        SWITCH[switch.lower()],
        int(seconds_or_count("connections_max", CONNECTIONS_MAX, r"[0-9]{1,6}")),
        seconds_or_count("statement_timeout_s", STATEMENT_TIMEOUT_S),
        seconds_or_count("connect_timeout_s", CONNECT_TIMEOUT_S),
    )


def parse_database_url(url: str) -> PostgresAddress:
    """Parse the URL of a database in PostgreSQL, which is in the schema `public` if it names none."""
    address = parse_postgres_url(url)
    return address if has_schema(url) else address._replace(schema="public")


def has_schema(url: str) -> bool:
    """Whether the URL names a schema."""
    return any(option.partition("=")[0] == "schema" for option in url.partition("?")[2].split("&"))


def with_schema(url: str, schema: str) -> str:
    """Return the address of another schema of the same database."""
    return with_option(url, "schema", schema)


def with_option(url: str, name: str, value: str) -> str:
    """Return the address with this option, in place of one of the same name."""
    place, _, query = url.partition("?")
    others = [option for option in query.split("&") if option and not option.startswith(f"{name}=")]
    return f"{place}?{'&'.join([*others, f'{name}={value}'])}"


def _postgres_schema(redacted: str, name: str) -> str:
    # A name that needs no quoting on any way to a person, be it psql, a log or a grant.
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) is None or len(name) > IDENTIFIER_BYTES_MAX or name.startswith("pg_"):
        raise _bad_postgres_url(
            redacted,
            f"names a schema {name!r}",
            "A schema has lower-case letters, digits and underscores, at most 63 of them, and does not begin with pg_.",
        )
    return name


def _bad_postgres_url(
    redacted: str, what: str, fix: str = "Write postgresql://user@host/database?schema=interlock."
) -> BadUsage:
    why = "The address says which server, database and schema are meant, and how to reach them."
    return BadUsage(f"{redacted!r} {what}.", why=why, fix=fix)


# --- Lanes: `lanes:///var/shop/stock` is a file, `memory:` is lost when it is closed ---------------------------------

NAME_CHARACTERS_MAX = 100
STREAM_KEY_BYTES_MAX = 4_000
LANE_SUFFIX = ".lane"

PartKind = Literal["streams", "shards"]
"""Parts of a database that are databases of their own: write streams, and shards of counters on lanes."""


def stream_name(key: str) -> str:
    """Return the file name of a stream: readable where possible, and never outside of its folder.

    Letters, digits, dash and underscore stand for themselves; everything else makes the name a digest of the key.
    """
    try:
        data = key.encode()
    except (UnicodeEncodeError, AttributeError) as error:
        raise InvalidPayload(f"{key!r} is not the key of a stream: it must be a text.") from error
    if not 0 < len(data) <= STREAM_KEY_BYTES_MAX or "\x00" in key:
        raise InvalidPayload(f"the key of a stream has 1 to {STREAM_KEY_BYTES_MAX} bytes, without NUL.")
    if len(key) <= NAME_CHARACTERS_MAX and re.fullmatch(r"[a-z0-9_-]+", key):
        return key
    return _digest_name(data)


def check_address(url: object, home: object) -> None:
    """Raise BadUsage for an address or home that is not even a text, such as a Path."""
    for what, value in (("address or name of a database", url), ("home", home)):
        if not isinstance(value, str) and not (value is None and what == "home"):
            raise BadUsage(
                f"{type(value).__name__} {value!r} is not the {what}: it must be a text.",
                why="The scheme in front of the path says which engine keeps the data.",
                fix='Write "lanes:///var/shop/stock", or f"lanes://{path}" with an absolute path.',
            )


def is_lane_url(url: object) -> bool:
    """Whether the value is a text that begins as the address of a local lane, or of a folder of lanes."""
    return isinstance(url, str) and url.startswith("lanes:///")


def lane_path(url: str) -> Path | None:
    """Return the file of a lane, or None for a database in memory. Raises BadUsage for anything else."""
    if url == "memory:":
        return None
    path = _local_path(resolve_url(url))
    if path is not None and path.name and ".." not in path.parts:
        return path.with_name(path.name + LANE_SUFFIX)
    if is_postgres_url(url):
        raise BadUsage(
            f"{redact_postgres_url(url)!r} is on PostgreSQL, and this needs a lane.",
            why="It is about the file or the log of a lane; PostgreSQL has tools of its own for that.",
            fix="Name a lane: lanes:///var/shop/stock or s3://bucket/name. PostgreSQL has psql and interlock hot.",
        )
    raise unknown_url(url, "the address of a database", "lanes:///folder/name")


def stream_url(url: str, key: str) -> str:
    """Return the address of one stream of the database at this address."""
    if url == "memory:":
        return url
    return part_url(url, "streams", stream_name(key))


def shard_url(url: str, number: int) -> str:
    """Return the address of one shard of the database at this address: a part with its own writer."""
    return part_url(url, "shards", str(number))


def part_url(url: str, kind: PartKind, name: str) -> str:
    """Return the address of a part of a lane: of the stream with this file name, or of the shard with this number."""
    if name in RESERVED_NAMES and is_bucket_url(url):
        name = _digest_name(name.encode())  # No database may have that name there, but a key may be any text.
    return url if url == "memory:" else extend_path(url, f".{kind}/{name}")


def part_name(text: str) -> str:
    """Return the name of a part from the name of its place in a bucket."""
    return next((name for name in RESERVED_NAMES if _digest_name(name.encode()) == text), text)


def extend_path(url: str, text: str) -> str:
    """Return the address with this text after its path, before its options."""
    place, mark, options = url.partition("?")
    return f"{place.rstrip('/')}{text}{mark}{options}"


def last_name(url: str) -> str:
    """Return the last name in the path of an address."""
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])


def _digest_name(key: bytes) -> str:
    return f"={hashlib.blake2b(key, digest_size=20).hexdigest()}"


def _local_path(url: str) -> Path | None:
    try:
        parts = urlsplit(url)
        path = unquote(parts.path)
        path.encode()  # A lone surrogate is in no name of a file.
    except ValueError:
        return None
    if parts.scheme != "lanes" or parts.netloc or parts.query or parts.fragment or len(parts.path) <= 1:
        return None
    # Control characters would silently be dropped from the address, and NUL ends a name.
    return None if any(character < " " for character in url + path) else Path(path)


# --- Redis: `redis://host:6379/0?prefix=shop`, with `rediss` for TLS and `unix` for a socket -------------------------
# With `cluster=yes` the address is one node of a Redis Cluster.
#
# The prefix separates the users of one Redis: engines with the same prefix share leases, limits and breakers. Each
# key has one hash tag, so that a Redis Cluster has all keys of a script in one slot.

REDIS_VARIABLE = "INTERLOCK_REDIS"
REDIS_SCHEMES = ("redis", "rediss", "unix")
REDIS_PREFIX = "interlock"
REDIS_CLUSTER = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_REDIS_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class RedisAddress(NamedTuple):
    """The address of a Redis, and the prefix of its keys."""

    url: str
    """The driver's URL, without Interlock's own options; with its password, if it has one."""
    prefix: str
    redacted_url: str
    """For people and logs: without user, password and options."""
    cluster: bool = False
    """Whether it is one node of a Redis Cluster, by which the others are found."""

    def __repr__(self) -> str:
        """Show the address without its password: it may stand in a traceback, or in a log."""
        return f"Address({self.redacted_url!r}, prefix={self.prefix!r}, cluster={self.cluster})"

    def key(self, kind: str, name: str = "") -> str:
        """Return the key of an object that has a slot to itself, such as one breaker."""
        # The first closing brace would end the hash tag.
        escaped_name = name.replace("%", "%25").replace("}", "%7D").replace("{", "%7B")
        return f"{{{self.prefix}:{kind}}}" if not name else f"{{{self.prefix}:{kind}:{escaped_name}}}"


def configured_redis(text: str | None, environment: Mapping[str, str] | None = None) -> RedisAddress | None:
    """Return this address, or that of the environment for None; an empty text means no Redis."""
    chosen = (os.environ if environment is None else environment).get(REDIS_VARIABLE, "") if text is None else text
    return parse_redis_url(chosen) if chosen else None


def parse_redis_url(text: str) -> RedisAddress:
    """Parse the URL of a Redis. Raises BadUsage for an invalid one."""
    value: object = text  # Not every caller has a type checker.
    try:
        parts = urlsplit(text if isinstance(value, str) else "")
        port = parts.port
    except ValueError:
        raise _bad_redis_url(text) from None
    place = parts.path if parts.scheme == "unix" else parts.hostname
    if parts.scheme not in REDIS_SCHEMES or not place:
        raise _bad_redis_url(text)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", REDIS_PREFIX)
    if not _REDIS_PREFIX.fullmatch(prefix):
        raise BadUsage(
            f"the prefix of a Redis is {prefix!r}; it must be 1 to 64 letters, digits and any of _.:-",
            why="It is the beginning of every key, and part of the hash tag that chooses a slot.",
            fix="Give it so: redis://127.0.0.1:6379/0?prefix=shop.",
        )
    where = place if parts.scheme == "unix" else f"{place}:{port or 6379}{parts.path}"
    cluster = options.pop("cluster", "no")
    if cluster not in REDIS_CLUSTER or (REDIS_CLUSTER[cluster] and parts.scheme == "unix"):
        raise BadUsage(
            f"cluster of a Redis is {cluster!r}; it must be yes or no, and no for a socket.",
            why="It says whether the address is one node of a Redis Cluster, whose others are found by it.",
            fix="Give it so: redis://node-1:6379?cluster=yes.",
        )
    rest = f"?{urlencode(options)}" if options else ""
    return RedisAddress(text.partition("?")[0] + rest, prefix, f"{parts.scheme}://{where}", REDIS_CLUSTER[cluster])


def unknown_redis_option(address: RedisAddress, error: Exception) -> BadUsage:
    """Return the error for an option that the driver has refused."""
    options = sorted(name for name, _ in parse_qsl(urlsplit(address.url).query, keep_blank_values=True))
    return BadUsage(
        f"the address {address.redacted_url} has an option that the driver of Redis does not take, or a value that it "
        f"cannot read: {', '.join(options)}.",
        why=f"Everything after the question mark but prefix and cluster goes to the driver, which says: {error}",
        fix="Correct it, or take it out: redis://127.0.0.1:6379/0?prefix=shop.",
    )


def _bad_redis_url(text: object) -> BadUsage:
    return BadUsage(
        f"{redact_redis_url(str(text))!r} is not the address of a Redis.",
        why="It begins with redis://, rediss:// or unix://, and names a host or a socket.",
        fix=f"Give it as redis://127.0.0.1:6379/0: in Engine.open(…, redis=…), with --redis, in {REDIS_VARIABLE}, "
        "or as redis in interlock.toml.",
    )


# --- Servers: `http://host:port/root` --------------------------------------------------------------------------------
# An address is shown in errors, logs and listings. One with a user or a password is therefore refused, and the error
# repeats neither.

DEFAULT_PORTS = {"http": 80, "https": 443}

_SERVER_HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)
_SERVER_ROOT = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The parts of `http://host:port/root`."""

    scheme: str
    host: str
    port: int
    root: str = ""
    """The path under which the server is mounted, without a trailing slash."""

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.root}"


def parse_server_url(url: str) -> ServerAddress:
    """Parse the URL of a server. Raises BadUsage for an invalid one."""
    text: object = url  # Callers without a type checker may pass anything.
    if not isinstance(text, str):
        raise BadUsage(
            f"the address of a server is a {type(text).__name__}, not a text.", fix='Write "http://host:port".'
        )
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError:
        parts, port, host = urlsplit(""), None, None
    if "@" in text:
        raise BadUsage(
            "the address of a server has a user or a password in it.",
            why="Addresses are shown in errors and logs, and a secret must not be.",
            fix="Leave them out, and pass the API key as `key=`.",
        )
    root = parts.path.rstrip("/")
    known = (
        parts.scheme in DEFAULT_PORTS
        and host is not None
        and _SERVER_HOST.fullmatch(host)
        and _SERVER_ROOT.fullmatch(root)
    )
    if not known or host is None or parts.query or parts.fragment or port == 0:
        raise BadUsage(
            f"the address of a server is invalid: {text!r:.200}.",
            why="It has a scheme (http or https), a host, an optional port and an optional path; nothing else.",
            fix=f"Did you mean http://{text}?"
            if re.fullmatch(r"[\w.-]+(:[0-9]+)?", text)
            else 'Write "http://host:port" or "https://host/path".',
        )
    return ServerAddress(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], root)


def escaped(segment: str) -> str:
    """Escape an id as a segment of a path. Ids are printable texts of any alphabet; the result is ASCII."""
    # Proxies would resolve a segment of dots alone.
    return segment.replace(".", "%2E") if segment in {".", ".."} else quote(segment, safe="")


def query_of(**parameters: str | float | bool | None) -> str:
    """Return the query string; parameters that are None are left out."""
    texts = {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in parameters.items()
        if value is not None
    }
    return f"?{urlencode(texts)}" if texts else ""
