"""A bucket of Amazon S3, Google Cloud Storage, Azure, or a compatible server, through obstore.

There are two clients for each bucket. The one for conditional writes never repeats a request: a repeated one meets its
own first attempt and reports "exists already" for an object that we have written ourselves. The other one, for reads,
deletions and parts of snapshots, repeats a few times within one request's time.

All databases of a bucket share the clients, because each of them costs a pool of connections and a set of root
certificates. obstore's calls release Python's lock, so several threads read concurrently.

Errors are distinguished by class (see `bucket_protocol`). obstore's own exceptions end here: they carry the whole
request, with whatever signature was in it, so they are not even chained.

The threads that do obstore's work do not come through a fork, and in the child every request would wait for them for
ever. So a process that was forked after its parent had made a client opens no bucket.
"""

import contextlib
import os
import re
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple, cast

from interlock.errors import BadUsage, UnavailableError
from interlock.lanes.objectlog.bucket_protocol import (
    BucketError,
    ConditionFailed,
    Denied,
    Environment,
    Found,
    Unclear,
    missing_extra,
)
from interlock.lanes.objectlog.probe import REQUEST_TIMEOUT_S_MIN, prove, remember_proven
from interlock.redaction import MASK
from interlock.urls import BUCKET_SECRETS, BucketAddress

try:
    import obstore
    from obstore import exceptions
    from obstore.store import AzureStore, GCSStore, S3Store
except ModuleNotFoundError as error:
    raise missing_extra("obstore") from error

RETRIES = 3
"""How often a request that may be repeated is repeated, all within the time of one."""

BACKOFF_FIRST_S = 0.05
CONNECT_TIMEOUT_S_MAX = 5.0
READS_AT_ONCE = 32
CLIENTS_MAX = 64
"""Buckets whose clients are kept for the next database."""

TEXT_CHARACTERS_MAX = 400

_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
}
_PLACES = {
    "s3": frozenset(_ENDPOINTS["s3"]),
    "gs": frozenset(_ENDPOINTS["gs"]),
    "az": frozenset(
        {
            *_ENDPOINTS["az"],
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_ACCOUNT_NAME",
            "AZURE_STORAGE_USE_EMULATOR",
            "AZURE_USE_EMULATOR",
        }
    ),
}
"""The variables that lead to another server."""

# Known by their text alone: obstore has one class for a missing object and a missing bucket, and none for listings.
_REFUSED = re.compile(
    r"<Code>(NoSuchBucket|ContainerNotFound)</Code>|specified (bucket|container) does not exist"
    r"|performing list request: .*status code: 40[13] "
)

_Store = S3Store | GCSStore | AzureStore

_threads = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="interlock-bucket")
"""Concurrent reads, for all buckets of the process. It has threads only after the first such read."""

_clients_made = False
_forked_too_late = False
"""Whether this process was forked from one that had made clients."""


def _in_child() -> None:
    # Threads do not come through a fork: neither ours nor those of obstore, which cannot be started again.
    global _threads, _forked_too_late  # noqa: PLW0603 -- one pool and one obstore per process.
    _threads = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="interlock-bucket")
    _forked_too_late = _clients_made


os.register_at_fork(after_in_child=_in_child)


class _Clients(NamedTuple):
    once: _Store
    patient: _Store


class _Missing(Denied):
    """The object does not exist; for a write that means that the bucket does not exist."""


def open_bucket(address: BucketAddress, *, request_timeout_s: float) -> "RemoteBucket":
    """Return the bucket of one database: its keys lie below the address. Sends no request yet."""
    return RemoteBucket(_clients(address, request_timeout_s), address.path)


def open_proven(address: BucketAddress, *, request_timeout_s: float, world: Environment) -> "RemoteBucket":
    """Return the same, after the bucket has proved that it can carry a log. Raises UnavailableError when it cannot."""
    folder = open_folder(address, request_timeout_s=max(request_timeout_s, REQUEST_TIMEOUT_S_MIN))
    prove(folder, address.root, world, server=_server_of(address))
    return open_bucket(address, request_timeout_s=request_timeout_s)


def believe(address: BucketAddress) -> None:
    """Skip the probe in this process: the process that started it has probed the same folder of the same server."""
    remember_proven(address.root, server=_server_of(address))


def open_folder(address: BucketAddress, *, request_timeout_s: float) -> "RemoteBucket":
    """Return the folder that the database shares with others, for the probe."""
    return RemoteBucket(_clients(address, request_timeout_s), address.folder)


class RemoteBucket:
    """A bucket over the network, below one prefix; implements `Bucket`."""

    def __init__(self, clients: _Clients, prefix: str) -> None:
        self._once, self._patient = clients
        self._prefix = f"{prefix}/" if prefix else ""

    def __repr__(self) -> str:
        return f"RemoteBucket({self._prefix!r})"

    def get(self, key: str) -> Found | None:
        """Return the object, or None."""
        try:
            with _translated_errors():
                result = obstore.get(self._patient, self._prefix + key)
                return Found(result.bytes().to_bytes(), _tag(result.meta))
        except _Missing:
            return None

    def get_many(self, keys: Sequence[str], bytes_max: int | None = None) -> list[bytes | None]:
        """Return several objects, fetched concurrently, or their first bytes."""
        if len(keys) <= 1:
            return [self._begin_of(key, bytes_max) for key in keys]
        return list(_threads.map(self._begin_of, keys, repeat(bytes_max)))

    def create(self, key: str, data: bytes) -> object:
        """Store the object unless the key is taken. One request, never repeated."""
        with _translated_errors():
            return _tag(obstore.put(self._once, self._prefix + key, data, mode="create", use_multipart=False))

    def replace(self, key: str, data: bytes, tag: object) -> object:
        """Store the object if the stored one still has that tag. One request, never repeated."""
        version = cast("obstore.UpdateVersion", tag)
        with _translated_errors():
            return _tag(obstore.put(self._once, self._prefix + key, data, mode=version, use_multipart=False))

    def put(self, key: str, data: bytes) -> None:
        """Store the object by one request. Parts of an interrupted upload would be stored, and charged, for ever."""
        with _translated_errors():
            obstore.put(self._patient, self._prefix + key, data, mode="overwrite", use_multipart=False)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects, missing ones included."""
        paths = [self._prefix + key for key in keys]
        try:
            with _translated_errors():
                obstore.delete(self._patient, paths)
        except _Missing:
            # Azure and Google report a missing object, and may have kept the ones after it.
            for path in paths:
                with contextlib.suppress(_Missing), _translated_errors():
                    obstore.delete(self._patient, path)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with this prefix. obstore lists whole folders, so the rest of the prefix is filtered here."""
        folder = (self._prefix + prefix).rpartition("/")[0]
        with _translated_errors():
            pages = obstore.list(self._patient, folder or None)  # pyright: ignore[reportUnknownMemberType]
            paths = [str(meta["path"]) for page in pages for meta in page]
        return sorted(path.removeprefix(self._prefix) for path in paths if path.startswith(self._prefix + prefix))

    def _begin_of(self, key: str, bytes_max: int | None) -> bytes | None:
        if bytes_max is not None:
            try:
                with _translated_errors():
                    options: obstore.GetOptions = {"range": (0, bytes_max)}
                    return obstore.get(self._patient, self._prefix + key, options=options).bytes().to_bytes()
            except _Missing:
                return None
            except Unclear:
                # An empty object has no first bytes to ask for, and some servers know no ranges: ask for all of it.
                pass
        found = self.get(key)
        return None if found is None else found.data[:bytes_max]


@contextlib.contextmanager
def _translated_errors() -> Generator[None]:
    """Raise one of the three classes of `bucket_protocol` for whatever obstore raises."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- whatever it is, it says nothing certain about the object.
        raise _translate(error) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # A panic in Rust; the class cannot be imported.
            raise
        raise Unclear(f"obstore failed inside: {_error_text(error)}") from None


def _translate(error: Exception) -> BucketError:
    text = _error_text(error)
    if _REFUSED.search(str(error)):
        return Denied(text)
    match error:
        case exceptions.AlreadyExistsError() | exceptions.PreconditionError():
            return ConditionFailed(text)
        case FileNotFoundError():
            return _Missing(text)
        case (
            exceptions.PermissionDeniedError()
            | exceptions.UnauthenticatedError()
            | exceptions.InvalidPathError()
            | exceptions.NotSupportedError()
        ):
            return Denied(text)
        case _:
            return Unclear(text)


def _error_text(error: BaseException) -> str:
    """Return the exception's text on one line, without the request's query, which may hold a signature."""
    text = str(error).partition("\n\nDebug source:")[0]
    head, mark, body = text.partition("<?xml")
    if mark:
        parts = [
            found[1] for tag in ("Code", "Message") if (found := re.search(rf"<{tag}>(.*?)</{tag}>", body, re.DOTALL))
        ]
        text = head + ", ".join(parts)
    text = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", " ".join(text.split()))
    text = text.rstrip(" .:") or type(error).__name__
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}…"


def _tag(meta: Mapping[str, object]) -> object:
    """Return the tag of this version of the object; obstore refuses parts of it that are None."""
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}


def _environment() -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in os.environ.items() if name.startswith(_VARIABLES))


def _server_of(address: BucketAddress) -> str:
    """Return the server that the environment names, unless the address does: another server needs its own probe."""
    if address.option("endpoint"):
        return ""
    names = _PLACES[address.scheme]
    return "\n".join(f"{name}={value}" for name, value in sorted(_environment()) if name in names)


def _clients(address: BucketAddress, request_timeout_s: float) -> _Clients:
    if _forked_too_late:
        raise UnavailableError(
            f"{str(address)!r} cannot be opened: this process was forked after a database in a bucket had been opened.",
            why="The threads that speak with buckets do not come through a fork: every request would wait for ever.",
            fix="Open databases in buckets after the fork, or start processes afresh (multiprocessing's spawn).",
        )
    # The environment is part of the cache key: a changed variable takes effect at the next open.
    environment = _environment()
    try:
        return _make_clients(address._replace(folder="", name=""), request_timeout_s, environment)
    except Exception as error:  # noqa: BLE001 -- obstore raises many classes here; all of them are about the settings.
        problem = _error_text(error)
        for name, value in address.options:
            problem = problem.replace(value, MASK) if name in BUCKET_SECRETS else problem
        raise BadUsage(
            f"{str(address)!r} cannot be opened: {problem}.",
            why="What the URL does not say comes from the environment: AWS_…, GOOGLE_… or AZURE_….",
            fix="Add what is missing to the URL or to the environment; az:// needs ?account= or its variable.",
        ) from None


@lru_cache(maxsize=CLIENTS_MAX)
def _make_clients(
    address: BucketAddress, request_timeout_s: float, environment: frozenset[tuple[str, str]]
) -> _Clients:
    global _clients_made  # noqa: PLW0603 -- one obstore per process.
    _clients_made = True
    timeout = timedelta(seconds=request_timeout_s)
    client: obstore.store.ClientConfig = {
        "timeout": timeout,
        "connect_timeout": min(timeout, timedelta(seconds=CONNECT_TIMEOUT_S_MAX)),
    }
    variables = dict(environment)
    endpoints = [address.option("endpoint"), *(variables.get(name) for name in _ENDPOINTS[address.scheme])]
    if address.switch("allow_http") or next(filter(None, endpoints), "").startswith("http://"):
        client["allow_http"] = True
    never: obstore.store.RetryConfig = {"max_retries": 0}
    few: obstore.store.RetryConfig = {
        "max_retries": RETRIES,
        "retry_timeout": timeout,
        "backoff": {"init_backoff": timedelta(seconds=BACKOFF_FIRST_S), "max_backoff": timeout, "base": 2},
    }
    return _Clients(_store(address, client, never), _store(address, client, few))


def _store(address: BucketAddress, client: "obstore.store.ClientConfig", retry: "obstore.store.RetryConfig") -> _Store:
    values = dict(address.options)
    match address.scheme:
        case "s3":
            s3: obstore.store.S3Config = {"conditional_put": "etag"}
            names = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")
            s3.update(cast("obstore.store.S3Config", {name: values[name] for name in names if name in values}))
            virtual_hosted = address.switch("virtual_hosted")
            if virtual_hosted is not None:
                s3["virtual_hosted_style_request"] = virtual_hosted
            return S3Store(address.bucket, config=s3, client_options=client, retry_config=retry)
        case "gs":
            renamed = {"endpoint": "base_url", "service_account": "service_account"}
            gs = cast("obstore.store.GCSConfig", {renamed[name]: values[name] for name in renamed if name in values})
            return GCSStore(address.bucket, config=gs, client_options=client, retry_config=retry)
        case _:
            renamed = {"endpoint": "endpoint", "account": "account_name", "access_key": "account_key", "sas": "sas_key"}
            az = cast("obstore.store.AzureConfig", {renamed[name]: values[name] for name in renamed if name in values})
            return AzureStore(address.bucket, config=az, client_options=client, retry_config=retry)
