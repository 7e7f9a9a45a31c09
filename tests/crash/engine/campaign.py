"""One shop through many kills: what is certain after each of them, and what has to be true when everything has ended.

The parent believes only what a life has said before it died and what the gateway has written down. Between two lives a
copy of the store is audited, so that the next life meets exactly what the kill has left.
"""

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from interlock.clock import SystemChance
from interlock.testing.faults import At, Process, Processes
from tests.crash.engine.audit import Audit
from tests.crash.engine.gateway import Books, lines_of
from tests.crash.sites import Site

PATIENCE_S = 400.0
"""What has not come to rest after this time never will; it takes a fraction of a second."""

LIVES_MAX = 200
"""A campaign that has not seen everything it is there for after so many further lives never will."""

ORDERS_MORE = 20
"""So many orders a life takes that is there for their ends."""

AGAIN = 4
"""Acknowledged operations that each life asks for again."""


class Campaign:
    """The lives of one store, from one seed."""

    def __init__(
        self, processes: Processes, folder: Path, site: Site, *, seed: int, sabotaged: str | None = None
    ) -> None:
        self.crashes = 0
        self.seen: Counter[str] = Counter()
        """How often something happened that the campaign is there for."""
        self._told = f"seed {seed}, store {site.url}"
        self._processes = processes
        self._chance = SystemChance(seed)
        self._seed = seed
        self._site = site
        self._books = folder / "gateway"
        self._copies = folder / "copy"
        self._sabotaged = sabotaged
        self._lives = 0
        self._asked: dict[str, None] = {}
        self._acknowledged: dict[str, tuple[int, str, str]] = {}
        """By operation: version, state and how, of its first acknowledgement."""
        self._refused: set[str] = set()
        self._runs: dict[tuple[str, int, str], str] = {}
        self._applied: dict[str, dict[str, int]] = {}
        """Delivery keys that the store had when this life began."""

    def crash_somewhere(self) -> None:
        """A life that is killed by chance: a little after something it said, or a little after its beginning."""
        life = self._start()
        lines: list[str] = []
        if self._chance.fraction() < 0.75:
            lines += life.lines(1 + int(self._chance.fraction() * 150))
            lines += life.lines_for(self._chance.fraction() * 0.01)
        else:
            lines += life.lines_for(self._chance.fraction() * 0.05)
        life.kill()
        self._crashed(life, lines)

    def crash_until(self, *sights: str) -> None:
        """Kill further lives by chance until all of this was seen: how far a life comes is up to the machine."""
        lives_max = self._lives + LIVES_MAX
        while not all(self.seen[each] for each in sights):
            assert self._lives < lives_max, f"{self._told}: {sights} did not all happen: {self.seen}"
            self.crash_somewhere()

    def crash_at(self, point: str, reached: int, *, orders: int | None = None) -> None:
        """A life that kills itself when it comes to a point; with so many orders also at its own end."""
        life = self._start(orders=orders, die_at=At(point, reached))
        self._crashed(life, [])

    def close(self, *, orders: int) -> None:
        """A life that takes orders, and is closed while they are on their way."""
        life = self._start(orders=orders)
        self._ended(life)

    def finish(self, *, patience_s: float = PATIENCE_S) -> None:
        """A life that nobody kills, until everything has come to rest."""
        life = self._start(orders=0, patience_s=patience_s)
        audit = self._ended(life)
        problems = audit.problems_at_the_end()
        unknown = self._asked.keys() - self._acknowledged.keys() - self._refused
        problems += [f"{operation} was never answered" for operation in unknown]
        assert not problems, f"{self._told}: {problems}"
        self.seen["workflows"] += len(audit.workflows)
        for kept in audit.workflows.values():
            self.seen[kept.state] += 1

    def finish_until(self, *ends: str) -> None:
        """Finish, with further lives before it until orders have come to all of these ends: it is up to chance."""
        lives_max = self._lives + LIVES_MAX
        self.finish()
        while not all(self.seen[each] for each in ends):
            assert self._lives < lives_max, f"{self._told}: {ends} did not all happen: {self.seen}"
            self.close(orders=ORDERS_MORE)
            self.finish()

    def _start(self, *, orders: int | None = None, patience_s: float = 0, die_at: At | None = None) -> Process:
        self._lives += 1
        unknown = [each for each in self._asked if each not in self._acknowledged and each not in self._refused]
        known = list(self._acknowledged)
        again = {known[int(self._chance.fraction() * len(known))]: None for _ in range(AGAIN)} if known else {}
        return self._processes.start(
            "tests.crash.engine.workload:live",
            self._site.url,
            self._site.cache,
            str(self._books),
            self._seed,
            self._lives,
            [*again, *unknown],
            orders,
            patience_s,
            self._sabotaged,
            die_at=die_at,
        )

    def _crashed(self, life: Process, lines: Iterable[str]) -> None:
        lines = [*lines, *life.lines()]
        assert not any(line.startswith("!") for line in lines), "\n".join([self._told, *lines[-40:]])
        ended = life.end()
        life.close()
        assert ended == -9, f"{self._told}: it ended by itself, so it was not killed: {lines[-3:]}"
        self.crashes += 1
        self._site.crashed()
        self._examine(lines)

    def _ended(self, life: Process) -> Audit:
        lines = list(life.lines())
        assert life.end() == 0, self._told
        life.close()
        assert lines[-1] == "closed", self._told
        return self._examine(lines)

    def _examine(self, lines: Iterable[str]) -> Audit:
        problems = [problem for line in lines for problem in self._heard(line)]
        self._copies.mkdir()
        try:
            audit = Audit(self._site.copy(self._copies), Books(lines_of(self._books)))
        finally:
            shutil.rmtree(self._copies)
        problems += [*audit.problems(), *self._missing(audit), *self._changed(audit)]
        assert not problems, f"{self._told}, life {self._lives}: {problems[:20]}"
        self._applied = audit.keys()
        self.seen["under way"] += sum(
            1 for kept in audit.workflows.values() if kept.owed.run is not None and kept.owed.run.started
        )
        self.seen["taken back"] = audit.books.taken_back
        self.seen["unwinding"] += sum(1 for kept in audit.workflows.values() if kept.owed.undos)
        self.seen["effects"] += len(audit.effects)
        self.seen["timers"] += sum(1 for kept in audit.workflows.values() if kept.owed.timers)
        return audit

    def _heard(self, line: str) -> list[str]:
        """Note what a life has said; returns what it should not have said."""
        kind, _, rest = line.partition(" ")
        wrong: list[str] = []
        if kind == "+":
            wrong = self._answered(*rest.rsplit(" ", 3))
        elif kind == "?":
            self._asked[rest] = None
        elif kind == "x":
            operation, _, _code = rest.rpartition(" ")
            self._refused.add(operation)
            if operation in self._acknowledged:
                wrong = [f"{operation} was acknowledged, and is now refused"]
        elif line not in {"opened", "closed"}:
            wrong = [line]
        return wrong

    def _answered(self, operation: str, version: str, state: str, how: str) -> list[str]:
        self.seen[how] += 1
        answer = (int(version), state, how)
        before = self._acknowledged.setdefault(operation, answer)
        what, workflow, key = operation.split(" ")
        applied = self._applied.get(workflow, {}).get(key)
        if what == "start" or how == "ignored":
            return []
        if applied is not None and (how != "duplicate" or int(version) != applied):
            return [f"{operation} was applied as version {applied}, and is answered {answer}"]
        if before is not answer and before[2] != "ignored" and (how != "duplicate" or answer[:2] != before[:2]):
            return [f"{operation} was answered {before}, and now {answer}"]
        if applied is None and before is answer and how == "duplicate":
            return [f"{operation} was never applied, and is answered as a duplicate"]
        return []

    def _missing(self, audit: Audit) -> Iterable[str]:
        """Whatever was acknowledged has to be there, as it was said."""
        keys = audit.keys()
        for operation, (version, state, how) in self._acknowledged.items():
            what, workflow, key = operation.split(" ")
            rows = audit.history.get(workflow, [])
            if len(rows) < version:
                yield f"{operation} was acknowledged as version {version}, and is gone"
            elif rows[version - 1].target != state:
                yield f"{operation} was acknowledged as {state}, and is {rows[version - 1].target}"
            elif what != "start" and how != "ignored" and keys[workflow].get(key) is None:
                yield f"{operation} was acknowledged, and its key is gone"

    def _changed(self, audit: Audit) -> Iterable[str]:
        """One idempotency key per run, for ever."""
        for run, key in audit.runs().items():
            if self._runs.setdefault(run, key) != key:
                yield f"the key of {run} was {self._runs[run]}, and is {key}"
