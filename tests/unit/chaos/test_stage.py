"""A scenario's own things, where they are."""

from pathlib import Path

from interlock.chaos.database_servers import OwnPostgres
from interlock.chaos.scenario import ScenarioLoad, Servers, Stage
from interlock.testing.faults import Processes
from interlock.urls import STATEMENT_TIMEOUT_S, parse_postgres_url


def test_the_audit_has_more_time_than_a_worker_for_the_same_schema(tmp_path: Path) -> None:
    """A server that stands still for a moment when everything is over has broken no promise."""
    postgres = OwnPostgres(tmp_path)
    try:
        stage = Stage("kill-postgres", tmp_path, Servers(postgres, None), ScenarioLoad(), Processes())
        audit, worker, over_a_wire = map(
            parse_postgres_url, (stage.audit_url, stage.schema(), stage.schema("postgresql://a:b@c:1/d"))
        )
    finally:
        postgres.close()
    assert audit.schema == worker.schema == over_a_wire.schema == "chaos_kill_postgres"
    assert worker.statement_timeout_s < audit.statement_timeout_s == STATEMENT_TIMEOUT_S
    assert "@c:1/d" in over_a_wire.url
