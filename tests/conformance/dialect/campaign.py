"""Compares a lane with a PostgreSQL, statement by statement.

    python -m tests.conformance.dialect.campaign [--statements N] [--mutants N] [--seed S] [--scripts FOLDER]

Statements are drawn by chance (`drawn`), mutants are drawn statements with one token changed, and `--scripts` takes the
scripts of a folder instead (`replay`): each starts from empty tables, what differs is taken back, and the report
ends with the reasons of refusals. A lane may refuse a statement. The run fails on any difference in names, types,
values, order, row counts or the tables after a change; on anything that a lane accepts and PostgreSQL does not; and on
any exception that is neither DialectError nor TransactionError.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Final

import apsw

from interlock.errors import DialectError, TransactionError
from tests.conformance.dialect import drawn
from tests.conformance.dialect.drawn import Drawn
from tests.conformance.dialect.mutants import mutants
from tests.conformance.dialect.replay import (
    SUFFIXES,
    agree,
    parsed,
    read_statements,
    script_files,
    sort_columns,
    table_query,
    time_limit,
)
from tests.conformance.engines import LOOKS_MAX, Lane, Outcome, Postgres, postgres_server, same

STATEMENTS: Final = 2_000
MUTANTS: Final = 1_000
SHOWN: Final = 300
REASONS: Final = 20
"""Of refusals in the report."""

SECONDS_MAX: Final = 20
"""For one statement of a script, on each engine."""

_STATE: Final = ("SELECT * FROM b ORDER BY id", "SELECT * FROM c ORDER BY id")
_CHANGES_KEPT: Final = 20
"""After this many changes both engines go back to the first rows."""

_BEFORE_RUNNING: Final = ("42", "0A", "54")
"""Classes of PostgreSQL's errors that do not depend on which rows and parts are evaluated."""

_OF_SQLITE: Final = ("ON CONFLICT clause does not match", "integer overflow", "no such index", "already ")
"""What SQLite itself says where PostgreSQL fails, too; a caller gets a TransactionError."""

_VALUE_REFUSED: Final = re.compile(r"\$\d+ must be ")
"""A lane takes values of a parameter's own type; the driver of PostgreSQL converts some, a Decimal to a float."""

_BEFORE_ROWS: Final = "ON CONFLICT DO UPDATE was given two rows with the key"
"""A lane finds it before the first row changes, PostgreSQL when it comes to the row: another error may come first."""

_DUPLICATE: Final = "23505"
_DATA: Final = "22"
"""The class of errors in values."""

_UNIT: Final = "not supported for type interval"
"""An error in a value, although PostgreSQL gives it the class of what it does not have."""

_OF_ROWS: Final = ("21", "23")
"""The classes of errors that a row brings: a row that is changed twice, and broken constraints."""

_BY_CHANCE: Final = re.compile(
    r"\b(?:LIMIT|OFFSET|FETCH|OVER|DISTINCT ON|random|now|uuid\w*|\w+_uuid|\w+_agg|\w+_timestamp|current_\w+"
    r"|localtime\w*|float8|first_value|last_value)\b",
    re.IGNORECASE,
)
"""Mutants whose rows may depend on an order that neither engine promises."""


_RANDOM: Final = re.compile(r"random|uuid", re.IGNORECASE)
_QUOTED: Final = re.compile(r"'[^']*'|[0-9]+")
_LOOKS_OF_SCRIPTS: Final = 20 * LOOKS_MAX
_NOT_COMPARED: Final = ("57014", "25001", "55006")
"""Ended after `SECONDS_MAX`; not possible inside the transaction of a script."""


@dataclass
class Report:
    """The counts of a run and the differences it found."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[str, str]] = field(default_factory=list)
    """Each as the statement and what was seen."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why statements of scripts were refused."""

    def write(self) -> str:
        """Return the counts, the most frequent reasons and the smallest difference."""
        lines = [", ".join(f"{name}: {count:,}" for name, count in sorted(self.counts.items()))]
        lines += [f"  {count:,} refused: {reason}" for reason, count in self.reasons.most_common(REASONS)]
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
        self.chance = False
        """Whether a script has used what is random, so that its tables may differ."""

    def prepare(self) -> None:
        """Make the tables of drawn statements on both engines."""
        self.restart()
        for sql in drawn.setup():
            for engine in (self.lane, self.postgres):
                outcome = engine.run(sql)
                assert not outcome.failed, f"{sql}: {outcome.error}"
        self._both("SAVEPOINT campaign")

    def restart(self) -> None:
        """Take back everything; a new lane has the time of PostgreSQL's transaction."""
        self.postgres.undo()
        [[now]] = self.postgres.run("SELECT now()").rows
        assert isinstance(now, datetime)
        self.lane, self.chance = Lane(now), False

    def _both(self, sql: str) -> None:
        self.lane.connection.execute(sql)
        self.postgres.execute(sql)

    def compare(self, item: Drawn, args: Sequence[object] = (), *, mutant: bool = False) -> None:
        """Run the statement on both engines and count the outcome."""
        here = self._lane_outcome(item.sql, args)
        if here is None:
            return
        if here.refused or _VALUE_REFUSED.match(here.error):
            self.report.counts["refused"] += 1
            return
        there = self.postgres.run(item.sql, args)
        # PostgreSQL computes with constants first, so an invalid one is found before a broken constraint.
        is_same_kind = (
            here.violated == there.violated
            or there.code[:2] == _DATA
            or (_BEFORE_ROWS in here.error and there.code[:2] in _OF_ROWS)
        )
        if here.failed and there.failed and is_same_kind:
            self.report.counts["both failed"] += 1
        elif _agree(here, there, item):
            self.report.counts["same"] += 1
        elif here.failed != there.failed and _is_open(here, there, item):
            self.report.counts["order of evaluation left open"] += 1
            if item.changes:
                self._take_back()
                return
        else:
            self._note(item.sql, f"    lane:     {_cut(here)}\n    postgres: {_cut(there)}")
            if item.changes:
                self._take_back()
                return
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
            self._take_back()

    def _take_back(self) -> None:
        self.changes = 0
        self._both("ROLLBACK TO SAVEPOINT campaign")

    def mutate(self, item: Drawn, chance: Random, count: int) -> None:
        """Run mutants of the statement; what both engines accept is compared, and then taken back."""
        for mutant in mutants(item.sql, chance, count):
            self._both("SAVEPOINT mutant")
            here = self._lane_outcome(mutant, item.args)
            if here is not None:
                self._count_mutant(Drawn(mutant, 0, open_order=True, args=item.args), here)
            self._both("ROLLBACK TO SAVEPOINT mutant")
            self._both("RELEASE SAVEPOINT mutant")

    def _count_mutant(self, item: Drawn, here: Outcome) -> None:
        if here.refused or _VALUE_REFUSED.match(here.error):
            self.report.counts["mutants refused"] += 1
            return
        mutant = item.sql
        there = self.postgres.run(mutant, item.args)
        if here.failed and there.failed:
            self.report.counts["mutants both failed"] += 1
        elif _agree(here, there, item) or (here.failed != there.failed and _is_open(here, there, item)):
            self.report.counts["mutants same"] += 1
        elif not here.failed and not there.failed and _BY_CHANCE.search(mutant) and _alike(here, there):
            self.report.counts["mutants by chance"] += 1
        else:
            self._note(mutant, f"    lane:     {_cut(here)}\n    postgres: {_cut(there)}")

    def replay(self, sql: str) -> None:
        """Run one statement of a script; what differs is taken back on both engines."""
        self._both("SAVEPOINT script")
        mark = self.lane.positions.mark
        before = len(self.report.differences) + self.report.counts["not compared"]
        self._replay(sql)
        if len(self.report.differences) + self.report.counts["not compared"] > before:
            self._both("ROLLBACK TO SAVEPOINT script")
            self.lane.positions.undo(mark)
        self._both("RELEASE SAVEPOINT script")

    def _replay(self, sql: str) -> None:
        self.chance = self.chance or _RANDOM.search(sql) is not None
        self.lane.bound_steps(_LOOKS_OF_SCRIPTS)
        with time_limit(SECONDS_MAX):
            here = self._lane_outcome(sql, ())
        if here is None:
            return
        if here.refused:
            self.report.counts["refused"] += 1
            self.report.reasons[_QUOTED.sub("…", here.error.partition("\n")[0])] += 1
            return
        kind, body = parsed(sql)
        there = self.postgres.run(sql)
        if there.code in _NOT_COMPARED or (here.failed and "interrupted" in here.error):
            self.report.counts["not compared"] += 1
            return
        columns = sort_columns(body, there.names) if kind == "SelectStmt" and here.names == there.names else []
        if here.failed and there.failed:
            self.report.counts["both failed"] += 1
        elif agree(here, there, columns) or (kind == "ExplainStmt" and _alike(here, there)):
            self.report.counts["same"] += 1
        elif (self.chance or _BY_CHANCE.search(sql)) and _alike(here, there) and len(here.rows) == len(there.rows):
            self.report.counts["by chance"] += 1
        else:
            self._note(sql, f"    lane:     {_cut(here)}\n    postgres: {_cut(there)}")
        query = None if here.failed else table_query(kind, body)
        if query is not None and not self.chance:
            here, there = self.lane.run(query), self.postgres.run(query)
            if not agree(here, there, []):
                self._note(sql, f"  and then {query}\n    lane:     {_cut(here)}\n    postgres: {_cut(there)}")

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
    is_signed = any(isinstance(cell, str) and _NEGATIVE_ZERO.search(cell) for row in there.rows for cell in row)
    written, there = there, replace(there, rows=tuple(tuple(map(_unsigned, row)) for row in there.rows))
    if _ONE_OF_EQUALS.search(item.sql):
        # Neither engine promises which of two equal numbers with different scales stands for both, or comes first.
        here, there = (replace(each, rows=tuple(map(_normal, each.rows))) for each in (here, there))
    if here.comparable(ordered=False) not in (written.comparable(ordered=False), there.comparable(ordered=False)):
        return False
    if item.keys == 0 or is_signed:
        return True
    # Equal numbers with different scales are equal keys, so either may come first.
    left, right = (
        replace(each, rows=tuple(map(_normal, each.rows))).comparable(ordered=True).rows for each in (here, there)
    )
    return [row[: item.keys] for row in left] == [row[: item.keys] for row in right]


_ONE_OF_EQUALS: Final = re.compile(r"INTERSECT| LIMIT | OFFSET ")
_NEGATIVE_ZERO: Final = re.compile(r"-0(?![0-9.])|^-0(?=[0-9])(?![0-9]:)")
"""Also before another text, to which concat() joins it; an interval may begin with -00:."""


def _unsigned(cell: object) -> object:
    return _NEGATIVE_ZERO.sub("0", cell) if isinstance(cell, str) else cell


def _normal(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(cell.normalize() if isinstance(cell, Decimal) else cell for cell in row)


def _alike(here: Outcome, there: Outcome) -> bool:
    return replace(here, rows=()) == replace(there, rows=())


def _is_open(here: Outcome, there: Outcome, item: Drawn) -> bool:
    """Whether one engine may have computed what the other one left out: then one alone fails, while it runs.

    PostgreSQL computes with constants before it runs, and leaves out the rest beside a NULL.
    """
    is_in_data = there.code[:2] == _DATA or _UNIT in there.error
    if is_in_data and not here.failed and not here.rows and not here.changed:
        return True  # Without a row nothing is computed, except for constants.
    if here.failed and here.running and _has_nulls(there):
        return True  # A constant NULL may be hidden in a call.
    is_duplicate = there.code == _DUPLICATE or (here.violated and "UNIQUE" in here.error)
    if is_duplicate and item.sql.lstrip().startswith(("UPDATE", "WITH")):
        return True  # A key that another row is about to leave: it depends on which row is changed first.
    if not (item.open_order or "NULL" in item.sql):
        return False
    return here.running if here.failed else there.code[:2] not in _BEFORE_RUNNING and not there.violated


def _has_nulls(outcome: Outcome) -> bool:
    """Whether a column is NULL in every row."""
    return any(all(cell is None for cell in column) for column in zip(*outcome.rows, strict=True))


def run_drawn(campaign: Campaign, seed: int, statements: int, mutants_count: int) -> None:
    """Draw statements, then mutants of further ones."""
    campaign.prepare()
    for number in range(statements):
        chance = Random(f"{seed}/{number}")  # Each statement can be drawn again alone.
        item = drawn.statement(chance)
        campaign.compare(item, item.args)
    for number in range((mutants_count + 1) // 2):
        chance = Random(f"{seed}/mutant/{number}")
        item = drawn.statement(chance)
        campaign.mutate(item, chance, min(2, mutants_count - 2 * number))


def run_scripts(campaign: Campaign, folder: Path) -> None:
    """Run every script of a folder from empty tables; both engines have the time of PostgreSQL's transaction."""
    files = script_files(folder)
    if not files:
        raise SystemExit(f"{folder} has no scripts ({', '.join(sorted(SUFFIXES))})")
    campaign.postgres.execute(f"COMMIT; SET statement_timeout = {SECONDS_MAX * 1000}; BEGIN")
    for file in files:
        campaign.restart()
        if campaign.verbose:
            _say(f"-- {file}")
        try:
            for sql in read_statements(file):
                campaign.replay(sql)
        except apsw.Error:  # A change that ran too long took the whole transaction with it.
            campaign.report.counts["scripts left early"] += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run a campaign; return 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="campaign", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="drawn statements")
    parser.add_argument("--mutants", type=int, default=MUTANTS, help="mutants of drawn statements")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--scripts", type=Path, default=None, help="run the scripts below this folder instead")
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
