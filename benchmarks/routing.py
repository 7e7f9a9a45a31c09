"""A database moves to PostgreSQL and back while it is written to, and another database beside it is watched.

Printed are: how fast rows are copied and compared, how long writers waited (the seal), what a dry run had said of both,
how long the slowest writer of the database has waited, and the latency of a database that has nothing to do with it,
with the move and without, in the same run: the ratio is what the move costs others. The mover is a process of its own,
as `interlock route` is.

    python -m benchmarks.routing --megabytes 100
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.postgres import server
from interlock.database.database import Database

ROW_BYTES = 400
WRITERS = 16
QUIET_S = 5.0
GOALS = {
    "seal_ms": 500.0, "writers_p99_ms": 500.0, "others_p99_ratio_lane": 2.0, "others_p99_ratio_postgres": 2.0,
    "copy_predicted_within": 2.0, "slowest_differs_from_printed": 0.2,
}  # fmt: skip
"""The upper bounds of a move, in each direction."""


async def filled(url: str, megabytes: int) -> int:
    """A database of about that size."""
    rows = megabytes * 1_000_000 // (ROW_BYTES + 32)
    async with Database.open(url, transaction_timeout_s=120.0) as db:
        await db.execute("CREATE TABLE thing (id bigint PRIMARY KEY, n bigint NOT NULL, payload text NOT NULL)")

        async def some(tx: object, first: int, last: int) -> None:
            for number in range(first, last):
                await tx.execute("INSERT INTO thing VALUES ($1, 0, $2)", number, f"{number:06}" * (ROW_BYTES // 6))  # type: ignore[attr-defined]

        for first in range(0, rows, 5_000):
            await db.transact(some, first, min(first + 5_000, rows))
    return rows


class Beside:
    """Clients of another database, one write after the other, and how long each took."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.latencies_s: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop."""
        number = 0
        while not stop.is_set():
            number += 1
            since_s = time.perf_counter()
            await self._db.execute("UPDATE counter SET n = n + 1 WHERE id = 1")
            self.latencies_s.append(time.perf_counter() - since_s)
            await asyncio.sleep(0.002)

    def taken(self) -> float:
        """The 99th percentile since the last time, in ms."""
        found, self.latencies_s = self.latencies_s, []
        return 1e3 * statistics.quantiles(found, n=100)[-1]


async def writing(db: Database, rows: int, stop: asyncio.Event, seed: int, took_s: list[float]) -> int:
    """Write to the database that moves, here and there, and note how long each write took."""
    count, at = 0, seed
    while not stop.is_set():
        at = (at * 1_103_515_245 + 12_345) % 2**31
        since_s = time.perf_counter()
        await db.execute("UPDATE thing SET n = n + 1 WHERE id = $1", at % rows)
        took_s.append(time.perf_counter() - since_s)
        count += 1
        await asyncio.sleep(0.005)
    return count


async def routed(*words: str) -> dict[str, float]:
    """Run the command; what it says as JSON."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "interlock", "route", *words, "-o", "json", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    found: dict[str, float] = json.loads(said)
    return found


async def main(megabytes: int) -> dict[str, object]:
    """There and back."""
    report: dict[str, object] = {"megabytes": megabytes}
    with tempfile.TemporaryDirectory(prefix="interlock-routing-") as folder, server(Path(folder)) as postgres:
        home = f"lanes://{folder}"
        mark = "&" if "?" in postgres.url else "?"
        remote = f"{postgres.url}{mark}schema=moving"
        rows = await filled(f"{home}/shop", megabytes)
        report["file_bytes"] = (Path(folder) / "shop.lane").stat().st_size
        others = {"lane": f"{home}/other", "postgres": f"{postgres.url}{mark}schema=other"}
        opened = {name: await Database.open(url) for name, url in others.items()}
        for db in opened.values():
            await db.execute("CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)")
            await db.execute("INSERT INTO counter VALUES (1, 0)")
        async with Database.open("shop", home=home) as db:
            stop = asyncio.Event()
            beside = {name: Beside(each) for name, each in opened.items()}
            watchers = [asyncio.ensure_future(each.run(stop)) for each in beside.values()]
            took_s: list[float] = []
            tasks = [asyncio.ensure_future(writing(db, rows, stop, seed, took_s)) for seed in range(WRITERS)]
            for way, target in (("there", remote), ("back", f"{home}/shop")):
                await asyncio.sleep(QUIET_S)
                quiet = {name: each.taken() for name, each in beside.items()}
                plan = await routed("shop", "--to", target, "--home", home, "--dry-run")
                _ = [each.taken() for each in beside.values()]
                took_s.clear()
                moved = await routed("shop", "--to", target, "--home", home)
                busy = {name: each.taken() for name, each in beside.items()}
                report[way] = {
                    "rows_per_s": round(rows / moved["copy_s"]),
                    "copy_s": moved["copy_s"],
                    "seal_ms": moved["seal_ms"],
                    "writers_p99_ms": 1e3 * statistics.quantiles(took_s, n=100)[-1],
                    "slowest_writer_ms": 1e3 * max(took_s),
                    "predicted_copy_s": plan["copy_s"],
                    "predicted_seal_ms": plan["seal_ms"],
                    "others_p99_ms": {name: (quiet[name], busy[name]) for name in quiet},
                    **{f"others_p99_ratio_{name}": busy[name] / quiet[name] for name in quiet},
                    "copy_predicted_within": max(moved["copy_s"] / plan["copy_s"], plan["copy_s"] / moved["copy_s"]),
                    "slowest_differs_from_printed": abs(1e3 * max(took_s) / moved["seal_ms"] - 1.0),
                }
            stop.set()
            written = sum(await asyncio.gather(*tasks))
            _ = await asyncio.gather(*watchers)
            [(total,)] = await db.query("SELECT sum(n) FROM thing")
            assert int(str(total)) == written, (total, written)
            report["writes"] = written
        for each in opened.values():
            await each.close()
    return report


def report_of(found: Mapping[str, object]) -> dict[str, object]:
    """Return the report of both moves in the form of all benchmarks: a ratio and a goal for each direction."""
    ways = {way: msgspec.convert(found[way], dict[str, object]) for way in ("there", "back")}
    goals = {f"{way}_{name}": goal for way in ways for name, goal in GOALS.items()}
    ratios = {f"{way}_{name}": figures[name] for way, figures in ways.items() for name in GOALS}
    return {
        "name": "routing", "unit": "rows", "ratios": ratios, "goals": goals, "at_most": sorted(goals), "figures": found,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Move a database there and back.")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--json", type=Path, default=None)
    chosen = parser.parse_args()
    found = asyncio.run(main(chosen.megabytes))
    text = json.dumps(report_of(found), indent=2)
    print(text)
    if chosen.json is not None:
        chosen.json.write_text(text)
