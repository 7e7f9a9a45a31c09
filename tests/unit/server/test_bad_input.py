"""Bad input on every route that is served: a clear answer that names the mistake, and nothing is stored (G6, A5).

Requests are made of the table of routes, so a route that is added is asked too. What a transport may send and a client
library would not (encodings, headers that come twice, paths that are no text) is given to the app as ASGI has it.
"""

import asyncio
import gzip
from urllib.parse import quote

import msgspec
import pytest

from interlock.server.app_declaration import Limits
from interlock.server.router import Endpoint
from tests.unit.server.asking import EVERY, WITH_BODY, WITH_VALUES, Asked, asked, named
from tests.unit.server.raw import PARTS, Answered, home, told

BODY_BYTES_MAX = 20_000
DEEP = 5_000


def refused(route: Endpoint, answered: Answered) -> None:
    """A problem, or for a batch a problem in each line."""
    if route.path != "/v1/events:batch" or answered[0] != 200:
        told(answered)
        return
    for line in answered[2].splitlines():
        document = msgspec.json.decode(line)
        assert all(document[part] for part in PARTS), document
        assert 400 <= document["status"] < 500


JUNK: dict[str, bytes] = {
    "nothing": b"",
    "spaces": b"  \r\n ",
    "no JSON": b"<xml/>",
    "a form": b"event=CANCEL&data=1",
    "an array": b"[]",
    "null": b"null",
    "a number": b"1",
    "a text": b'"CANCEL"',
    "true": b"true",
    "half": b'{"event": "CANCEL"',
    "two": b'{"event": "CANCEL"}{"event": "CANCEL"}',
    "NaN": b'{"event": NaN}',
    "not UTF-8": b'{"event": "\xff\xfe"}',
    "UTF-16": '{"event": "CANCEL"}'.encode("utf-16"),
    "UTF-32": '{"event": "CANCEL"}'.encode("utf-32"),
    "a mark": b'\xef\xbb\xbf{"event": "CANCEL"}',
    "gzip": gzip.compress(b'{"event": "CANCEL"}'),
    "a lone surrogate": b'{"event": "\\ud800", "id": "\\ud800", "note": "\\ud800", "key": "\\ud800"}',
    "overlong": b'{"event": "\xc0\xaf"}',
    "NUL": b'{"event": "\\u0000", "id": "\\u0000"}',
    "a raw NUL": b'{"event": "\x00"}',
    "deep arrays": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a huge number": b'{"event": 1' + b"0" * 400 + b"}",
    "an unknown field": b'{"surprise": 1}',
    "too large": b'{"event": "' + b"x" * BODY_BYTES_MAX + b'"}',
}


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_a_body_that_cannot_be_read_is_refused(route: Endpoint, junk: str) -> None:
    async def scenario() -> None:
        async with home(limits=Limits(body_bytes_max=BODY_BYTES_MAX)) as it:
            before = await it.everything()
            request = asked(route)
            request.content = JUNK[junk]
            refused(route, await it.ask(request))
            assert await it.everything() == before
            assert await it.audit.read() == []

    asyncio.run(scenario())


def _mutated(value: object) -> "list[tuple[str, object]]":
    """The value with each of its members replaced by something of another type, at every depth."""
    wrongs: list[object] = [None, True, 1.5, -1, "", "x" * 300, [], {}, [[]], {"a": {"b": 1}}, "\x00", 10**30]
    found: list[tuple[str, object]] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += [
                (f"{key}={wrong!r:.30}", {**value, key: wrong}) for wrong in wrongs if type(wrong) is not type(inner)
            ]
            found += [(f"{key}.{told}", {**value, key: each}) for told, each in _mutated(inner)]
        found += [("surprise", {**value, "surprise": 1})]
    elif isinstance(value, list) and value:
        found += [(f"0.{told}", [each, *value[1:]]) for told, each in _mutated(value[0])]
    return found


@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_a_member_of_another_type_is_never_an_error_of_the_server(route: Endpoint) -> None:
    """Whatever fits is carried out (a limit may be null), whatever does not is refused; nothing is 5xx."""

    async def scenario() -> None:
        async with home() as it:
            good = msgspec.json.decode(asked(route).content)
            for what, body in _mutated(good):
                request = asked(route)
                request.content = msgspec.json.encode(body)
                answered = await it.ask(request)
                assert answered[0] < 500, (what, answered)
                if answered[0] >= 400:
                    told(answered)

    asyncio.run(scenario())


BAD_IDS = {
    "a slash": "a%2Fb",
    "a backslash and a slash": "..%2F..%2Fetc%2Fpasswd",
    "nothing": "",
    "a dot": ".",
    "two dots, encoded": "%2E%2e",
    "201 characters": "x" * 201,
    "201 of two bytes": "%C3%A4" * 201,
    "NUL": "a%00b",
    "a line's end": "a%0D%0Ab",
    "no UTF-8": "%FF%FE",
    "a surrogate": "%ED%A0%80",
    "overlong": "%C0%AF",
    "backwards": "%E2%80%AE",
    "a tab": "%09",
}


@pytest.mark.parametrize("bad", BAD_IDS)
@pytest.mark.parametrize("route", WITH_VALUES, ids=named)
def test_an_id_that_is_none_is_refused(route: Endpoint, bad: str) -> None:
    """In the place of every value of a path: 400, or 404 where nothing has such a name."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            names = [part.strip("{}") for part in route.path.split("/") if part.startswith("{")]
            for name in names:
                request = asked(route, **{name: BAD_IDS[bad]})
                document = told(await it.ask(request), 400, 401, 404)
                assert document["status"] != 401 or "webhooks" in route.path
            assert await it.everything() == before
            failed = [bool(entry.failed) for entry in await it.audit.read()]
            assert failed.count(True) == failed.count(False), "whatever was tried has failed"

    asyncio.run(scenario())


BAD_QUERIES = {
    "an unknown parameter": "surprise=1",
    "no UTF-8": "machine=%FF",
    "a raw byte": "machine=\xff",
    "too many": "&".join(f"a{at}=1" for at in range(200)),
    "huge": "machine=" + "x" * 100_000,
}


@pytest.mark.parametrize("bad", BAD_QUERIES)
@pytest.mark.parametrize("route", [route for route in EVERY if route.path.startswith("/v1")], ids=named)
def test_a_query_that_means_nothing_is_refused(route: Endpoint, bad: str) -> None:
    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            request = asked(route)
            request.query = BAD_QUERIES[bad]
            told(await it.ask(request), 400, 404)
            assert await it.everything() == before

    asyncio.run(scenario())


@pytest.mark.parametrize("dots", [".", ".."])
def test_an_id_that_no_address_can_name_is_not_started(dots: str) -> None:
    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            start = Asked("POST", "/v1/machines/order/workflows", content=msgspec.json.encode({"id": dots}))
            told(await it.ask(start), 400)
            told(await it.ask(Asked("GET", f"/v1/workflows/{dots}")), 400)
            assert await it.everything() == before

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["é".encode(), "é".encode("latin-1")], ids=["UTF-8", "Latin-1"])
@pytest.mark.parametrize("path", ["/v1/workflows/o-1/events", "/v1/databases/stock/transactions"])
def test_an_idempotency_key_that_is_not_ascii_is_refused(path: str, key: bytes) -> None:
    """Read in two encodings it would be two keys, and what is sent twice would be applied twice."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            body = {"event": "CANCEL"} if "workflows" in path else {"statements": [{"sql": "CREATE TABLE t (n int)"}]}
            request = Asked("POST", path, content=msgspec.json.encode(body))
            told(await it.ask(request, (b"idempotency-key", key)), 400)
            assert await it.everything() == before
            assert await it.audit.read() == []

    asyncio.run(scenario())


def test_a_key_in_the_body_may_be_any_printable_text() -> None:
    async def scenario() -> None:
        async with home() as it:
            body = msgspec.json.encode({"event": "REMARK", "data": {"note": "x"}, "key": "größe 1"})
            event = Asked("POST", "/v1/workflows/o-1/events", content=body)
            answers = [msgspec.json.decode((await it.ask(event))[2]) for _ in range(2)]
            assert [each["duplicate"] for each in answers] == [False, True]
            assert (await it.app.engine.history("o-1"))[-1].key == "größe 1"

    asyncio.run(scenario())


WRONG = [
    "-1",
    "0",
    "1e3",
    "x",
    "",
    "1.5",
    "\uff11",
    "99999999999999999999",
    " 1",
    "0x10",
    "null",
    "\x00",
    "1;DROP TABLE t",
    "~",
    "order~x",
]


@pytest.mark.parametrize(
    ("route", "name"),
    [
        (route, parameter.name)
        for route in EVERY
        for parameter in route.parameters
        if parameter.place == "query" and parameter.name not in {"last_event_id", "workflow"}
    ],
    ids=lambda given: given if isinstance(given, str) else named(given),
)
def test_a_parameter_out_of_its_range_is_refused(route: Endpoint, name: str) -> None:
    """Numbers, switches, cursors, names: never 5xx, and refused wherever the description does not allow it."""
    [described] = [each for each in route.parameters if each.name == name]

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            for wrong in WRONG:
                if name == "timeout_s" and _fits(described.schema, wrong):
                    continue  # It would be waited for.
                request = asked(route)
                request.query = f"{name}={quote(wrong, safe='')}"
                if route.path == "/v1/stream":
                    request.query += "&kind=none" if name != "kind" else ""
                answered = await it.ask(request)
                assert answered[0] < 500, (wrong, answered)
                if not _fits(described.schema, wrong):
                    told(answered, 400, 404)
                    assert await it.everything() == before
                before = await it.everything()

    asyncio.run(scenario())


def _fits(schema: dict[str, object], text: str) -> bool:
    """Whether a text could be meant, by the description."""
    match schema["type"]:
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 10**18)
            assert isinstance(low, int)
            assert isinstance(high, int)
            return text.isascii() and text.isdigit() and low <= int(text) <= high
        case "number":
            return text in {"0", "1e3", "1.5", " 1"}
        case "boolean":
            return text in {"0", "1", "", "true", "false"}
        case _:
            return True


def test_two_idempotency_keys_are_none() -> None:
    """Only one of the two could be meant."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            for path in ("/v1/workflows/{id}/events", "/v1/databases/{name}/transactions"):
                [route] = [route for route in WITH_BODY if route.path == path]
                told(await it.ask(asked(route), (b"idempotency-key", b"a"), (b"idempotency-key", b"b")), 400)
            assert await it.everything() == before

    asyncio.run(scenario())


@pytest.mark.parametrize("key", [b"", b"x" * 201, b"a\x00", b"\xff\xfe", b"\xe2\x80\xae", b"a\tb"])
def test_a_key_that_is_none_is_refused(key: bytes) -> None:
    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            [route] = [route for route in WITH_BODY if route.path == "/v1/workflows/{id}/events"]
            told(await it.ask(asked(route), (b"idempotency-key", key)), 400)
            assert await it.everything() == before

    asyncio.run(scenario())


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "")


@pytest.mark.parametrize("path", sorted({route.path for route in EVERY}))
def test_a_method_that_a_path_does_not_take_is_refused(path: str) -> None:
    """405 with those that it takes; HEAD is a GET without its body."""
    taken = {route.method for route in EVERY if route.path == path}
    [route, *_] = [route for route in EVERY if route.path == path]

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            for method in METHODS:
                if method in taken or (method == "HEAD" and path == "/v1/workflows/{id}/wait"):
                    continue
                request = asked(route)
                request.method = method
                answered = await it.ask(request)
                if method == "HEAD" and "GET" in taken:
                    assert answered[2] == b""
                    assert answered[0] < 500
                    continue
                if method == "HEAD":
                    assert (answered[0], answered[2]) == (405, b"")
                else:
                    told(answered, 405)
                allowed = {each.strip() for each in answered[1][b"allow"].decode().split(",")}
                assert allowed == taken
            assert await it.everything() == before

    asyncio.run(scenario())
