"""Listings and machines over HTTP (B7, B8)."""

import httpx
import pytest

from tests.unit.server.serving import Served, problem, served


async def five_and_two(app: Served) -> None:
    for number in range(5):
        await app.start(f"o-{number}")
    for number in range(2):
        await app.start(f"t-{number}", "ticket")
    await app.send("SUBMIT", "o-3", cents=5)


async def all_pages(app: Served, path: str) -> list[str]:
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await app.get(httpx.URL(path).copy_merge_params(query))).json()
        assert len(page["items"]) <= 2
        found += [each["id"] for each in page["items"]]
        cursor = page["cursor"]
    return found


def test_workflows_are_found_page_by_page() -> None:
    async def test(app: Served) -> None:
        await five_and_two(app)
        orders = [f"o-{number}" for number in range(5)]
        assert await all_pages(app, "/v1/workflows?machine=order") == orders
        assert await all_pages(app, "/v1/workflows") == [*orders, "t-0", "t-1"], "all machines, in the order of names"
        assert await all_pages(app, "/v1/workflows?machine=order&state=charging") == ["o-3"]
        assert await all_pages(app, "/v1/workflows?state=open") == ["t-0", "t-1"]

    served(test)


def test_workflows_are_found_by_fields_times_and_order() -> None:
    """F4."""

    async def test(app: Served) -> None:
        await five_and_two(app)
        orders = "/v1/workflows?machine=order"
        assert await all_pages(app, f"{orders}&where=cents%3D5") == ["o-3"]
        assert await all_pages(app, f"{orders}&where=cents%3C5&where=note%3D") == ["o-0", "o-1", "o-2", "o-4"]
        assert await all_pages(app, f"{orders}&order=-cents&where=cents%20in%20[0,5]") == [
            "o-3",
            "o-4",
            "o-2",
            "o-1",
            "o-0",
        ]
        assert (await all_pages(app, f"{orders}&order=-updated_at&state=draft"))[0] == "o-4"
        moved = (await app.get("/v1/workflows/o-3")).json()["updated_at"]
        assert await all_pages(app, f"{orders}&updated_before={moved}") == ["o-0", "o-1", "o-2", "o-4"]
        assert await all_pages(app, f"{orders}&updated_after={moved.replace('Z', '+00:00')}") == []

    served(test)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("where=cents%3D5", 400, "invalid-payload"),
        ("machine=order&where=cents%3Dx", 400, "invalid-payload"),
        ("machine=order&where=nope%3D5", 400, "invalid-payload"),
        ("machine=order&where=cents", 400, "invalid-payload"),
        ("machine=order&order=nope", 400, "invalid-payload"),
        ("machine=order&order=cents&order=cents", 400, "invalid-payload"),
        ("machine=order&updated_after=2026-01-01", 400, "invalid-payload"),
        ("machine=order&updated_before=x", 400, "invalid-payload"),
        ("machine=order&order=cents&cursor=x", 400, "invalid-payload"),
        ("machine=ticket&where=a%3D5", 400, "invalid-payload"),
        ("machine=none", 404, "machine-not-found"),
        ("state=none", 400, "invalid-payload"),
        ("machine=order&state=open", 400, "invalid-payload"),
        ("limit=0", 400, "invalid-payload"),
        ("limit=1001", 400, "invalid-payload"),
        ("limit=x", 400, "invalid-payload"),
        ("limit=%C2%B2", 400, "invalid-payload"),
        ("cursor=x", 400, "invalid-payload"),
        ("machine=order&cursor=x", 400, "invalid-payload"),
        ("cursor=order~x", 400, "invalid-payload"),
        ("cursr=x", 400, "invalid-payload"),
        ("&".join(f"a{number}=1" for number in range(100)), 400, "invalid-payload"),
    ],
)
def test_a_bad_question_is_refused(query: str, status: int, code: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.get(f"/v1/workflows?{query}"), status, code)

    served(test)


def test_stalled_workflows_are_listed() -> None:
    """B7."""

    async def test(app: Served) -> None:
        await five_and_two(app)
        assert (await app.get("/v1/stalled?machine=order")).json() == {"items": [], "cursor": None}
        late = (await app.get("/v1/stalled?machine=order&older_than_s=0")).json()["items"]
        assert {each["id"] for each in late} == {f"o-{number}" for number in range(5)}
        late = (await app.get("/v1/stalled?older_than_s=0&state=open")).json()["items"]
        assert {each["id"] for each in late} == {"t-0", "t-1"}
        for query in ("older_than_s=-1", "older_than_s=nan", "older_than_s=x", "older_than_s=1_0", "state=none"):
            problem(await app.get(f"/v1/stalled?{query}"), 400, "invalid-payload")
        problem(await app.get("/v1/stalled?machine=none"), 404, "machine-not-found")

    served(test)


def test_machines_are_shown_with_their_diagram_and_counts() -> None:
    async def test(app: Served) -> None:
        await five_and_two(app)
        listed = (await app.get("/v1/machines")).json()["items"]
        assert [each["name"] for each in listed] == ["order", "ticket"]
        shown = (await app.get("/v1/machines/order")).json()
        assert shown["states"][0]["name"] == "draft"
        assert shown["diagram"]["svg"].startswith("<svg")
        assert "counts" not in shown
        counted = (await app.get("/v1/machines/order?counts=true")).json()["counts"]
        assert counted == {"draft": 4, "charging": 1, "done": 0, "undoing": 0, "cancelled": 0}
        picture = await app.get("/v1/machines/order", headers={"Accept": "image/svg+xml"})
        assert picture.headers["content-type"].startswith("image/svg+xml")
        assert picture.text.startswith("<svg")
        assert "sandbox" in picture.headers["content-security-policy"]
        problem(await app.get("/v1/machines/none"), 404, "machine-not-found")
        problem(await app.get("/v1/machines/order?counts=x"), 400, "invalid-payload")

    served(test)
