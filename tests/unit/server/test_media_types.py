"""What a body says of itself, on every route that takes one: JSON in UTF-8, not compressed, or 415."""

import asyncio
import gzip

import pytest

from interlock.server.router import Endpoint
from tests.unit.server.asking import WITH_BODY, asked, named
from tests.unit.server.raw import home, told


@pytest.mark.parametrize(
    "kind",
    [
        "application/xml",
        "text/html",
        "text/plain",
        "text/plain; charset=utf-8",
        "multipart/form-data; boundary=x",
        "image/png",
        "application/json; charset=utf-16",
    ],
)
@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_a_body_of_another_kind_is_refused(route: Endpoint, kind: str) -> None:
    """415: whoever says that it is not JSON in UTF-8 is believed."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            request = asked(route)
            request.headers = {"content-type": kind}
            document = told(await it.ask(request), 415)
            assert document["code"] == "unsupported-media-type"
            assert await it.everything() == before

    asyncio.run(scenario())


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "gzip, gzip", "x"])
@pytest.mark.parametrize("route", WITH_BODY, ids=named)
def test_a_compressed_body_is_refused(route: Endpoint, coding: str) -> None:
    """415: a small compressed body could expand to a huge one."""

    async def scenario() -> None:
        async with home() as it:
            before = await it.everything()
            request = asked(route)
            request.headers["content-encoding"] = coding
            request.content = gzip.compress(request.content)
            told(await it.ask(request), 415)
            assert await it.everything() == before

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=UTF-8",
        'Application/JSON;charset="utf-8"',
        "application/merge-patch+json",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "",
    ],
)
def test_json_by_any_usual_name_is_read(kind: str) -> None:
    """What curl says when nobody tells it better is not held against anybody."""

    async def scenario() -> None:
        async with home() as it:
            [route] = [route for route in WITH_BODY if route.path == "/v1/workflows/{id}/events"]
            request = asked(route)
            request.headers = {"content-type": kind} if kind else {}
            assert (await it.ask(request))[0] == 200

    asyncio.run(scenario())
