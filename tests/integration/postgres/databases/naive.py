"""Statements as people write them that lose updates under READ COMMITTED, each with what has to be there afterwards.

Run as a program it makes its calls in a process of its own: the address, the name of the case, tasks, calls per task.
"""

import asyncio
import itertools
import sys
from typing import NamedTuple

from interlock.database.database import Database
from interlock.database.transactions import Transaction
from interlock.errors import ConstraintViolation

COUNTER = ("CREATE TABLE c (id integer PRIMARY KEY, n integer NOT NULL)", "INSERT INTO c VALUES (1, 0)")
LATEST = "CREATE FUNCTION {}({}) RETURNS integer LANGUAGE sql STABLE AS 'SELECT n FROM c WHERE id = 1'"
ADD = """
CREATE FUNCTION add() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE x integer;
BEGIN
  SELECT n INTO x FROM c WHERE id = 1;
  UPDATE c SET n = x + 1 WHERE id = 1;
  RETURN COALESCE(NEW, OLD);
END $$"""
ROOM = """
CREATE FUNCTION room() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN RETURN (SELECT count(*) FROM seat) < 20; END $$"""
NUMBER = """
CREATE FUNCTION number() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN RETURN (SELECT coalesce(max(k), 0) + 1 FROM numbers); END $$"""


class Case(NamedTuple):
    """One way to count."""

    sql: str
    setup: tuple[str, ...] = ()
    result: str = "SELECT n FROM c WHERE id = 1"
    at_most: int = 1_000_000


CASES = {
    "subquery in SET": Case("UPDATE c SET n = (SELECT n FROM c WHERE id = 1) + 1 WHERE id = 1"),
    "subquery in WHERE": Case("UPDATE c SET n = n + 1 WHERE n = (SELECT min(n) FROM c WHERE id = 1) AND id = 1"),
    "CTE": Case("WITH x AS (SELECT n FROM c WHERE id = 1) UPDATE c SET n = x.n + 1 FROM x WHERE c.id = 1"),
    "FROM itself": Case("UPDATE c SET n = o.n + 1 FROM c o WHERE o.id = c.id AND c.id = 1"),
    "INSERT SELECT max": Case(
        "INSERT INTO numbers SELECT coalesce(max(k), 0) + 1 FROM numbers",
        ("CREATE TABLE numbers (k bigint)",),
        "SELECT count(DISTINCT k) FROM numbers",
    ),
    "upsert with a subquery": Case(
        "INSERT INTO c VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = (SELECT n FROM c WHERE id = 1) + 1"
    ),
    "upsert of a query": Case(
        "INSERT INTO c SELECT 1, n + 1 FROM c WHERE id = 1 ON CONFLICT (id) DO UPDATE SET n = excluded.n"
    ),
    "view": Case(
        "UPDATE v SET n = m + 1 WHERE id = 1",
        ("CREATE VIEW v AS SELECT id, n, (SELECT x.n FROM c x WHERE x.id = c.id) AS m FROM c",),
    ),
    "trigger": Case(
        "INSERT INTO hit (a) VALUES (1)",
        (
            "CREATE TABLE hit (a integer)",
            ADD,
            "CREATE TRIGGER t AFTER INSERT ON hit FOR EACH ROW EXECUTE FUNCTION add()",
        ),
    ),
    "trigger of a child": Case(
        "UPDATE base SET a = a + 1 WHERE id = $1",
        (
            "CREATE TABLE base (id integer, a integer)",
            "CREATE TABLE child () INHERITS (base)",
            "INSERT INTO child SELECT x, 0 FROM generate_series(0, 1000) x",
            ADD,
            "CREATE TRIGGER t AFTER UPDATE ON child FOR EACH ROW EXECUTE FUNCTION add()",
        ),
    ),
    "trigger behind a cascade": Case(
        "DELETE FROM parent WHERE id = $1",
        (
            "CREATE TABLE parent (id integer PRIMARY KEY)",
            "CREATE TABLE part (id integer REFERENCES parent ON DELETE CASCADE)",
            "INSERT INTO parent SELECT x FROM generate_series(0, 1000) x",
            "INSERT INTO part SELECT x FROM generate_series(0, 1000) x",
            ADD,
            "CREATE TRIGGER t AFTER DELETE ON part FOR EACH ROW EXECUTE FUNCTION add()",
        ),
    ),
    "CHECK with a function": Case(
        "INSERT INTO seat (a) VALUES (1)",
        (ROOM, "CREATE TABLE seat (a integer CHECK (room()))"),
        "SELECT count(*) FROM seat",
        20,
    ),
    "DEFAULT with a function": Case(
        "INSERT INTO numbers (a) VALUES (1)",
        (
            "CREATE TABLE numbers (a integer, k bigint)",
            NUMBER,
            "ALTER TABLE numbers ALTER k SET DEFAULT number()",
        ),
        "SELECT count(DISTINCT k) FROM numbers",
    ),
    "function": Case("UPDATE c SET n = latest() + 1 WHERE id = 1", (LATEST.format("latest", ""),)),
    "function named by a key word": Case("UPDATE c SET n = next() + 1 WHERE id = 1", (LATEST.format("next", ""),)),
    "function like a built-in one": Case(
        "UPDATE c SET n = abs('x'::text::varchar) + 1 WHERE id = 1", (LATEST.format("abs", "varchar"),)
    ),
    "function like a column": Case("UPDATE c SET n = c.latest + 1 WHERE id = 1", (LATEST.format("latest", "c"),)),
    "operator": Case(
        "UPDATE c SET n = (1 <#> 1) + 1 WHERE id = 1",
        (
            LATEST.format("plus", "integer, integer"),
            "CREATE OPERATOR <#> (LEFTARG = integer, RIGHTARG = integer, FUNCTION = plus)",
        ),
    ),
    "transact": Case(""),
}


_numbers = itertools.count()


async def read_then_write(tx: Transaction) -> None:
    """Count up the naive way."""
    [(n,)] = await tx.query("SELECT n FROM c WHERE id = 1")
    assert isinstance(n, int)
    await tx.execute("UPDATE c SET n = $1 WHERE id = 1", n + 1)


async def prepare(db: Database, case: Case) -> None:
    """Make what the case needs."""
    for sql in (*COUNTER, *case.setup):
        await db.execute(sql)


async def call(db: Database, case: Case, times: int) -> int:
    """Call so often, one after the other; returns how many were acknowledged."""
    done = 0
    for _ in range(times):
        try:
            if case.sql:
                done += await db.execute(case.sql, *([next(_numbers)] if "$1" in case.sql else []))
            else:
                await db.transact(read_then_write)
                done += 1
        except ConstraintViolation:
            assert case.at_most < times * 1_000
    return done


async def storm(db: Database, case: Case, tasks: int, times: int) -> int:
    """Call from so many tasks at once."""
    return sum(await asyncio.gather(*[call(db, case, times) for _ in range(tasks)]))


async def main(url: str, name: str, tasks: int, times: int) -> None:
    """Say how many calls were acknowledged."""
    async with Database.open(url) as db:
        sys.stdout.write(f"{await storm(db, CASES[name], tasks, times)}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
