"""What a kill has left: the store's own tables, read by somebody who knows nothing of the engine's memory."""

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

from interlock.chaos.shop import ASKED
from interlock.engine.bound_machine import Owed, PastAttempt, decode_attempts, decode_owed
from interlock.engine.engine_settings import EngineSettings
from tests.crash.engine.gateway import Books
from tests.crash.engine.shop import State

RESTS = {State.DONE.value, State.PARKED.value, State.CANCELLED.value, State.EXPIRED.value}
PAID = {State.DONE.value, State.PARKED.value}
STEPS = {State.CHARGING.value: "charge", State.RESERVING.value: "reserve", State.SHIPPING.value: "ship"}
UNDOES = {"charge": "refund", "reserve": "release"}


class Happened(NamedTuple):
    """A row of history."""

    version: int
    source: str
    target: str
    event: str
    payload: str
    key: str | None
    time_us: int


class Kept(NamedTuple):
    """A workflow as it is stored."""

    state: str
    version: int
    visit: int
    context: dict[str, str]
    owed: Owed


class Audit:
    """One copy of the tables. `problems` is everything that may never be so, whenever the process was killed."""

    def __init__(self, path: Path, books: Books) -> None:
        self.books = books
        connection = apsw.Connection(str(path))
        try:
            self._read(connection)
        finally:
            connection.close()

    def _read(self, connection: apsw.Connection) -> None:
        self.sound = connection.execute("PRAGMA integrity_check").get
        self.workflows: dict[str, Kept] = {}
        self.history: dict[str, list[Happened]] = defaultdict(list)
        self.attempts: dict[str, list[PastAttempt]] = defaultdict(list)
        """What was tried, in the order in which it ended (B17)."""
        made = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'workflow_store'").get
        if not made:  # Killed before the store had made its tables.
            self.effects: dict[str, tuple[str, int]] = {}
            self.letters: list[object] = []
            return
        for number, state, version, visit, context, owed in connection.execute(
            "SELECT id, state, version, visit, context, owed FROM workflows"
        ):
            assert isinstance(owed, bytes)
            read = msgspec.json.decode(str(context), type=dict[str, object])
            texts = {name: str(value) for name, value in read.items()}
            self.workflows[str(number)] = Kept(str(state), int(version), int(visit), texts, decode_owed(owed))
        for number, *values in connection.execute(
            "SELECT workflow_id, version, from_state, to_state, event, payload, key, created_at FROM workflow_events "
            "ORDER BY workflow, version"
        ):
            self.history[str(number)].append(Happened(*values))
        for number, attempts in connection.execute("SELECT workflow_id, attempts FROM workflow_events ORDER BY id"):
            self.attempts[str(number)] += decode_attempts(attempts or b"")
        for workflow, kept in self.workflows.items():
            self.attempts[workflow] += kept.owed.tried
        rows = connection.execute("SELECT id, workflow, version FROM workflow_effects")
        self.effects = {str(key): (str(number), int(str(version))) for key, number, version in rows}
        self.letters = list(connection.execute("SELECT kind, workflow, name, error FROM dead_letters"))

    def keys(self) -> dict[str, dict[str, int]]:
        """Delivery keys that were applied, by workflow, with the version that their event led to."""
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for workflow, rows in self.history.items():
            for row, after in zip(rows, [*rows[1:], None], strict=True):
                if row.key is not None:
                    assert row.key not in found[workflow]
                    through = after is not None and after.event == "UNWOUND" and after.time_us == row.time_us
                    found[workflow][row.key] = row.version + through
        return found

    def runs(self) -> dict[tuple[str, int, str], str]:
        """The idempotency key of everything that is owed now, by workflow, visit and deed."""
        found = {(workflow, version, "mail -"): key for key, (workflow, version) in self.effects.items()}
        for workflow, kept in self.workflows.items():
            if kept.owed.run is not None:
                found[workflow, kept.visit, f"{STEPS[kept.state]} -"] = kept.owed.run.key
            for undo in kept.owed.undos:
                found[workflow, kept.visit, f"{UNDOES[undo.step]} {undo.undoes}"] = undo.key
        return found

    def problems(self) -> list[str]:
        """What is wrong at any instant."""
        found = [] if self.sound == "ok" else [f"the file is not sound: {self.sound}"]
        for workflow, kept in self.workflows.items():
            rows = self.history[workflow]
            if [row.version for row in rows] != list(range(1, kept.version + 1)):
                found.append(f"{workflow} is at {kept.version}, and its versions are {[row.version for row in rows]}")
            elif rows[-1].target != kept.state:
                found.append(f"{workflow} is {kept.state}, and its history ends {rows[-1].target}")
            found += [
                f"{workflow}: version {after.version} does not begin where the one before ends"
                for before, after in pairwise(rows)
                if after.source != before.target
            ]
            results = [row.payload for row in rows if '"run"' in row.payload]
            if len(results) != len(set(results)):
                found.append(f"{workflow}: a result was applied twice: {results}")
            if kept.state not in RESTS and kept.state in STEPS and kept.owed.run is None:
                found.append(f"{workflow} is {kept.state}, and no step is owed")
        found += [f"two attempts at once: {line}" for line in self.books.overlaps]
        for run, keys in self.books.keys.items():
            if len(keys) != 1:
                found.append(f"{run} was asked for under {len(keys)} keys")
            rows = self.history.get(run[0], [])
            if run[1] > len(rows):
                found.append(f"{run} was asked for, and its transition is not there")
        for run, key in self.runs().items():
            if run in self.books.keys and self.books.keys[run] != {key}:
                found.append(f"{run} was asked for under another key than the one that is stored")
        return found

    def problems_at_the_end(self) -> list[str]:
        """What is wrong when everything has had time to come to its end."""
        found = [f"dead letter: {letter}" for letter in self.letters]
        found += [f"effect {key} of {workflow} is still owed" for key, (workflow, _) in self.effects.items()]
        for workflow, kept in self.workflows.items():
            if kept.state not in RESTS:
                found.append(f"{workflow} is left {kept.state}")
                continue
            found += self._untold_attempts(workflow)
            rows, done = self.history[workflow], self.books.done
            charges, reserved = done[workflow, "charge"], done[workflow, "reserve"]
            expected = {kept.context["charge"]} if kept.state in PAID else set()
            if charges != expected:
                found.append(f"{workflow} is {kept.state}; charged and not refunded: {charges}, expected {expected}")
            if len(reserved) != len(expected):
                found.append(f"{workflow} is {kept.state}; reserved and not released: {reserved}")
            for row in rows:
                told = (workflow, row.version, "mail -")
                if row.target in RESTS and not self.books.keys[told] & done[workflow, "mail"]:
                    found.append(f"{workflow}: nobody was told of version {row.version}, {row.target}")
                step = {"CHARGED": "charge", "RESERVED": "reserve", "SHIPPED": "ship"}.get(row.event)
                run = str(msgspec.json.decode(row.payload or "{}").get("run"))
                if step is not None and run not in {line.key for line in self.books.of(workflow) if line.deed == step}:
                    found.append(f"{workflow}: {row.event} without a call")
        return found

    def _untold_attempts(self, workflow: str) -> list[str]:
        """Calls without an attempt, and attempts without an end (B17)."""
        tried = Counter(each.key for each in self.attempts[workflow] if each.outcome != "running")
        asked = Counter(line.key for line in self.books.of(workflow) if line.what == ASKED)
        most = EngineSettings().attempts_max
        found = [
            f"{workflow}: {count} calls under {key}, and {tried[key]} attempts"
            for key, count in asked.items()
            if tried[key] < min(count, most)
        ]
        running = [each.key for each in self.attempts[workflow] if each.outcome == "running"]
        return found + [f"{workflow}: {key} is still under way" for key in running]
