"""SQL and HTML in every free-text field, on a lane and on PostgreSQL: stored and told verbatim, never executed."""

import asyncio
import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from interlock import Webhook
from interlock.server.app_declaration import Mapped
from interlock.server.security.guard import Audit
from interlock.server.security.stores import MemoryTrail
from tests.unit.server import shop
from tests.unit.server.serving import Served, serving

HOSTILE = (
    "'; DROP TABLE workflows; --",
    '"); DELETE FROM history WHERE (1=1); --',
    "$1 $$ :name %s %(x)s {0} ${jndi:ldap:x} {{7*7}} `id` $(id)",
    "<script>alert(1)<\\script><img src=x onerror=alert(1)>",
    "&lt;b&gt; &amp; <!-- ]]> <![CDATA[",
    "\u00e4\u0301 \U0001f4a5 \u05d0\u05d1",
    "\\x27 \\u0027 \\' \\\\",
    "null",
)
SECRET = b"a secret of thirty-two bytes 123"


class Now:
    """A clock that stands."""

    def wall_s(self) -> float:
        return 1_700_000_000.0

    def monotonic_s(self) -> float:
        return 0.0


def mapped(payload: dict[str, Any], delivery: str) -> Mapped:
    return payload["id"], shop.Remark(note=payload["note"]), delivery


HOOK = Webhook("shop", secret="whsec_" + base64.b64encode(SECRET).decode(), map=mapped)


@pytest.fixture(params=["lane", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"lanes://{tmp_path}" if request.param == "lane" else str(request.getfixturevalue("postgres_url"))


async def delivered(app: Served, body: bytes, delivery: str) -> httpx.Response:
    content = delivery.encode() + b".1700000000." + body
    signature = base64.b64encode(hmac.new(SECRET, content, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": delivery, "webhook-timestamp": "1700000000", "webhook-signature": f"v1,{signature}"}
    return await app.post("/v1/webhooks/shop", content=body, headers=headers)


def told(response: httpx.Response, status: int = 200) -> Any:  # noqa: ANN401 -- any JSON.
    """The JSON of an answer that no browser takes for a page."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] in {"application/json", "application/problem+json"}
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    return response.json()


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_text_wherever_it_is_written(home: str, text: str) -> None:
    """Ids, contexts, payloads, keys, webhooks and parameters of SQL."""

    async def scenario() -> None:
        async with serving(home, home=home, webhooks=[HOOK], clock=Now()) as app:
            path = f"/v1/workflows/{quote(text, safe='')}"
            body = {"id": text, "context": {"note": text}}
            made = told(await app.post("/v1/machines/order/workflows", json=body), 201)
            assert (made["id"], made["context"]["note"]) == (text, text)
            assert told(await app.post("/v1/machines/order/workflows", json=body))["version"] == 1
            line = {"id": text, "event": "REMARK", "data": {"note": text * 2}, "key": text}
            batch = await app.post("/v1/events:batch", content=json.dumps(line).encode())
            assert json.loads(batch.text) == {
                "id": text,
                "state": "draft",
                "version": 2,
                "duplicate": False,
                "ignored": False,
            }
            payload = json.dumps({"id": text, "note": text * 3}).encode()
            assert told(await delivered(app, payload, "d-1"))["version"] == 3
            assert told(await delivered(app, payload, "d-1"))["duplicate"]
            rows = told(await app.get(f"{path}/history"))["items"]
            assert [row["context"]["note"] for row in rows] == [text, text * 2, text * 3]
            assert rows[1]["key"] == text
            assert rows[1]["payload"] == {"note": text * 2}
            found = told(await app.get("/v1/workflows", params={"machine": "order"}))["items"]
            assert [each["id"] for each in found] == [text], "nothing else has happened"
            assert told(await app.get(f"{path}/stats"))["applied"] >= 2

    asyncio.run(scenario())


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_names_nothing_is_told_as_text(home: str, text: str) -> None:
    """Names of machines, states, events, breakers, letters, sources, databases, cursors: a problem, and no accident."""

    async def scenario() -> None:
        async with serving(home, home=home, webhooks=[HOOK], clock=Now()) as app:
            await app.start()
            name = quote(text, safe="")
            asked = [
                app.get(f"/v1/machines/{name}"),
                app.post(f"/v1/machines/{name}/workflows", json={"id": "x"}),
                app.get("/v1/workflows", params={"state": text}),
                app.get("/v1/workflows", params={"machine": text}),
                app.get("/v1/workflows", params={"machine": "order", "cursor": text}),
                app.get("/v1/workflows/o-1/allowed", params={"event": text, "data": text}),
                app.post("/v1/workflows/o-1/events", json={"event": text}),
                app.post("/v1/workflows/o-1/events", json={"event": "REMARK", "data": {text: 1}}),
                app.post(f"/v1/dead-letters/{name}/resolve", json={"note": text}),
                app.post(f"/v1/dead-letters/{name}/retry"),
                app.put(f"/v1/breakers/{name}", json={"state": "open"}),
                app.put("/v1/breakers/gateway", json={"state": text}),
                app.post(f"/v1/webhooks/{name}", content=text.encode()),
                app.get("/v1/stream", params={"kind": text}),
            ]
            for each in asked:
                answer = await each
                assert 400 <= answer.status_code < 500, answer.text
                assert told(answer, answer.status_code)["fix"]
            view = told(await app.get("/v1/workflows/o-1"))
            assert (view["version"], view["context"]["note"]) == (1, "")

    asyncio.run(scenario())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_parameter_of_sql_is_a_value(home: str, text: str) -> None:
    async def scenario() -> None:
        name = "stock_" + home.rpartition("_")[2] if home.startswith("postgres") else "stock"
        async with serving(home, home=home) as app:
            path = f"/v1/databases/{name}/transactions"
            statements = [
                {"sql": "CREATE TABLE people (name text)"},
                {"sql": "INSERT INTO people VALUES ($1)", "params": [text]},
                {"sql": "SELECT name FROM people WHERE name = $1", "params": [text]},
            ]
            done = told(await app.post(path, json={"statements": statements, "key": text}))
            assert done["results"][2]["rows"] == [{"name": text}]
            assert told(await app.post(path, json={"statements": statements, "key": text})) == done

    asyncio.run(scenario())


def test_what_a_person_has_noted_is_kept_as_it_is() -> None:
    """The note of a resolved letter, in the audit log."""

    async def scenario() -> None:
        audit = Audit(MemoryTrail(), clock=Now())
        async with serving(audit=audit, worker=True) as app:
            for at, text in enumerate(HOSTILE):
                await app.start(f"o-{at}")
                await app.send("SUBMIT", f"o-{at}", cents=13)
                while not (letters := await app.engine.dead_letters()):  # noqa: ASYNC110 -- it needs only turns.
                    await asyncio.sleep(0)
                told(await app.post(f"/v1/dead-letters/{letters[0].id}/resolve", json={"note": text}))
                newest = (await audit.read())[0]
                assert json.loads(bytes(newest.after)) == {"resolved": text}

    asyncio.run(scenario())
