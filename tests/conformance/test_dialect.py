"""The dialect of lanes against a real PostgreSQL: the same statements, and every difference is a failure.

The scripts hold what is known to matter, the page of the documentation what is promised, and the generated statements
what nobody thought of. A lane may refuse a generated statement; it may never answer differently.
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import apsw
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.conformance.databases import Public, public_view
from tests.conformance.dialect import campaign, catalog, generated, generated_queries
from tests.conformance.dialect.mutants import mutants
from tests.conformance.engines import Lane, Outcome, Postgres, postgres_server, same
from tests.conformance.scripts import Step, read_page, read_script

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((Path(__file__).parent / "dialect").glob("*.sql"))
PAGE = ROOT / "docs" / "reference" / "sql.md"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as url, Postgres(url) as connection:
        yield connection


@pytest.fixture
def lane() -> Lane:
    return Lane()


def difference(step: Step, lane: Lane, there: Outcome) -> str | None:
    """What tells the dialect from PostgreSQL, declared types included, or nothing."""
    here = lane.run(step.sql, step.args)
    if step.refused:
        return None if here.refused else f"line {step.line}: not refused: {step.sql}\n    lane: {here}"
    if same(here, there, step.sql):
        return None
    return f"line {step.line}: {step.sql}\n    lane:     {here}\n    postgres: {there}"


def public_difference(step: Step, databases: Sequence[Public], there: Outcome) -> Iterator[str]:
    """What a caller of `Database` would notice: in memory, in a file, and on PostgreSQL, which refuses less."""
    for database in databases:
        if step.refused and database.database.engine == "postgres":
            continue
        here = database.run(step.sql, step.args)
        if step.refused and not here.refused:
            yield f"line {step.line}: not refused: {step.sql}\n    {database.database.url}: {here}"
        seen = public_view(there, step.sql)
        if here.changed is None:
            seen = replace(seen, changed=None)
        if not step.refused and not same(here, seen, step.sql):
            yield f"line {step.line}: {step.sql}\n    {database.database.url}: {here}\n    postgres: {there}"


def run(steps: list[Step], lane: Lane, postgres: Postgres, folder: Path) -> None:
    """The same statements on the dialect alone, on databases in memory, in a file and on PostgreSQL, and there bare."""
    postgres.undo()
    found: list[str] = []
    schema = f"{postgres.url}&schema=s{uuid.uuid4().hex}"
    with (
        Public(postgres.loop, "memory:") as memory,
        Public(postgres.loop, f"lanes://{folder}/conformance") as file,
        Public(postgres.loop, schema) as remote,
    ):
        for step in steps:
            there = Outcome() if step.refused else postgres.run(step.sql, step.args)
            found += [told for told in [difference(step, lane, there)] if told]
            found += public_difference(step, (memory, file, remote), there)
    assert steps
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.campaign
@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_a_script_has_the_same_outcome_everywhere(script: Path, lane: Lane, postgres: Postgres, tmp_path: Path) -> None:
    run(read_script(script), lane, postgres, tmp_path)


@pytest.mark.slow
def test_a_lane_runs_no_text_that_postgresql_cannot_parse(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two slips in each statement of the scripts; an exception that is neither ours nor SQLite's ends the test."""
    chance = Random(23)  # A failure names the text; the seed makes it the same text again.
    found: list[str] = []
    for script in SCRIPTS:
        lane, steps = Lane(), list(read_script(script))
        for place, step in enumerate(steps):
            for mutant in mutants(step.sql, chance, 2):
                lane.bound_steps()
                lane.connection.execute("SAVEPOINT mutant")
                try:
                    here = lane.run(mutant, step.args)
                except apsw.SQLError:
                    if lane.connection.in_transaction:
                        raise
                    lane = Lane()  # A write without end was interrupted, which has ended the whole transaction.
                    for earlier in steps[:place]:
                        lane.run(earlier.sql, earlier.args)
                    continue
                lane.connection.execute("ROLLBACK TO mutant")
                lane.connection.execute("RELEASE mutant")
                if not here.failed and not postgres.can_parse(mutant):
                    found.append(f"{script.name}, line {step.line}: {mutant}")
            lane.run(step.sql, step.args)
    assert not found, "\n".join(found)
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_drawn_statements_and_their_mutants_have_the_same_outcome(postgres: Postgres) -> None:
    """A small campaign with a fixed seed, in `make test`: about three seconds. `make proof-sql` runs a large one."""
    small = campaign.Campaign(postgres)
    campaign.run_drawn(small, 1, campaign.STATEMENTS, campaign.MUTANTS)
    assert not small.report.differences, small.report.write()
    assert small.report.counts["same"] > campaign.STATEMENTS / 3


def test_a_campaign_reports_the_smallest_difference_and_fails(
    postgres: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.sql").write_text("SELECT 1 AS one;\nSELECT 1 AS longer;\n-- refused\nSELECT 'a' ~ 'b';\n")
    assert campaign.main(["--scripts", str(tmp_path), "--url", postgres.url, "--seed", "7"]) == 0
    assert "seed 7" in capsys.readouterr().out
    monkeypatch.setattr(Lane, "_run", lambda *_: Outcome(((2,),), ("one",), ("int4",)))
    assert campaign.main(["--scripts", str(tmp_path), "--url", postgres.url]) == 1
    assert "differences; the smallest:\n  SELECT 1 AS one" in capsys.readouterr().out


def test_every_example_of_the_documentation_runs_everywhere(lane: Lane, postgres: Postgres, tmp_path: Path) -> None:
    steps = read_page(PAGE)
    run(steps, lane, postgres, tmp_path)
    again = Lane()
    wrongly = [step.sql for step in steps if again.run(step.sql, step.args).failed is not (step.fails or step.refused)]
    assert not wrongly


def test_the_catalog_is_that_of_postgresql(postgres: Postgres) -> None:
    """The rows by which a lane chooses among overloads. `python -m tests.conformance.dialect.catalog` writes them."""
    assert asyncio.run(catalog.rows(postgres.url)) == catalog.FILE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_character_has_the_case_and_the_classes_of_postgresql(postgres: Postgres) -> None:
    assert asyncio.run(catalog.letters(postgres.url)) == catalog.LETTERS.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables(postgres: Postgres) -> Iterator[tuple[Lane, Postgres]]:
    """Both engines with the table that generated statements are about."""
    lane = Lane()
    postgres.undo()
    for sql in generated.SETUP:
        assert not lane.run(sql).failed
        assert not postgres.run(sql).failed
    yield lane, postgres
    postgres.undo()


def compare(sql: str, tables: tuple[Lane, Postgres], *, strict: bool) -> tuple[Outcome, Outcome]:
    lane, postgres = tables
    here = lane.run(sql)
    assume(not here.refused)
    there = postgres.run(sql)
    # Neither engine promises in which order the parts of a condition are evaluated, nor whether all of them are.
    assume(strict or not (here.failed or there.failed))
    assert same(here, there, sql), f"{sql}\n    lane:     {here}\n    postgres: {there}"
    return here, there


# The list takes the place of the profile's, so what is too slow is named again.
loose = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]
)


@given(expression=generated.arithmetic)
@loose
def test_arithmetic_gives_the_same_values_and_the_same_errors(expression: str, tables: tuple[Lane, Postgres]) -> None:
    compare(f"SELECT id, {expression} AS value FROM t ORDER BY id", tables, strict=True)


@given(expression=generated.arithmetic, key=st.integers(1, 6))
@loose
def test_arithmetic_on_one_row_fails_exactly_where_it_should(
    expression: str, key: int, tables: tuple[Lane, Postgres]
) -> None:
    compare(f"SELECT {expression} AS value FROM t WHERE id = {key}", tables, strict=True)


@given(expression=generated.computed, key=st.integers(1, 6))
@loose
def test_text_moments_documents_and_arrays_are_computed_the_same(
    expression: str, key: int, tables: tuple[Lane, Postgres]
) -> None:
    # One row, so that an error belongs to it on both engines. PostgreSQL computes with constants before it runs, and
    # then leaves out what would have failed beside a NULL.
    compare(f"SELECT {expression} AS value FROM t WHERE id = {key}", tables, strict="::jsonb" not in expression)


@given(condition=generated.conditions)
@loose
def test_conditions_choose_the_same_rows(condition: str, tables: tuple[Lane, Postgres]) -> None:
    compare(f"SELECT id FROM t WHERE {condition} ORDER BY id", tables, strict=False)


@pytest.mark.slow
@given(soup=generated.operator_soup | generated.other_soup)
@loose
def test_operators_bind_as_they_do_in_postgresql(soup: str, tables: tuple[Lane, Postgres]) -> None:
    compare(f"SELECT id, {soup} AS value FROM t ORDER BY id", tables, strict=False)


@given(update=generated.updates)
@loose
def test_updates_leave_the_same_rows(update: str, tables: tuple[Lane, Postgres]) -> None:
    lane, postgres = tables
    lane.connection.execute("SAVEPOINT example")
    postgres.execute("SAVEPOINT example")
    try:
        # Neither engine promises the order of a condition's parts.
        compare(update, tables, strict=not {"CASE", "BETWEEN", "AND", "OR"} & set(update.split()))
        compare("SELECT * FROM t ORDER BY id", tables, strict=True)
    finally:
        lane.connection.execute("ROLLBACK TO example")
        postgres.execute("ROLLBACK TO example")


@given(query=generated.aggregates)
@loose
def test_aggregates_agree(query: str, tables: tuple[Lane, Postgres]) -> None:
    compare(query, tables, strict=True)


@pytest.fixture(scope="module")
def both_tables(tables: tuple[Lane, Postgres]) -> tuple[Lane, Postgres]:
    """Both engines with the second table, too."""
    lane, postgres = tables
    for sql in generated_queries.SETUP:
        assert not lane.run(sql).failed
        assert not postgres.run(sql).failed
    return tables


@given(query=generated_queries.joins)
@loose
def test_joins_give_the_same_rows(query: str, both_tables: tuple[Lane, Postgres]) -> None:
    compare(query, both_tables, strict=True)


@given(query=generated_queries.windows)
@loose
def test_windows_give_the_same_values(query: str, both_tables: tuple[Lane, Postgres]) -> None:
    compare(query, both_tables, strict=True)


@given(query=generated_queries.subqueries)
@loose
def test_subqueries_give_the_same_values_and_the_same_errors(query: str, both_tables: tuple[Lane, Postgres]) -> None:
    # Which of two conditions is asked first is nobody's promise, and one of them may fail.
    compare(query, both_tables, strict=" OR " not in query)


@given(change=generated_queries.changes)
@loose
def test_changes_with_the_help_of_other_rows_leave_the_same_rows(
    change: str, both_tables: tuple[Lane, Postgres]
) -> None:
    lane, postgres = both_tables
    lane.connection.execute("SAVEPOINT example")
    postgres.execute("SAVEPOINT example")
    try:
        compare(change, both_tables, strict="SELECT" not in change.partition(" WHERE ")[2])
        compare("SELECT * FROM t ORDER BY id", both_tables, strict=True)
        compare("SELECT * FROM u ORDER BY id", both_tables, strict=True)
    finally:
        lane.connection.execute("ROLLBACK TO example")
        postgres.execute("ROLLBACK TO example")


@given(query=generated_queries.rows | generated_queries.set_operations | generated_queries.numeric_unions)
@loose
def test_rows_and_set_operations_agree(query: str, both_tables: tuple[Lane, Postgres]) -> None:
    compare(query, both_tables, strict=True)
