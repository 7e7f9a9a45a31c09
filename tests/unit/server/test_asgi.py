"""The app itself: paths, bounds, health, and errors that nobody expected (G6, C7)."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import UnavailableError
from interlock.client.retries import CLASSES
from interlock.errors import InterlockError, TransactionError
from interlock.server import problems
from interlock.server.app_declaration import Limits
from interlock.server.http_messages import answer_to
from interlock.server.problems import HTTP_STATUS, STATUS, TITLES, problem_of, status_of
from interlock.server.routes import ROUTES
from tests.unit.server.serving import Served, problem, served


def test_what_is_not_there_is_not_found() -> None:
    async def test(app: Served) -> None:
        for path in (
            "/none",
            "/v1",
            "/v1/",
            "/v2/workflows",
            "/v1/workflows/a/b/c",
            "/v1/workflows/o-1/none",
            "/ui/x",
            "/ui/x/y",
        ):
            problem(await app.get(path), 404, "not-found")

    served(test)


def test_a_method_that_is_not_allowed_names_those_that_are() -> None:
    async def test(app: Served) -> None:
        response = await app.client.delete("/v1/workflows/o-1")
        problem(response, 405, "method-not-allowed")
        assert response.headers["allow"] == "GET"
        problem(await app.client.options("/v1/workflows"), 405, "method-not-allowed")

    served(test)


@pytest.mark.parametrize("root", ["/interlock", "/a/b/"])
@pytest.mark.parametrize("cut", [True, False])
def test_it_can_be_mounted_anywhere(root: str, *, cut: bool) -> None:
    """Some cut the path that they mount, some do not; and the raw path is cut by none."""

    async def test(app: Served) -> None:
        await app.start("ö 1")
        raw = f"{root.rstrip('/')}/v1/workflows/%C3%B6%201"
        path = "/v1/workflows/ö 1" if cut else f"{root.rstrip('/')}/v1/workflows/ö 1"
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "root_path": root,
            "raw_path": raw.encode(),
            "headers": [],
        }
        status: list[object] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b""}

        async def send(message: dict[str, object]) -> None:
            status.append(message.get("status"))

        await app.app(scope, receive, send)  # type: ignore[arg-type]
        assert status[0] == 200

    served(test)


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    """G6: 413, by what is announced and by what comes."""

    async def test(app: Served) -> None:
        body = b'{"id": "o-1", "context": {"note": "' + b"x" * 2_000 + b'"}}'

        async def pieces() -> AsyncGenerator[bytes]:
            for at in range(0, len(body), 100):
                yield body[at : at + 100]

        path = "/v1/machines/order/workflows"
        problem(await app.post(path, content=body), 413, "payload-too-large")
        told = problem(await app.post(path, content=pieces()), 413, "payload-too-large")
        assert "body_bytes_max" in str(told["fix"]), "another limit than that of a context"
        assert (await app.get("/v1/workflows")).json()["items"] == []

    served(test, limits=Limits(body_bytes_max=1_000))


@pytest.mark.parametrize(
    ("headers", "version", "closes"),
    [
        ([(b"content-length", b"1000000")], "1.1", True),
        ([(b"transfer-encoding", b"chunked")], "1.1", True),
        ([(b"content-length", b"1000")], "1.1", False),
        ([], "1.1", False),
        ([(b"content-length", b"1000000")], "2", False),
    ],
    ids=["large", "of no known length", "small", "none", "HTTP/2, which has no such header"],
)
def test_an_answer_before_the_body_ends_the_connection_of_any_server(
    headers: list[tuple[bytes, bytes]], version: str, *, closes: bool
) -> None:
    """Mounted too: the server that the app runs in would read the rest for nothing."""

    async def test(app: Served) -> None:
        seen: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            seen.append(message)

        scope = {"type": "http", "http_version": version, "method": "POST", "path": "/v1/nothing", "headers": headers}
        await app.app(scope, never, send)  # type: ignore[arg-type]
        assert seen[0]["status"] == 404
        assert ((b"connection", b"close") in seen[0]["headers"]) == closes

    served(test)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "the body is empty."),
        (b" \n", "the body is empty."),
        (rb'{"id": "\ud800"}', "the body has text that is not valid Unicode (a lone surrogate)."),
        (
            rb'{"id": "o-1", "context": {"note": "\udc00"}}',
            "the body has text that is not valid Unicode (a lone surrogate).",
        ),
        (rb'{"id": "\ud83d\ude00', "the body does not fit: Input data was truncated."),
        (rb'{"id": "C:\\ud800', "the body does not fit: Input data was truncated."),
    ],
)
def test_a_body_that_cannot_be_read_is_told_for_what_it_is(body: bytes, told: str) -> None:
    async def test(app: Served) -> None:
        response = await app.post("/v1/machines/order/workflows", content=body)
        assert problem(response, 400, "invalid-payload")["what"] == told

    served(test)


def test_a_context_that_is_too_large_is_refused() -> None:
    async def test(app: Served) -> None:
        problem(await app.start("o-1", note="x" * 1_100_000), 413, "payload-too-large")

    served(test)


async def never() -> dict[str, object]:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def test(app: Served) -> None:
        seen: list[dict[str, object]] = []

        async def send(message: dict[str, object]) -> None:
            seen.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/workflows/o-1/events", "headers": []}
        await app.app(scope, never, send)  # type: ignore[arg-type]
        assert seen[0]["status"] == 408

    served(test, limits=Limits(body_s=0.01))


@pytest.mark.parametrize(("method", "status"), [("GET", 429), ("POST", 503)])
def test_an_answer_that_takes_too_long_is_not_waited_for(
    method: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G9: whether an event was applied is then unknown, and the same key finds out."""

    async def test(app: Served) -> None:
        await app.start()

        async def slow(*_: object, **__: object) -> object:
            return await never()

        monkeypatch.setattr(app.engine, "get", slow)
        monkeypatch.setattr(app.engine, "send", slow)
        if method == "GET":
            response = await app.get("/v1/workflows/o-1")
        else:
            response = await app.send("REMARK", note="x")
        problem(response, status, "overloaded" if method == "GET" else "outcome-unknown")
        assert response.headers["retry-after"] == "1"

    served(test, limits=Limits(request_s=0.01))


def test_requests_under_way_are_bounded() -> None:
    async def test(app: Served) -> None:
        app.app.service.under_way = 1
        problem(await app.get("/v1/machines"), 429, "overloaded")
        app.app.service.under_way = 0
        assert (await app.get("/v1/machines")).status_code == 200
        assert app.app.service.under_way == 0

    served(test, limits=Limits(requests_max=1))


def test_what_nobody_expected_is_in_the_log_and_not_in_the_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(app: Served) -> None:
        async def broken(*_: object) -> object:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(app.engine, "get", broken)
        with caplog.at_level(logging.ERROR, "interlock.server"):
            response = await app.get("/v1/workflows/o-1")
        document = problem(response, 500, "internal")
        assert "a secret" not in response.text
        [record] = caplog.records
        number = document["what"].split()[-1].rstrip(".")
        assert number in record.getMessage()

    served(test)


class Gone:
    """A cluster whose Redis is gone."""

    up = False


def test_health_and_readiness_tell_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(app: Served) -> None:
        for path in ("/healthz", "/readyz"):
            assert (await app.get(path)).json() == {"status": "ok"}
        service = app.app.service

        async def away(*_: object) -> object:
            raise UnavailableError("the disk is away.")

        with monkeypatch.context() as patch:
            patch.setattr(service._inside.policy, "row", away)
            response = await app.get("/readyz")
            assert (response.status_code, response.json()["reason"]) == (503, "the disk is away.")
            assert (await app.get("/healthz")).status_code == 200, "a restart would not help"
            patch.setattr(service._inside.policy, "row", lambda _: never())
            patch.setattr(service, "limits", msgspec.structs.replace(service.limits, ready_s=0.01))
            assert "not answered" in (await app.get("/readyz")).json()["reason"]
        with monkeypatch.context() as patch:
            patch.setattr(service._inside, "cluster", Gone())
            response = await app.get("/readyz")
            assert (response.status_code, response.json()["status"]) == (200, "ok"), "there is a fallback"
            assert "Redis cannot be used" in response.json()["reason"]
        app.app.leave()
        assert "stopping" in (await app.get("/readyz")).json()["reason"]
        assert (await app.get("/v1/workflows")).status_code == 200, "it goes on answering"
        await app.engine.close()
        assert (await app.get("/healthz")).status_code == 503
        problem(await app.get("/v1/workflows"), 503, "unavailable")

    served(test)


def test_every_answer_keeps_browsers_from_guessing() -> None:
    async def test(app: Served) -> None:
        for path in ("/v1/machines", "/none", "/docs", "/docs/style.css", "/openapi.json", "/healthz"):
            headers = (await app.get(path)).headers
            assert headers.get_list("x-content-type-options") == ["nosniff"]
            assert len(headers.get_list("content-security-policy")) == 1
            assert "unsafe-inline" not in headers["content-security-policy"]
            assert not any(name.startswith("access-control") for name in headers)

    served(test)


def test_the_page_needs_no_other_server() -> None:
    async def test(app: Served) -> None:
        page = (await app.get("/docs")).text
        assert "<script" not in page
        assert "http://" not in page
        assert "https://" not in page
        for route in ROUTES:
            assert route.path.replace("&", "&amp;") in page

    served(test)


def test_the_document_describes_every_route() -> None:
    async def test(app: Served) -> None:
        document = (await app.get("/openapi.json")).json()
        assert document["openapi"].startswith("3.1")
        described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        assert described == {(route.method, route.path) for route in ROUTES}
        identities = [each["operationId"] for path in document["paths"].values() for each in path.values()]
        assert len(set(identities)) == len(identities)

    served(test)


def test_the_documentation_is_the_document_for_whoever_asks_for_json() -> None:
    async def test(app: Served) -> None:
        document = (await app.get("/openapi.json")).json()
        for wanted in ("application/json", "application/vnd.oai.openapi+json;version=3.1"):
            asked = await app.get("/docs", headers={"Accept": wanted})
            assert (asked.headers["content-type"], asked.json()) == ("application/json", document)
        for wanted in ("*/*", "text/html,application/xhtml+xml,application/json;q=0.9"):
            asked = await app.get("/docs", headers={"Accept": wanted})
            assert asked.headers["content-type"].startswith("text/html")
            assert asked.headers["vary"] == "accept"

    served(test)


def _every_error() -> list[type[InterlockError]]:
    found, waiting = [], [InterlockError]
    while waiting:
        cls = waiting.pop()
        found.append(cls)
        waiting += cls.__subclasses__()
    return found


def test_a_title_is_the_same_each_time_and_the_detail_says_what_happened() -> None:
    """RFC 9457: a title does not change from occurrence to occurrence."""

    async def test(app: Served) -> None:
        told = [problem(await app.get(f"/v1/workflows/{each}"), 404, "workflow-not-found") for each in ("a", "b")]
        assert told[0]["title"] == told[1]["title"] == TITLES["workflow-not-found"]
        for name, document in zip("ab", told, strict=True):
            assert document["what"] == f"there is no workflow '{name}'."
            assert str(document["detail"]).startswith(document["what"] + " ")
        missing = [problem(await app.get(path), 404, "not-found")["title"] for path in ("/none", "/nothing")]
        assert missing == [TITLES["not-found"]] * 2

    served(test)


def test_every_problem_has_a_title() -> None:
    sources = [path.read_text() for path in Path(problems.__file__).parent.rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'HttpProblem\(\s*"([a-z-]+)"', source)}
    assert codes == set(HTTP_STATUS)
    assert codes | set(CLASSES) == set(TITLES)

    class Ours(UnavailableError):
        code = "ours"

    assert problem_of(Ours("x.")).title == TITLES["unavailable"]


def test_every_error_has_a_status() -> None:
    for cls in _every_error():
        assert any(parent in STATUS for parent in cls.__mro__)
    conflict = TransactionError("x")
    assert status_of(conflict) == 422
    conflict.retry = "now"  # type: ignore[misc]  # As the database does it when its retries are exhausted.
    assert status_of(conflict) == 409
    unknown = InterlockError("x")
    assert (status_of(unknown), problem_of(unknown).code, answer_to(unknown).status) == (500, "interlock", 500)


def test_a_websocket_is_closed_and_a_lifespan_is_followed() -> None:
    async def test(app: Served) -> None:
        sent: list[str] = []
        waiting = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> dict[str, str]:
            return waiting.pop(0)

        async def send(message: dict[str, str]) -> None:
            sent.append(message["type"])

        await app.app({"type": "lifespan"}, receive, send)  # type: ignore[arg-type]
        waiting = [{"type": "websocket.connect"}]
        await app.app({"type": "websocket"}, receive, send)  # type: ignore[arg-type]
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]

    served(test)


def test_a_client_that_goes_away_is_not_answered() -> None:
    async def test(app: Served) -> None:
        sent: list[object] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/workflows/o-1/events", "headers": []}
        await app.app(scope, receive, send)  # type: ignore[arg-type]
        assert sent == []

    served(test)


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(InterlockError):
        Limits(body_bytes_max=0)


def test_the_dashboard_is_at_the_root_and_is_not_sent_twice() -> None:
    """A page with its policy, its files below /ui/, and 304 for what the browser has."""

    async def test(app: Served) -> None:
        page = await app.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "unsafe-inline" not in page.headers["content-security-policy"]
        for name in re.findall(r'(?:src|href)="(ui/[^"]+)"', page.text):
            file = await app.get(f"/{name}")
            assert file.status_code == 200, name
            assert file.headers["x-content-type-options"] == "nosniff"
            known = await app.client.get(f"/{name}", headers={"if-none-match": file.headers["etag"]})
            assert (known.status_code, known.content) == (304, b"")
        assert (await app.get("/ui/views/overview.js")).status_code == 200
        problem(await app.get("/ui/..%2fassets.py"), 404, "not-found")

    served(test)
