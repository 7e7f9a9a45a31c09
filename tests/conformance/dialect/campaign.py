"""Compares a lane with a PostgreSQL, statement by statement.

    python -m tests.conformance.dialect.campaign [--statements N] [--mutants N] [--seed S] [--scripts FOLDER]

Statements are drawn by chance (`drawn`), mutants are drawn statements with one token changed, and `--scripts` takes the
.sql files of a folder instead. A lane may refuse a statement. The run fails on any difference in names, types, values,
order, row counts or the tables after a change; on anything that a lane accepts and PostgreSQL cannot parse; and on any
exception that is neither DialectError nor TransactionError.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from interlock.errors import DialectError, TransactionError
from tests.conformance.dialect import drawn
from tests.conformance.dialect.drawn import Drawn
from tests.conformance.dialect.mutants import mutants
from tests.conformance.engines import Lane, Outcome, Postgres, postgres_server, same
from tests.conformance.scripts import read_script

STATEMENTS: Final = 2_000
MUTANTS: Final = 1_000
SHOWN: Final = 300
_STATE: Final = ("SELECT * FROM b ORDER BY id", "SELECT * FROM c ORDER BY id")
_CHANGES_KEPT: Final = 20
"""After this many changes both engines go back to the first rows."""

_BEFORE_RUNNING: Final = ("42", "0A", "54")
"""Classes of PostgreSQL's errors that do not depend on which rows and parts are evaluated."""

_OF_SQLITE: Final = ("ON CONFLICT clause does not match", "integer overflow")
"""What SQLite itself says where PostgreSQL fails, too; a caller gets a TransactionError."""

_DATA: Final = "22"
"""The class of errors in values."""

_BY_CHANCE: Final = re.compile(
    r"\b(?:LIMIT|OFFSET|FETCH|OVER|DISTINCT ON|random|now|uuid\w*|\w+_uuid|\w+_agg|\w+_timestamp|current_\w+"
    r"|localtime\w*|float8|first_value|last_value)\b",
    re.IGNORECASE,
)
"""Mutants whose rows may depend on an order that neither engine promises."""


@dataclass
class Report:
    """The counts of a run and the differences it found."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[str, str]] = field(default_factory=list)
    """Each as the statement and what was seen."""

    def write(self) -> str:
        """Return the counts and the smallest difference."""
        lines = [", ".join(f"{name}: {count:,}" for name, count in sorted(self.counts.items()))]
        if self.differences:
            sql, seen = min(self.differences, key=lambda pair: len(pair[0]))
            lines.append(f"{len(self.differences):,} differences; the smallest:\n  {sql}\n{seen}")
        return "\n".join(lines)


class Campaign:
    """Both engines with the same tables, and the report."""

    def __init__(self, postgres: Postgres, *, verbose: bool = False) -> None:
        self.postgres = postgres
        self.lane = Lane()
        self.report = Report()
        self.verbose = verbose
        self.changes = 0

    def prepare(self) -> None:
        """Make the tables of drawn statements on both engines."""
        self.postgres.undo()
        for sql in drawn.setup():
            for engine in (self.lane, self.postgres):
                outcome = engine.run(sql)
                assert not outcome.failed, f"{sql}: {outcome.error}"
        self._both("SAVEPOINT campaign")

    def _both(self, sql: str) -> None:
        self.lane.connection.execute(sql)
        self.postgres.execute(sql)

    def compare(self, item: Drawn, args: Sequence[object] = (), *, mutant: bool = False) -> None:
        """Run the statement on both engines and count the outcome."""
        here = self._lane_outcome(item.sql, args)
        if here is None:
            return
        if here.refused:
            self.report.counts["refused"] += 1
            return
        there = self.postgres.run(item.sql, args)
        # PostgreSQL computes with constants first, so an invalid one is found before a broken constraint.
        if here.failed and there.failed and (here.violated == there.violated or there.code[:2] == _DATA):
            self.report.counts["both failed"] += 1
        elif _agree(here, there, item):
            self.report.counts["same"] += 1
        elif here.failed != there.failed and _is_open(here, there, item):
            self.report.counts["order of evaluation left open"] += 1
        else:
            self._note(item.sql, f"    lane:     {_cut(here)}\n    postgres: {_cut(there)}")
        if item.changes and not mutant and not here.failed:
            self._compare_state(item.sql)

    def _lane_outcome(self, sql: str, args: Sequence[object]) -> Outcome | None:
        try:
            here = self.lane.run(sql, args)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what the campaign looks for
            self._restore_lane()
            self._note(sql, f"    lane raised {type(error).__name__}: {error}")
            return None
        if any(known in here.error for known in _OF_SQLITE):
            return replace(here, kind=TransactionError)
        if here.failed and not issubclass(here.kind or TransactionError, (DialectError, TransactionError)):
            self._note(sql, f"    lane raised {here.kind}: {here.error}")
            return None
        return here

    def _restore_lane(self) -> None:
        self.lane.connection.execute("ROLLBACK TO statement")
        self.lane.connection.execute("RELEASE statement")

    def _compare_state(self, sql: str) -> None:
        for query in _STATE:
            here, there = self.lane.run(query), self.postgres.run(query)
            if not same(here, there, query):
                self._note(sql, f"  and then {query}\n    lane:     {_cut(here)}\n    postgres: {_cut(there)}")
                self.changes = _CHANGES_KEPT
        self.changes += 1
        if self.changes >= _CHANGES_KEPT:
            self.changes = 0
            self._both("ROLLBACK TO SAVEPOINT campaign")

    def mutate(self, sql: str, chance: Random, count: int) -> None:
        """Run mutants of the statement; what both engines accept is compared, and then taken back."""
        for mutant in mutants(sql, chance, count):
            self._both("SAVEPOINT mutant")
            here = self._lane_outcome(mutant, ())
            if here is not None:
                self._count_mutant(mutant, here)
            self._both("ROLLBACK TO SAVEPOINT mutant")
            self._both("RELEASE SAVEPOINT mutant")

    def _count_mutant(self, mutant: str, here: Outcome) -> None:
        if here.refused:
            self.report.counts["mutants refused"] += 1
            return
        there = self.postgres.run(mutant)
        item = Drawn(mutant, 0, open_order=True)
        if here.failed and there.failed:
            self.report.counts["mutants both failed"] += 1
        elif _agree(here, there, item) or (here.failed != there.failed and _is_open(here, there, item)):
            self.report.counts["mutants same"] += 1
        elif not here.failed and not there.failed and _BY_CHANCE.search(mutant) and _alike(here, there):
            self.report.counts["mutants by chance"] += 1
        else:
            self._note(mutant, f"    lane:     {_cut(here)}\n    postgres: {_cut(there)}")

    def _note(self, sql: str, seen: str) -> None:
        self.report.counts["different"] += 1
        self.report.differences.append((sql, seen))
        if self.verbose:
            _say(f"{sql}\n{seen}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _cut(outcome: Outcome) -> str:
    text = outcome.error or f"{outcome.names} {outcome.types} {outcome.changed} {outcome.rows}"
    return f"{'failed: ' if outcome.failed else ''}{text}"[:SHOWN]


def _agree(here: Outcome, there: Outcome, item: Drawn) -> bool:
    """Whether the rows are the same, and in the same order as far as ORDER BY fixes it."""
    # SQLite has no negative zero, so its text has no sign either.
    there = replace(there, rows=tuple(tuple("0" if cell == "-0" else cell for cell in row) for row in there.rows))
    if here.comparable(ordered=False) != there.comparable(ordered=False):
        return False
    if item.keys == 0:
        return True
    left, right = here.comparable(ordered=True).rows, there.comparable(ordered=True).rows
    return [row[: item.keys] for row in left] == [row[: item.keys] for row in right]


def _alike(here: Outcome, there: Outcome) -> bool:
    return replace(here, rows=()) == replace(there, rows=())


def _is_open(here: Outcome, there: Outcome, item: Drawn) -> bool:
    """Whether one engine may have computed what the other one left out: then one alone fails, while it runs.

    PostgreSQL computes with constants before it runs, and leaves out the rest beside a NULL.
    """
    if there.code[:2] == _DATA and not here.failed and not here.rows and not here.changed:
        return True  # Without a row nothing is computed, except for constants.
    if not (item.open_order or "NULL" in item.sql):
        return False
    return here.running if here.failed else there.code[:2] not in _BEFORE_RUNNING and not there.violated


def run_drawn(campaign: Campaign, seed: int, statements: int, mutants_count: int) -> None:
    """Draw statements, then mutants of further ones."""
    campaign.prepare()
    for number in range(statements):
        chance = Random(f"{seed}/{number}")  # Each statement can be drawn again alone.
        campaign.compare(drawn.statement(chance))
    for number in range((mutants_count + 1) // 2):
        chance = Random(f"{seed}/mutant/{number}")
        campaign.mutate(drawn.statement(chance).sql, chance, min(2, mutants_count - 2 * number))


def run_scripts(campaign: Campaign, folder: Path) -> None:
    """Run every script of a folder from empty tables."""
    files = sorted(folder.glob("*.sql"))
    if not files:
        raise SystemExit(f"{folder} has no .sql files")
    for file in files:
        campaign.postgres.undo()
        campaign.lane = Lane()
        for step in read_script(file):
            ordered = "order by" in step.sql.lower()
            campaign.compare(Drawn(step.sql, None if ordered else 0), step.args)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a campaign; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="campaign", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="drawn statements")
    parser.add_argument("--mutants", type=int, default=MUTANTS, help="mutants of drawn statements")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--scripts", type=Path, default=None, help="run the .sql files of this folder instead")
    parser.add_argument("--url", default=None, help="an empty database of PostgreSQL 18; default: a server of its own")
    parser.add_argument("--verbose", action="store_true", help="print every difference")
    options = parser.parse_args(argv)
    seed = Random().randrange(10**9) if options.seed is None else options.seed
    _say(f"seed {seed}")
    server = postgres_server() if options.url is None else nullcontext(options.url)
    with server as url, Postgres(url) as postgres:
        campaign = Campaign(postgres, verbose=options.verbose)
        if options.scripts is not None:
            run_scripts(campaign, options.scripts)
        else:
            run_drawn(campaign, seed, options.statements, options.mutants)
    _say(campaign.report.write())
    return 1 if campaign.report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
