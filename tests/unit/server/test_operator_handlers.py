"""What operators do over HTTP: compensations, dead letters, breakers, contention (C4, C8, C9, D9)."""

import asyncio
from urllib.parse import quote

import pytest

from tests.unit.server.serving import Served, problem, served


def test_a_dead_letter_is_listed_retried_and_resolved() -> None:
    """C9: what gave up waits for a person."""

    async def test(app: Served) -> None:
        await app.start()
        await app.send("SUBMIT", cents=13)
        [letter] = await _letters(app)
        assert (letter["kind"], letter["workflow"], letter["name"]) == ("step", "o-1", "charge")
        assert (await app.get("/v1/dead-letters?kind=undo")).json()["items"] == []
        retried = await app.post(f"/v1/dead-letters/{letter['id']}/retry")
        assert retried.json() == {"id": letter["id"], "ruling": "retried"}
        [second] = await _letters(app)
        assert second["id"] != letter["id"]
        path = f"/v1/dead-letters/{second['id']}/resolve"
        problem(await app.post(path, json={}), 400, "invalid-payload")
        problem(await app.post(path, json={"note": ""}), 400, "invalid-payload")
        assert (await app.post(path, json={"note": "<b>by hand</b>"})).json()["ruling"] == "resolved"
        assert (await app.get("/v1/dead-letters")).json()["items"] == []
        problem(await app.post(path, json={"note": "again"}), 404, "workflow-not-found")
        problem(await app.post(f"/v1/dead-letters/{letter['id']}/retry"), 404, "workflow-not-found")

    served(test, worker=True)


async def _letters(app: Served) -> list[dict[str, str]]:
    """The letters, when the step has had its turns of the event loop."""
    for _ in range(1_000):
        seen: list[dict[str, str]] = (await app.get("/v1/dead-letters")).json()["items"]
        if seen:
            return seen
        await asyncio.sleep(0)
    raise AssertionError("nothing gave up")


def test_an_undo_that_is_owed_is_a_compensation() -> None:
    async def test(app: Served) -> None:
        assert (await app.get("/v1/compensations")).json() == {"items": [], "cursor": None}
        await app.start()
        await app.send("SUBMIT", cents=13)
        await _letters(app)
        assert (await app.send("CANCEL")).status_code == 200

    served(test, worker=True)


@pytest.mark.parametrize("letter", ["none", "a/b", "ä", "x" * 300])
def test_a_letter_that_is_not_there_is_not_found(letter: str) -> None:
    async def test(app: Served) -> None:
        path = f"/v1/dead-letters/{quote(letter, safe='')}"
        problem(await app.post(f"{path}/retry"), 404, "workflow-not-found")
        problem(await app.post(f"{path}/resolve", json={"note": "x"}), 404, "workflow-not-found")

    served(test)


@pytest.mark.parametrize("query", ["kind=none", "limit=0", "limit=x", "knd=step"])
def test_a_bad_question_about_letters_is_refused(query: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.get(f"/v1/dead-letters?{query}"), 400, "invalid-payload")

    served(test)


def test_a_breaker_is_held_and_let_go() -> None:
    """C4, C8."""

    async def test(app: Served) -> None:
        [breaker] = (await app.get("/v1/breakers")).json()["items"]
        assert (breaker["name"], breaker["state"], breaker["forced"]) == ("gateway", "closed", None)
        held = await app.put("/v1/breakers/gateway", json={"state": "open"})
        assert (held.status_code, held.json()["state"], held.json()["forced"]) == (200, "open", "open")
        again = await app.put("/v1/breakers/gateway", json={"state": "auto", "rate_per_s": 5, "concurrency_max": 3})
        assert again.json() | {"since": ""} == again.json() | {"since": "", "forced": None, "rate_per_s": 5.0}
        assert again.json()["concurrency_max"] == 3
        assert (await app.put("/v1/breakers/gateway", json={"rate_per_s": None})).json()["rate_per_s"] is None
        problem(await app.put("/v1/breakers/none", json={"state": "open"}), 404, "breaker-not-found")

    served(test)


@pytest.mark.parametrize(
    "body",
    ["", "{}", "[]", '{"state": "ajar"}',
     '{"state": 1}', '{"rate_per_s": 0}', '{"rate_per_s": "x"}', '{"stat": "open"}',
     '{"concurrency_max": 0}', '{"concurrency_max": 1.5}', '{"rate_per_s": 1e999}'],
)  # fmt: skip
def test_what_a_breaker_cannot_be_is_refused(body: str) -> None:
    async def test(app: Served) -> None:
        response = await app.put("/v1/breakers/gateway", content=body)
        assert response.status_code == 400, response.text
        [breaker] = (await app.get("/v1/breakers")).json()["items"]
        assert (breaker["state"], breaker["forced"], breaker["rate_per_s"]) == ("closed", None, None)

    served(test)


def test_contention_is_a_listing() -> None:
    """D9."""

    async def test(app: Served) -> None:
        assert (await app.get("/v1/contention")).json() == {"items": [], "cursor": None}
        problem(await app.get("/v1/contention?x=1"), 400, "invalid-payload")

    served(test)
