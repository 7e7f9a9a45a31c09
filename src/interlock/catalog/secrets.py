"""Secrets of addresses, which are never stored in a catalog or a tombstone.

A stored address keeps the server and the user. A process that opens it takes the secret from the address of the home or
of the previous place, where that is the same user of the same server. Otherwise the drivers look for it themselves
(PGPASSWORD and ~/.pgpass, AWS_…, GOOGLE_…, AZURE_…).
"""

from typing import Final, NamedTuple

from interlock.lanes.objects.addresses import SECRETS as BUCKET_SECRETS
from interlock.lanes.objects.addresses import is_bucket
from interlock.lanes.objects.addresses import redacted as redacted_elsewhere
from interlock.sql.postgres.address import is_postgres, redacted

POSTGRES_SECRETS: Final = frozenset({"password", "sslpassword"})

_WHOSE = frozenset({"endpoint", "account", "access_key_id", "host", "port", "user", "service"})
"""The options that identify the owner of a secret."""


def without_secrets(url: str) -> str:
    """Return the address without its secrets."""
    parts = _parts(url)
    return url if parts is None else parts._replace(password="", options=parts.plain).url


def with_secrets(url: str, *known: str) -> str:
    """Return the address with the secrets of the first known address of the same user at the same server."""
    mine = _parts(url)
    if mine is None or mine.password or mine.secret:
        return url
    for each in known:
        theirs = _parts(each)
        if theirs is not None and theirs.whose == mine.whose:
            return mine._replace(password=theirs.password, options=(*mine.options, *theirs.secret)).url
    return url


def shown(url: str) -> str:
    """Return an address of any kind with its secrets redacted."""
    return redacted(url) if is_postgres(url) else redacted_elsewhere(url)


class _Parts(NamedTuple):
    scheme: str
    user: str
    password: str
    server: str
    """Of PostgreSQL; of a bucket empty, because its options say which server it is on."""
    path: str
    options: tuple[str, ...]

    @property
    def secret(self) -> tuple[str, ...]:
        secrets = POSTGRES_SECRETS if is_postgres(f"{self.scheme}://") else BUCKET_SECRETS
        return tuple(option for option in self.options if option.partition("=")[0] in secrets)

    @property
    def plain(self) -> tuple[str, ...]:
        return tuple(option for option in self.options if option not in self.secret)

    @property
    def whose(self) -> tuple[str, ...]:
        # Neither the database nor the bucket: one user has one secret for all of them.
        named = sorted(option for option in self.options if option.partition("=")[0] in _WHOSE)
        return (self.scheme.replace("postgresql", "postgres"), self.user, self.server, *named)

    @property
    def url(self) -> str:
        password = f":{self.password}" if self.password else ""
        user = f"{self.user}{password}@" if self.user or password else ""
        query = f"?{'&'.join(self.options)}" if self.options else ""
        return f"{self.scheme}://{user}{self.server}{self.path}{query}"


def _parts(url: str) -> _Parts | None:
    """Split an address; return None for one without secrets: a local lane, or memory."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    options = tuple(option for option in query.split("&") if option)
    if is_bucket(url):
        return _Parts(scheme, "", "", "", place, options)
    if not is_postgres(url):
        return None
    server, slash, path = place.partition("/")
    user, mark, server = server.rpartition("@")
    name, _, password = user.partition(":")
    # `user:@` says that there is no password to look for, which is part of the address.
    kept = f"{name}:" if mark and user.endswith(":") else name
    return _Parts(scheme, kept, password, server, slash + path, options)
