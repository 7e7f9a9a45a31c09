"""What chaos has left in PostgreSQL, read without any engine's memory; and a dump of it.

The checks are those of the crash tests (`tests.crash.engine.audit`); here is how the tables are read, and what the
customers were told.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import asyncpg
import msgspec

from interlock.chaos.shop import LoggedCall
from interlock.chaos.worker_messages import Operation
from interlock.engine.bound_machine import decode_attempts, decode_owed
from tests.chaos.postgres.customers import Answer
from tests.crash.engine.audit import Audit, Happened, Kept
from tests.crash.engine.gateway import Books

WORKFLOWS = "SELECT id, state, version, visit, context::text, owed FROM workflows"
HISTORY = """
SELECT workflow_id, version, from_state, to_state, event, coalesce(payload::text, ''), key,
    (extract(epoch FROM created_at) * 1000000)::bigint
FROM workflow_events ORDER BY workflow_id, version"""
ATTEMPTS = "SELECT workflow_id, attempts FROM workflow_events WHERE attempts IS NOT NULL ORDER BY workflow_id, version"

LEFT = """SELECT count(*) FROM workflows WHERE active OR wake_at IS NOT NULL"""
EFFECTS = "SELECT count(*) FROM workflow_effects"

DUMP = {
    "workflows that are not at rest": """
        SELECT id, state, version, visit, wake_at - now() AS wake, lease_owner, lease_until - now() AS lease,
            lease_token, revision, encode(owed, 'escape') AS owed
        FROM workflows WHERE active OR wake_at IS NOT NULL ORDER BY wake_at LIMIT 40""",
    "effects that are owed": """
        SELECT id, workflow_id, version, attempts, wake_at - now() AS wake, lease_owner, lease_until - now() AS lease
        FROM workflow_effects ORDER BY wake_at LIMIT 40""",
    "dead letters": "SELECT kind, workflow_id, name, attempts, error FROM dead_letters LIMIT 20",
    "connections": """
        SELECT pid, usename, application_name, state, wait_event_type, wait_event, now() - xact_start AS transaction,
            now() - query_start AS running, left(query, 80) AS query
        FROM pg_stat_activity WHERE backend_type = 'client backend'""",
}


Answers = Mapping[str, tuple[Operation, Answer]]


class ChaosAudit(Audit):
    """The tables at one moment, beside the books of the gateway and the answers that were given."""

    def __init__(self, books: Books, answers: Answers) -> None:
        self.books = books
        self.sound = "ok"
        self._answers = answers
        self.workflows = {}
        self.history = defaultdict(list)
        self.attempts = defaultdict(list)

    @staticmethod
    async def of(connection: asyncpg.Connection, lines: Sequence[LoggedCall], answers: Answers) -> "ChaosAudit":
        """Read everything."""
        audit = ChaosAudit(Books(lines), answers)
        for number, state, version, visit, context, owed in await connection.fetch(WORKFLOWS):
            read = msgspec.json.decode(str(context), type=dict[str, object])
            texts = {name: str(value) for name, value in read.items()}
            audit.workflows[number] = Kept(state, version, visit, texts, decode_owed(owed))
        for number, *values in await connection.fetch(HISTORY):
            audit.history[number].append(Happened(*values))
        for number, attempts in await connection.fetch(ATTEMPTS):
            audit.attempts[number] += decode_attempts(attempts or b"")
        for number, kept in audit.workflows.items():
            audit.attempts[number] += kept.owed.tried
        effects = await connection.fetch("SELECT id, workflow_id, version FROM workflow_effects")
        audit.effects = {key: (number, version) for key, number, version in effects}
        audit.letters = [tuple(row) for row in await connection.fetch(DUMP["dead letters"])]
        return audit

    def missing(self) -> Iterable[str]:
        """Whatever was acknowledged has to be there, as it was said, once (G2)."""
        found = self.keys()
        for key, (operation, (version, state, how)) in self._answers.items():
            what, workflow = operation.what, operation.workflow
            rows = self.history.get(workflow, [])
            if len(rows) < version:
                yield f"{key} was acknowledged as version {version}, and is gone"
            elif rows[version - 1].target != state:
                yield f"{key} was acknowledged as {state}, and is {rows[version - 1].target}"
            elif what == "start":
                if [row.event for row in rows].count("STARTED") != 1:
                    yield f"{workflow} was not started once"
            elif how != "ignored" and found[workflow].get(key) != version:
                yield f"{key} was acknowledged as version {version}, its key is at {found[workflow].get(key)}"

    def owed_and_never_run(self) -> Iterable[str]:
        """A result in history is that of a run of the very visit that it ends (G3, G5)."""
        steps = {"charging": "charge", "reserving": "reserve", "shipping": "ship"}
        for workflow, rows in self.history.items():
            for before, row in pairwise(rows):
                if '"run"' not in row.payload:
                    continue
                asked = self.books.keys[workflow, before.version, f"{steps[row.source]} -"]
                run = msgspec.json.decode(row.payload, type=dict[str, str])["run"]
                if asked != {run}:
                    yield f"{workflow}: version {row.version} has the result of {run}; its visit asked under {asked}"

    def everything(self) -> list[str]:
        """All that is wrong when everything has had time to come to its end."""
        return [*self.problems(), *self.problems_at_the_end(), *self.missing(), *self.owed_and_never_run()]


async def dump(connection: asyncpg.Connection) -> str:
    """What is stuck: rows, leases, connections."""
    lines: list[str] = []
    for what, sql in DUMP.items():
        lines.append(f"--- {what}")
        lines += [
            "  " + ", ".join(f"{name}={value}" for name, value in row.items()) for row in await connection.fetch(sql)
        ]
    return "\n".join(lines)
