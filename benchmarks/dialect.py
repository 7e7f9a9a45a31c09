"""The cost of translating SQL on a lane: statements seen for the first time, cached ones, long lists, after DDL.

Only translation is measured, nothing runs in SQLite. The goals are upper limits for one statement: the median of the
time of statements seen for the first time, and CPU time for the others.
"""

import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.report import Figure, Round, arguments, interleaved, publish, timed
from interlock.sql.dialect import Dialect
from interlock.sql.schema import Column, Schema, Table
from interlock.sql.types import BOOL, INT4, INT8, JSONB, NUMERIC, TEXT, TIMESTAMPTZ

GOALS = {"first_seen_us": 300.0, "cached_us": 0.3, "in_5000_ms": 30.0, "insert_1000_rows_ms": 20.0}
LITERALS, ROWS, CALLS = 5_000, 1_000, 100_000

STATEMENTS = (
    "SELECT id, total FROM orders WHERE customer = $1 AND paid ORDER BY at DESC LIMIT 20",
    "SELECT o.id, c.name FROM orders AS o JOIN customers AS c ON c.id = o.customer WHERE o.total > 100.00",
    "SELECT customer, count(*), sum(total) FROM orders WHERE at >= $1 GROUP BY customer HAVING count(*) > 3",
    "INSERT INTO orders (id, customer, total, paid, at) VALUES ($1, $2, $3, false, now()) RETURNING id",
    "UPDATE orders SET paid = true, total = total + $1 WHERE id = $2 RETURNING total",
    "DELETE FROM orders WHERE id = $1",
    "SELECT id, rank() OVER (PARTITION BY customer ORDER BY total DESC) FROM orders",
    "WITH recent AS (SELECT * FROM orders WHERE at > now() - interval '1 day') SELECT count(*) FROM recent",
    "INSERT INTO customers (id, name, data) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
    "SELECT name, data ->> 'city' FROM customers WHERE data @> $1 AND lower(name) LIKE 'a%'",
)


def schema_of(version: int, extra: int = 0) -> Schema:
    """The tables, and further ones that no statement names."""
    orders = Table(
        "orders",
        (
            Column("id", INT8, nullable=False),
            Column("customer", INT4),
            Column("total", NUMERIC),
            Column("paid", BOOL),
            Column("at", TIMESTAMPTZ),
        ),
        ("id",),
    )
    customers = Table("customers", (Column("id", INT4, nullable=False), Column("name", TEXT), Column("data", JSONB)))
    others = (Table(f"other{number}", (Column("id", INT4),)) for number in range(extra))
    return Schema(version, {table.name: table for table in (orders, customers, *others)})


SCHEMA = schema_of(1)


def make_dialect() -> Dialect:
    """A dialect that has seen nothing."""
    return Dialect(lambda: SCHEMA)


def first_seen(repeats: int) -> Round:
    """Every statement for the first time, again and again; each latency is of one statement."""
    latencies: list[float] = []

    def work() -> None:
        for _ in range(repeats):
            dialect = make_dialect()
            for sql in STATEMENTS:
                start = time.perf_counter()
                dialect.statement(sql)
                latencies.append(time.perf_counter() - start)

    done = timed(repeats * len(STATEMENTS), work)
    return Round(done.operations, done.seconds, done.cpu_seconds, latencies)


def cached(calls: int) -> Round:
    """One statement that is known."""
    statement = make_dialect().statement
    sql = STATEMENTS[0]
    statement(sql)

    def work() -> None:
        for _ in range(calls):
            statement(sql)

    return timed(calls, work)


def translated_once(make: Callable[[int], str], repeats: int) -> Round:
    """A long statement, with other values each time."""
    texts: Sequence[str] = [make(number) for number in range(repeats)]

    def work() -> None:
        dialect = make_dialect()
        for sql in texts:
            dialect.statement(sql)

    return timed(repeats, work)


def long_list(number: int) -> str:
    """IN with many numbers."""
    listed = ", ".join(str(number + value) for value in range(LITERALS))
    return f"SELECT id FROM orders WHERE id IN ({listed})"  # noqa: S608 -- numbers


def many_rows(number: int) -> str:
    """INSERT of many rows."""
    rows = ", ".join(f"({number + row}, {row}, {row}.50, true)" for row in range(ROWS))
    return f"INSERT INTO orders (id, customer, total, paid) VALUES {rows}"  # noqa: S608 -- numbers


def translated_again() -> float:
    """The share of known statements that are translated again after another table was created."""
    current = SCHEMA
    dialect = Dialect(lambda: current)
    before = {sql: dialect.statement(sql) for sql in STATEMENTS}
    current = schema_of(2, extra=1)
    return statistics.mean(dialect.statement(sql) is not known for sql, known in before.items())


def main() -> None:
    """Run and compare with the goals."""
    options = arguments(__doc__ or "")
    size = 1 if options.quick else 5
    figures: dict[str, Figure] = interleaved(
        {
            "first seen": lambda: first_seen(20 * size),
            "cached": lambda: cached(CALLS * size),
            f"IN with {LITERALS:,} literals": lambda: translated_once(long_list, size),
            f"INSERT of {ROWS:,} rows": lambda: translated_once(many_rows, size),
        },
        rounds=5,
    )
    first, known, listed, inserted = figures.values()
    publish(
        "dialect",
        figures=figures,
        ratios={"first_seen_vs_cached": known.per_second / first.per_second},
        goals=GOALS,
        unit="statements",
        file=options.json,
        extra={
            "first_seen_us": round(1e3 * (first.latency_ms(0.5) or 0.0), 1),
            "cached_us": round(1e3 * known.cpu_ms, 3),
            "in_5000_ms": round(listed.cpu_ms, 2),
            "insert_1000_rows_ms": round(inserted.cpu_ms, 2),
            "translated_again_share": translated_again(),
        },
        at_most=tuple(GOALS),
    )


if __name__ == "__main__":
    main()
