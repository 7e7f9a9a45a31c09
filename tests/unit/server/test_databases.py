"""SQL over HTTP: one durable transaction per request (D1)."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from interlock.server.app_declaration import Limits
from tests.unit.server.serving import Served, problem, served


async def run(app: Served, *statements: object, name: str = "stock", key: str | None = None) -> httpx.Response:
    body = {"statements": [{"sql": sql} if isinstance(sql, str) else sql for sql in statements], "key": key}
    return await app.post(f"/v1/databases/{quote(name, safe='')}/transactions", json=body)


MAKE = "CREATE TABLE stock (sku text PRIMARY KEY, n bigint NOT NULL CHECK (n >= 0))"


@pytest.fixture(params=["memory", "lanes"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"lanes://{tmp_path}"


def test_statements_happen_together_or_not_at_all(home: str) -> None:
    async def test(app: Served) -> None:
        await run(app, MAKE)
        done = await run(
            app,
            {"sql": "INSERT INTO stock VALUES ($1, $2)", "params": ["A-1", 5]},
            {"sql": "UPDATE stock SET n = n - $1 WHERE sku = $2 RETURNING n", "params": [2, "A-1"]},
            "SELECT sku, n FROM stock",
        )
        assert done.status_code == 200, done.text
        assert done.json() == {
            "results": [
                {"count": 1, "rows": None},
                {"count": 1, "rows": [{"n": 3}]},
                {"count": 1, "rows": [{"sku": "A-1", "n": 3}]},
            ]
        }
        problem(await run(app, "UPDATE stock SET n = 1", "UPDATE stock SET n = -1"), 422, "constraint-violation")
        assert (await run(app, "SELECT n FROM stock")).json()["results"][0]["rows"] == [{"n": 3}]

    served(test, home=home)


def test_a_key_makes_a_transaction_happen_once(home: str) -> None:
    async def test(app: Served) -> None:
        await run(app, MAKE, "INSERT INTO stock VALUES ('A-1', 5)")
        first = await run(app, "UPDATE stock SET n = n - 1 RETURNING n", key="order-7")
        again = await run(app, "UPDATE stock SET n = n - 1 RETURNING n", key="order-7")
        assert first.json() == again.json() == {"results": [{"count": 1, "rows": [{"n": 4}]}]}
        problem(await run(app, "UPDATE stock SET n = n - 2 RETURNING n", key="order-7"), 422, "key-reused")

    served(test, home=home)


def test_a_document_is_passed_as_it_is_and_not_as_its_text(home: str) -> None:
    async def test(app: Served) -> None:
        await run(app, "CREATE TABLE d (id bigint PRIMARY KEY, doc jsonb)")
        insert = "INSERT INTO d VALUES ($1, $2) RETURNING doc"
        done = await run(app, {"sql": insert, "params": [1, {"a": 1}]})
        assert done.json()["results"][0]["rows"] == [{"doc": {"a": 1}}]
        problem(await run(app, {"sql": insert, "params": [2, '{"a": 1}']}), 422, "transaction")

    served(test, home=home)


@pytest.mark.parametrize(
    ("sql", "status", "code"),
    [
        ("SELECT", 400, "dialect"),
        ("PRAGMA user_version", 400, "dialect"),
        ("SELECT 1; SELECT 2", 400, "dialect"),
        ("SELECT * FROM none", 422, "transaction"),
        ("SELECT 1 / 0", 422, "transaction"),
    ],
)
def test_a_bad_statement_is_refused(sql: str, status: int, code: str) -> None:
    async def test(app: Served) -> None:
        await run(app, MAKE)
        problem(await run(app, sql), status, code)

    served(test)


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"statements": []}', '{"statements": [{"sql": ""}]}', '{"statements": [{"sql": 5}]}',
     '{"statements": [{"sql": "SELECT 1", "params": {}}]}', '{"statements": [{"sql": "SELECT 1"}], "key": 5}',
     '{"statements": [{"sql": "SELECT 1"}], "key": ""}', '{"statements": "SELECT 1"}',
     '{"statements": [{"sql": "SELECT $1", "params": [' + "[" * 200 + "]" * 200 + "]}]}"],
)  # fmt: skip
def test_a_bad_body_is_refused(body: str) -> None:
    async def test(app: Served) -> None:
        problem(await app.post("/v1/databases/stock/transactions", content=body), 400, "invalid-payload")

    served(test)


def test_the_workflows_themselves_are_not_reachable(tmp_path: Path) -> None:
    async def test(app: Served) -> None:
        problem(await run(app, "SELECT 1", name="workflows"), 404, "database-not-found")
        for name in ("a/b", ".hidden", "", "x" * 300):
            assert (await run(app, "SELECT 1", name=name)).status_code == 400

    served(test, home=f"lanes://{tmp_path}")


def test_a_misspelled_name_makes_no_database_and_does_not_count_as_an_open_one(home: str, tmp_path: Path) -> None:
    async def test(app: Served) -> None:
        assert (await run(app, MAKE)).status_code == 200
        for name in ("stokc", "stck", "Stock"):
            for sql in ("SELECT n FROM stock", " insert into stock VALUES ('A-1', 5)", "UPDATE stock SET n = 1"):
                problem(await run(app, sql, name=name), 404, "database-not-found")
        assert list(app.app.service.databases.open_now()) == ["stock"]
        assert (await run(app, "SELECT n FROM stock")).status_code == 200
        assert (await run(app, MAKE, name="other")).status_code == 200, "that is how one is made"

    served(test, home=home, limits=Limits(databases_max=2))
    made = sorted(path.stem for path in tmp_path.glob("*.lane"))
    assert made == ([] if home == "memory:" else ["other", "stock"])


def test_a_database_that_was_made_before_is_found(tmp_path: Path) -> None:
    async def make(app: Served) -> None:
        assert (await run(app, MAKE)).status_code == 200

    async def look(app: Served) -> None:
        assert (await run(app, "SELECT n FROM stock")).status_code == 200

    for test in (make, look):
        served(test, home=f"lanes://{tmp_path}")


def test_without_a_home_there_is_no_database() -> None:
    async def test(app: Served) -> None:
        problem(await run(app, "SELECT 1"), 404, "database-not-found")

    served(test, home=None)


@pytest.mark.parametrize(
    ("limits", "make"),
    [
        (Limits(statements_max=1), lambda app: run(app, "SELECT 1", "SELECT 2")),
        (Limits(rows_max=1), lambda app: run(app, "SELECT * FROM (VALUES (1), (2)) AS v (n)")),
    ],
)
def test_everything_is_bounded(limits: Limits, make: Callable[[Served], object]) -> None:
    """G6."""

    async def test(app: Served) -> None:
        await run(app, MAKE)
        response = await make(app)  # type: ignore[misc]
        assert response.status_code in {400, 409}, response.text

    served(test, limits=limits)


def test_databases_that_are_open_are_bounded() -> None:
    async def test(app: Served) -> None:
        assert (await run(app, MAKE, name="a")).status_code == 200
        problem(await run(app, MAKE, name="b"), 409, "limit-reached")

    served(test, limits=Limits(databases_max=1))


def test_types_that_json_does_not_have_are_named(home: str) -> None:
    """Money, moments, ids and bytes go in by name, and come back as text."""
    given: dict[str, dict[str, object]] = {
        "n": {"$numeric": "19.90"},
        "t": {"$timestamptz": "2026-11-16T10:00:00+00:00"},
        "u": {"$uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
        "b": {"$bytes": "aGVsbG8="},
        "j": {"a": {"$numeric": "1"}},
    }
    back = {name: next(iter(each.values())) if name != "j" else each for name, each in given.items()}

    async def test(app: Served) -> None:
        await run(app, "CREATE TABLE t (id bigint PRIMARY KEY, n numeric, t timestamptz, u uuid, b bytea, j jsonb)")
        into = {"sql": "INSERT INTO t VALUES (1, $1, $2, $3, $4, $5) RETURNING *", "params": list(given.values())}
        for _ in range(2):
            done = await run(app, into, key="k")
            assert done.status_code == 200, done.text
            [row] = done.json()["results"][0]["rows"]
            assert row == {"id": 1, **back, "t": row["t"]}
            assert row["t"].startswith("2026-11-16T10:00:00")

    served(test, home=home)


@pytest.mark.parametrize(
    "wrong",
    [{"$number": "1"}, {"$numeric": 1}, {"$numeric": "NaN"}, {"$numeric": "one"}, {"$timestamptz": "2026-11-16T10:00"},
     {"$uuid": "no"}, {"$uuid": None}, {"$bytes": "?"}, {"$bytes": "é"}],
)  # fmt: skip
def test_what_is_no_value_of_its_type_is_refused_and_nothing_runs(wrong: object) -> None:
    async def test(app: Served) -> None:
        await run(app, "CREATE TABLE t (n numeric)")
        problem(
            await run(app, "INSERT INTO t VALUES (1)", {"sql": "SELECT $1", "params": [wrong]}), 400, "invalid-payload"
        )
        assert (await run(app, "SELECT n FROM t")).json()["results"][0]["rows"] == []

    served(test)
