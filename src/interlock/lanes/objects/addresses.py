"""URLs of databases in a bucket: `s3://bucket/folder/name`, `gs://bucket/name`, `az://container/name`.

What is not in the URL comes from the environment variables that every tool of the provider reads. Options follow a
question mark (`?endpoint=http://127.0.0.1:9000&region=eu-central-1`); a misspelt one is refused, never ignored.

An option may be a secret, so an address is only ever shown by `redacted`: it shows the values of the options that it
knows to be harmless and no others, because a misspelt secret is still a secret. A plus sign stands for itself, as in
half of all secret keys, and not for a space.
"""

import difflib
import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from interlock.errors import BadUsage
from interlock.lanes import redaction

PATH_BYTES_MAX = 800
"""Folder and name together. A key has at most 1,024 bytes, and the longest one below them has about 90."""

RESERVED: Final = frozenset({"log", "snapshot", "probe", "manifest"})
"""Names that a database uses below itself, and the probe beside it. A database of such a name would clash."""

MASK: Final = redaction.MASK
OPTIONS: Final = redaction.OPTIONS
SECRETS: Final = redaction.SECRETS

_SWITCHES = frozenset({"virtual_hosted", "allow_http"})
_PLACES = frozenset({"endpoint", "account"})
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_EXAMPLES = {"s3": "s3://bucket/shop/stock", "gs": "gs://bucket/shop/stock", "az": "az://container/shop/stock"}


class Address(NamedTuple):
    """The parts of a URL. Its text never shows its secrets."""

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
        where = "&".join(f"{name}={value}" for name, value in self.options if name in _PLACES)
        return f"{self.scheme}://{self.bucket}/{quote(self.folder)}" + (f"?{where}" if where else "")

    def option(self, name: str) -> str | None:
        """Return the value of an option, or None when the URL does not have it."""
        return dict(self.options).get(name)

    def switch(self, name: str) -> bool | None:
        """Return the value of an option that is true or false."""
        value = self.option(name)
        return None if value is None else value == "true"

    def __str__(self) -> str:
        options = [f"{name}={MASK if name in SECRETS else value}" for name, value in self.options]
        return f"{self.scheme}://{self.bucket}/{quote(self.path)}" + (f"?{'&'.join(options)}" if options else "")

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def is_bucket(url: object) -> bool:
    """Whether the value is a text that begins with the scheme of a bucket."""
    return isinstance(url, str) and url.partition("://")[0] in OPTIONS and "://" in url


def parse(url: str) -> Address:
    """Parse the URL of a database in a bucket. Raises BadUsage, which never shows a secret."""
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in OPTIONS:
        raise _bad(url, "is not the address of a database in a bucket", "Begin with s3://, gs:// or az://.")
    if "#" in rest:
        raise _bad(url, "has a # in it", "Write %23 for a # that belongs to a name or a value.")
    rest, _, query = rest.partition("?")
    bucket, _, path = rest.partition("/")
    if "@" in bucket:
        raise _bad(url, "has credentials in front of the bucket", "Give them as options, or in the environment.")
    if not bucket:
        raise _bad(url, "names no bucket", f"Write it as {_EXAMPLES[scheme]}.")
    if not _BUCKET.fullmatch(bucket):
        raise _bad(
            url,
            "does not begin with the name of a bucket",
            "A bucket's name has 2 to 222 letters, digits, dots, dashes and underscores; a port belongs to ?endpoint=.",
        )
    folder, name = _folder_and_name(url, scheme, path)
    return Address(scheme, bucket, folder, name, _options(url, scheme, query))


def redacted(url: str) -> str:
    """Return the URL as it may be shown: in an error, in a log, in `Database.url`. Takes any text, also a wrong one."""
    return redaction.redacted(url)


def _folder_and_name(url: str, scheme: str, path: str) -> tuple[str, str]:
    if "&" in path:
        raise _bad(url, "has an & in its path", "Options begin with a question mark; write %26 for an & in a name.")
    path = unquote(path.removesuffix("/"))
    if not path:
        raise _bad(url, "names a bucket but no database", f"Add the database's name: {_EXAMPLES[scheme]}.")
    if len(path.encode(errors="replace")) > PATH_BYTES_MAX:
        raise _bad(url, f"has a path of more than {PATH_BYTES_MAX} bytes", "Use a shorter folder or name.")
    if not path.isprintable() or "\\" in path or "\ufffd" in path:
        raise _bad(url, "has a character in its path that no key can have", "Use printable characters, and no \\.")
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise _bad(url, "has an empty part, . or .. in its path", "Write each folder by its name, with one / between.")
    # Nothing is above the first folder but the bucket, which is not a database: that one may have any name.
    taken = [part for part in (parts[1:] or parts) if part in RESERVED]
    if taken:
        raise _bad(
            url,
            f"has {taken[0]!r} in its path, where a database keeps its own objects",
            f"Use another name: {', '.join(sorted(RESERVED))} are taken, except for the first of several folders.",
        )
    return "/".join(parts[:-1]), parts[-1]


def _options(url: str, scheme: str, query: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for option in query.split("&") if query else []:
        name, _, value = option.partition("=")
        value = unquote(value)
        if name not in OPTIONS[scheme]:
            close = difflib.get_close_matches(name, OPTIONS[scheme], n=1)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise _bad(
                url,
                f"has an option that {scheme}:// does not have, {_shown_name(name)}",
                f"{hint}There are {', '.join(OPTIONS[scheme])}.",
            )
        if name in found:
            raise _bad(url, f"has the option {name} twice", "Give it once.")
        if not value or not value.isprintable():
            raise _bad(url, f"gives {name} no value", f"Write {name}=…, or leave it out.")
        if name in _SWITCHES and value not in {"true", "false"}:
            raise _bad(url, f"gives {name} another value than true or false", f"Write {name}=true or {name}=false.")
        if name == "endpoint":
            _check_endpoint(url, value)
        found[name] = value
    if found.get("allow_http") == "false" and found.get("endpoint", "").startswith("http://"):
        raise _bad(url, "has an endpoint of http:// and allow_http=false", "Leave out one of the two.")
    return tuple(sorted(found.items()))


def _shown_name(name: str) -> str:
    """Return an option's name; any other text may be half of a secret that had an & in it."""
    return name if re.fullmatch(r"[a-z_]{1,40}", name) else MASK


def _check_endpoint(url: str, endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
        parts = None
    if not right or parts is None or "@" in parts.netloc or parts.query or parts.fragment:
        raise _bad(
            url,
            "has an endpoint that is not the address of a server",
            "Write it as endpoint=https://host or endpoint=http://host:port, without credentials.",
        )


def _bad(url: str, what: str, fix: str) -> BadUsage:
    return BadUsage(
        f"{redacted(url)!r} {what}.",
        why="A database in a bucket is named by its scheme, its bucket, a folder if you like, and its own name.",
        fix=fix,
    )
