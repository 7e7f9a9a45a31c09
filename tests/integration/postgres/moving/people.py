"""A database with enumerations, generated columns, sequences, views, and references in a circle."""

import pytest

from interlock import Database
from interlock.errors import ConstraintViolation, TransactionError

DEFINITIONS = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s, \"ok\"', 'happy')",
    "CREATE TYPE \"order\" AS ENUM ('up', 'down')",
    "CREATE SEQUENCE tens START WITH 10 INCREMENT BY 10 MINVALUE 10 MAXVALUE 30 CYCLE",
    "CREATE SEQUENCE unused START WITH 5",
    """CREATE TABLE person (
         id bigint PRIMARY KEY DEFAULT nextval('tens'),
         name varchar(20) NOT NULL,
         mood mood NOT NULL DEFAULT 'sad',
         moods mood[],
         way "order" DEFAULT 'up'::"order",
         code char(4) DEFAULT 'ab',
         born date, wakes time, at timestamp, stays interval,
         large text GENERATED ALWAYS AS (upper(name) || '!') STORED,
         size integer NOT NULL GENERATED ALWAYS AS (length(name)) STORED CHECK (size < 20),
         CHECK (mood <> 'happy' OR name <> '')
       )""",
    "CREATE TABLE kept (mood mood, n integer, PRIMARY KEY (mood, n))",
    """CREATE TABLE child (id integer PRIMARY KEY,
         person bigint REFERENCES person (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)""",
    "CREATE TABLE a_team (id integer PRIMARY KEY, head integer)",
    "CREATE TABLE member (id integer PRIMARY KEY, team integer NOT NULL REFERENCES a_team (id))",
    "ALTER TABLE a_team ADD FOREIGN KEY (head) REFERENCES member (id) DEFERRABLE INITIALLY DEFERRED",
    "CREATE INDEX happy ON person (name) WHERE mood = 'happy'",
    "CREATE UNIQUE INDEX large_of ON person (large)",
    "CREATE UNIQUE INDEX ON person (lower(name), (size + 1) DESC, code) WHERE mood > 'sad'",
    "CREATE VIEW happy_people AS SELECT id, name, mood FROM person WHERE mood > 'sad'",
    "CREATE VIEW counted AS SELECT mood, count(*) AS n FROM happy_people GROUP BY mood",
)
ROWS = (
    """INSERT INTO person (name, mood, moods, born, wakes, at, stays) VALUES
       ('Ann', 'happy', '{sad,NULL,happy}', '2000-02-29', '07:30', '2030-01-01 12:00', '1 month 2 days'),
       ('Bob', DEFAULT, NULL, NULL, NULL, NULL, NULL)""",
    "INSERT INTO kept VALUES ('happy', 1), ('sad', 2), ('sad', 1)",
    "INSERT INTO child VALUES (1, 10)",
    "INSERT INTO a_team VALUES (1, NULL), (2, NULL)",
    "INSERT INTO member VALUES (5, 1)",
    "UPDATE a_team SET head = 5 WHERE id = 1",
)
QUERIES = (
    "SELECT * FROM person ORDER BY id",
    "SELECT * FROM kept ORDER BY mood, n",
    "SELECT t.id, t.head, m.id FROM a_team AS t LEFT JOIN member AS m ON m.team = t.id ORDER BY t.id",
    "SELECT * FROM counted ORDER BY mood",
    "SELECT name FROM happy_people ORDER BY mood DESC, name",
)


async def contents(db: Database) -> list[list[tuple[object, ...]]]:
    """Return what the queries give."""
    return [[tuple(row) for row in await db.query(sql)] for sql in QUERIES]


async def check_rules(db: Database) -> None:
    """Types, constraints and numbering hold at the new place; nothing of it stays."""
    with pytest.raises(TransactionError):
        await db.execute("INSERT INTO person (name, mood) VALUES ('x', 'bad')")
    with pytest.raises(TransactionError):
        await db.execute("INSERT INTO person (name, size) VALUES ('x', 5)")
    with pytest.raises(ConstraintViolation):
        await db.execute("INSERT INTO person (id, name) VALUES (99, 'ann')")
    with pytest.raises(ConstraintViolation):
        await db.execute("INSERT INTO person (id, name, mood, code) SELECT 99, name, mood, code FROM person LIMIT 1")
    with pytest.raises(ConstraintViolation):
        await db.execute("INSERT INTO child VALUES (2, 98)")
    for sql in ("UPDATE a_team SET head = 6", "UPDATE member SET team = 3"):
        with pytest.raises(ConstraintViolation):
            await db.execute(sql)
    [(mood, code)] = await db.query("INSERT INTO person (id, name) VALUES (98, 'Eve') RETURNING mood, code")
    assert (mood, code) == ("sad", "ab  ")
    await db.execute("DELETE FROM person WHERE id = 98")


async def filled(url: str) -> list[list[tuple[object, ...]]]:
    """Make the database; return its contents."""
    async with Database.open(url) as db:
        for sql in (*DEFINITIONS, *ROWS):
            if db.engine != "postgres":  # There the schema public is another one.
                sql = sql.replace("FROM person WHERE", "FROM public.person WHERE")  # noqa: PLW2901
            await db.execute(sql)
        return await contents(db)
