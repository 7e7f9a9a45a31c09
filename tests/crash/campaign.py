"""One database through many crashes: what is certain after each, and what has to be true at the end.

Between two lives a copy of the database is examined, so that the next life meets exactly what the kill left.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

import apsw

from interlock.clock import SystemChance
from interlock.testing.faults import At, Process, Processes
from tests.crash.sites import Site
from tests.crash.workloads import KEYED, UNKEYED


class Campaign:
    """The lives of one database, from one seed."""

    def __init__(self, processes: Processes, folder: Path, site: Site, *, seed: int, kind: str) -> None:
        self.told = f"seed {seed}, kind {kind!r}, database {site.url}"
        self.crashes = 0
        self._processes = processes
        self._chance = SystemChance(seed)
        self._kind = kind
        self._copies = folder / "copy"
        self._site = site
        self._lives = 0
        self._keyed_asked: set[str] = set()
        self._keyed_done: set[str] = set()
        self._unkeyed_least = self._unkeyed_most = 0
        life = processes.start("tests.crash.workloads:make", site.url, site.cache)
        assert list(life.lines()) == ["made"], self.told
        life.end()
        life.close()

    def crash_somewhere(self) -> None:
        """A life that is killed a little after some acknowledgement, both chosen by chance."""
        life = self._start(None, None)
        lines = list(life.lines(1 + int(self._chance.fraction() * 600)))
        lines += life.lines_for(self._chance.fraction() * 0.004)
        life.kill()
        self._crashed(life, lines)

    def crash_at(self, point: str, reached: int) -> None:
        """A life that kills itself when it comes to a point."""
        life = self._start(None, At(point, reached))
        self._crashed(life, life.lines())

    def finish(self) -> None:
        """A life that nobody kills: afterwards nothing is unknown any more, and every key has happened once."""
        life = self._start(1, None)
        lines = list(life.lines())
        self._read(lines)
        assert life.end() == 0, self.told
        life.close()
        assert lines[-1] == "done", self.told
        assert self._keyed_done == self._keyed_asked, self.told
        self._examine()

    def _start(self, rounds: int | None, die_at: At | None) -> Process:
        self._lives += 1
        unknown = sorted(self._keyed_asked - self._keyed_done)
        site, kind, name = self._site, self._kind, str(self._lives)
        return self._processes.start(
            "tests.crash.workloads:count", site.url, site.cache, kind, name, unknown, rounds, die_at=die_at
        )

    def _crashed(self, life: Process, lines: Iterable[str]) -> None:
        self._read(lines)
        self._read(life.lines())
        assert life.end() == -9, f"{self.told}: it ended by itself, so it was not killed"
        life.close()
        self.crashes += 1
        self._site.crashed()
        self._examine()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            kind, unkeyed, name = line[0], line[1:2] == "~", line[1:]
            if kind == "=":
                self._recovered(*map(int, name.split()))
            elif unkeyed:
                # Announced: it may happen. Acknowledged: it has happened.
                self._unkeyed_most += kind == "?"
                self._unkeyed_least += kind == "+"
            elif kind == "?":
                self._keyed_asked.add(name)
            elif kind == "+":
                self._keyed_done.add(name)
            else:
                assert line == "done", f"{self.told}: {line}"

    def _recovered(self, keyed: int, unkeyed: int) -> None:
        """The next life has opened the database, and this is what it sees."""
        assert len(self._keyed_done) <= keyed <= len(self._keyed_asked), self.told
        assert self._unkeyed_least <= unkeyed <= self._unkeyed_most, self.told
        self._unkeyed_least = self._unkeyed_most = unkeyed

    def _examine(self) -> None:
        self._copies.mkdir()
        connection = apsw.Connection(str(self._site.copy(self._copies)))
        try:
            self._hold(connection)
        finally:
            connection.close()
        shutil.rmtree(self._copies)

    def _hold(self, connection: apsw.Connection) -> None:
        assert connection.execute("PRAGMA integrity_check").get == "ok", self.told
        counted = _numbers(connection, "SELECT id, n FROM counter")
        keys = {key for (key,) in connection.execute("SELECT key FROM interlock_keys").fetchall()}
        assert keys >= self._keyed_done, f"{self.told}: acknowledged, and gone: {self._keyed_done - keys}"
        assert keys <= self._keyed_asked, self.told
        assert counted[KEYED] == len(keys), f"{self.told}: a key without its effect, or the other way round"
        assert self._unkeyed_least <= counted[UNKEYED] <= self._unkeyed_most, self.told
        if self._kind == "transact":
            ledger = _numbers(connection, "SELECT row, count(*) FROM ledger GROUP BY row")
            assert {row: n for row, n in counted.items() if n} == ledger, f"{self.told}: half a transaction"


def _numbers(connection: apsw.Connection, sql: str) -> dict[int, int]:
    return {int(str(row)): int(str(n)) for row, n in connection.execute(sql).fetchall()}
