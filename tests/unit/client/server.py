"""A server in memory that follows the contract to the letter, and weather above it that does not.

It applies events with the machine itself and remembers keys, so that "applied once" can be counted. `weather` says what
happens to the next requests; when it is used up, the sun shines.
"""

import asyncio
import contextlib
from collections import deque
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from interlock import Snapshot, errors
from interlock.core.events import wire_name
from interlock.errors import InterlockError
from tests.unit.client.shop import Order, OrderEvent, State, order
from tests.unit.client.wires import Cut, Got, Net, Reply

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
PROBLEM = "application/problem+json"
NDJSON = "application/x-ndjson"

STATUSES = {
    "invalid-transition": 409,
    "guard-rejected": 422,
    "invalid-payload": 400,
    "payload-too-large": 413,
    "workflow-not-found": 404,
    "workflow-exists": 409,
    "version-conflict": 409,
    "key-reused": 422,
    "overloaded": 429,
    "outcome-unknown": 503,
    "unavailable": 503,
    "target-not-found": 404,
    "wait-failed": 409,
    "wait-timeout": 408,
}


def problem(error: InterlockError, **more: object) -> dict[str, object]:
    """The document for an error, with the members that it knows besides."""
    known = {name: value for name, value in vars(error).items() if name not in {"what", "why", "fix"}}
    document: dict[str, object] = {
        "type": f"urn:interlock:{error.code}",
        "title": "The same sentence each time.",
        "status": STATUSES.get(error.code, 400),
        "detail": f"{error.what} {error.why}",
        "code": error.code,
        "what": error.what,
        "fix": error.fix,
    }
    return {**document, **({} if error.retry == "never" else {"retry": error.retry}), **known, **more}


def refused(error: InterlockError, status: int | None = None, **headers: str) -> Reply:
    document = problem(error)
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status or cast("int", document["status"]), msgspec.json.encode(document), PROBLEM, told)


class Server:
    """Workflows of the shop's machine."""

    def __init__(self, *weather: str | Reply | bytes) -> None:
        self.net = Net(self.handle)
        self.weather: deque[str | Reply | bytes] = deque(weather)
        self.snapshots: dict[str, Snapshot[State, Order]] = {}
        self.contexts: dict[str, Order] = {}
        self.keys: dict[tuple[str, str], tuple[bytes, dict[str, object]]] = {}
        self.applied: list[tuple[str, str]] = []
        """Workflow and event, in the order in which they moved anything."""
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.listings: dict[str, list[Any]] = {}
        self.asked: list[dict[str, str]] = []
        self.pruned: list[dict[str, object]] = []
        """What the next requests remove."""
        self.moves = asyncio.Event()
        """Set, and replaced, when anything moves."""
        self.leaving = False
        self.wait_s_max = 30.0
        self.silenced = asyncio.Event()
        """Set when so many wait in vain."""
        self.silent, self.silent_expected = 0, 1

    async def handle(self, got: Got) -> Reply | bytes:
        mood = self.weather.popleft() if self.weather else "fine"
        if not isinstance(mood, str):
            return mood
        match mood:
            case "cut before":
                raise Cut
            case "cut after":
                self.answer(got)
                raise Cut
            case "half":
                whole = self.answer(got).written()
                raise Cut(whole[: len(whole) - 9])
            case "unknown before":
                return refused(errors.OutcomeUnknown("the disk failed."), Retry_After="1")
            case "unknown after":
                self.answer(got)
                return refused(errors.OutcomeUnknown("the disk failed."), Retry_After="1")
            case "busy":
                return refused(errors.Overloaded(2.0), Retry_After="2")
            case "moving":
                return refused(errors.UnavailableError("the machine is being moved."), Retry_After="3")
            case "silent":
                self.answer(got)
                self.silent += 1
                if self.silent >= self.silent_expected:
                    self.silenced.set()
                await asyncio.Event().wait()
            case _:
                assert mood == "fine", mood
        path = got.path.removeprefix("/").split("/")
        return await self._waited(got, path[2]) if path[-1] == "wait" else self.answer(got)

    async def _waited(self, got: Got, workflow: str) -> Reply:
        """A long poll: answered when the workflow is there, when the time is over, or when the server leaves."""
        loop = asyncio.get_running_loop()
        timeout_s = min(float(got.query["timeout_s"]), self.wait_s_max)
        deadline_s = loop.time() + timeout_s
        wanted = [each for each in got.query.get("state", "").split(",") if each]
        try:
            while True:
                at = self._at(workflow)
                _refuse_unknown(wanted)
                ends, here = at.state in {State.DONE, State.CANCELLED}, at.state.value
                if here in wanted or (not wanted and (ends or at.state is State.PARKED)):
                    return _json(self._shown(workflow))
                if ends:
                    told = " or ".join(map(repr, wanted))
                    raise errors.WaitFailed(f"workflow {workflow!r} ended in state {here!r}, not in {told}.")
                if self.leaving:
                    raise errors.UnavailableError("the server is stopping and ends its waits.")
                if loop.time() >= deadline_s:
                    raise errors.WaitTimeout(
                        f"workflow {workflow!r} did not get there within {timeout_s:g} s; "
                        f"it is in state {here!r} at version {at.version}."
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline_s):
                        await self.moves.wait()
        except InterlockError as error:
            return refused(error)

    def answer(self, got: Got) -> Reply:
        try:
            return self._routed(got)
        except InterlockError as error:
            status = 412 if isinstance(error, errors.VersionConflict) and "if-match" in got.headers else None
            return refused(error, status)

    def _routed(self, got: Got) -> Reply:
        path = got.path.removeprefix("/").split("/")
        found = self._of_one(got, path) or self._of_many(got, path) or self._of_operators(got, path)
        if found is None:
            raise errors.TargetNotFound(f"there is no {got.method} {got.path}.")
        return found

    def _of_one(self, got: Got, path: list[str]) -> Reply | None:  # noqa: PLR0911 -- one for each route.
        match got.method, path:
            case "POST", ["v1", "machines", "order", "workflows"]:
                return self._start(got)
            case "GET", ["v1", "workflows", workflow]:
                tag = f'"{self._at(workflow).version}"'
                if got.headers.get("if-none-match") == tag:
                    return Reply(304, b"", headers={"ETag": tag})
                return _json(self._shown(workflow), ETag=tag)
            case "POST", ["v1", "workflows", workflow, "events"]:
                body = cast("dict[str, Any]", msgspec.json.decode(got.body))
                moved = self._send(
                    workflow,
                    body,
                    key=body.get("key") or got.headers.get("idempotency-key"),
                    if_allowed=got.query.get("if_allowed") == "true",
                    version=got.headers.get("if-match"),
                )
                return _json(moved)
            case "GET", ["v1", "workflows", workflow, "history"]:
                self._at(workflow)
                assert set(got.query) <= {"cursor", "limit"}
                after, limit = int(got.query.get("cursor", "0")), int(got.query["limit"])
                rows = [row for row in self.rows.get(workflow, []) if row["version"] > after][:limit]
                return _listing(rows, str(rows[-1]["version"]) if len(rows) == limit else None)
            case "GET", ["v1", "workflows", workflow, "stats"]:
                return _json({"applied": self._at(workflow).version - 1, "duplicate": 0, "ignored": 0, "refused": 0})
            case "GET", ["v1", "workflows", workflow, "allowed"]:
                self.asked.append(got.query)
                found = order.allowed(self._at(workflow))
                return _listing([{"event": each.event, "to": each.to.value, "guards": each.guards} for each in found])
            case _:
                return None

    def _of_many(self, got: Got, path: list[str]) -> Reply | None:
        match got.method, path:
            case "GET", ["v1", "machines", "order"]:
                return Reply(body=order.describe().to_json())
            case "POST", ["v1", "events:batch"]:
                assert got.headers["content-type"] == NDJSON
                lines = [msgspec.json.decode(line) for line in got.body.splitlines()]
                told = b"".join(msgspec.json.encode(self._line(line)) + b"\n" for line in lines)
                return Reply(body=told, kind=NDJSON, chunked=True)
            case "GET", ["v1", "workflows"]:
                names = [name for name in self.snapshots if got.query.get("state", "") in {"", self._state(name)}]
                at, limit = int(got.query.get("cursor", "0")), int(got.query["limit"])
                more = str(at + limit) if at + limit < len(names) else None
                return _listing([self._shown(name) for name in names[at : at + limit]], more)
            case "GET", ["v1", "stalled"]:
                assert set(got.query) <= {"machine", "older_than_s", "state", "limit"}
                names = [name for name in self.snapshots if got.query.get("state", "") in {"", self._state(name)}]
                return _listing([self._shown(name) for name in names])
            case _:
                return None

    def _of_operators(self, got: Got, path: list[str]) -> Reply | None:
        match got.method, path:
            case "GET", ["v1", listing] if listing in self.listings:
                return _listing(self.listings[listing])
            case ("PUT", ["v1", "breakers" | "limits", name]) | ("POST", ["v1", "dead-letters", name, _]):
                if name == "nobody" and got.method == "PUT":
                    raise errors.TargetNotFound(f"nothing here calls a dependency {name!r}.")
                if name == "nobody":
                    raise errors.WorkflowNotFound(f"there is no dead letter {name!r}.")
                self.applied.append((name, got.body.decode()))
                return _json({})
            case ("PUT", ["v1", "admission" as name]) | ("POST", ["v1", "prune" as name]):
                self.applied.append((name, got.body.decode()))
                return _json(self.pruned.pop(0) if name == "prune" else {})
            case _:
                return None

    def _start(self, got: Got) -> Reply:
        body = cast("dict[str, Any]", msgspec.json.decode(got.body))
        context = order.codec.decode_context(msgspec.json.encode(body["context"]), strict=True)
        workflow = cast("str", body["id"])
        if workflow in self.snapshots:
            if self.contexts[workflow] != context:
                raise errors.WorkflowExists(f"workflow {workflow!r} exists already, with other input.")
            return _json(self._shown(workflow))
        self.snapshots[workflow] = order.begin(context)
        self.contexts[workflow] = context
        self.applied.append((workflow, "STARTED"))
        return _json(self._shown(workflow), status=201)

    def _send(
        self,
        workflow: str,
        body: dict[str, Any],
        *,
        key: str | None = None,
        if_allowed: bool = False,
        version: str | None = None,
    ) -> dict[str, object]:
        if "start" in body and workflow not in self.snapshots:
            context = order.codec.decode_context(msgspec.json.encode(body["start"]["context"]), strict=True)
            self.snapshots[workflow], self.contexts[workflow] = order.begin(context), context
        at = self._at(workflow)
        event = order.codec.decode_event(body["event"], msgspec.json.encode(body.get("data", {})))
        digest = msgspec.json.encode(body)
        if key is not None and (workflow, key) in self.keys:
            before, moved = self.keys[workflow, key]
            if before != digest:
                raise errors.KeyReused(f"key {key!r} was used for another event.")
            return {**moved, "duplicate": True}
        if version is not None and version != f'"{at.version}"':
            raise errors.VersionConflict(f"workflow {workflow!r} is at version {at.version}, not {version}.")
        try:
            self.snapshots[workflow] = after = order.apply(at, event)
            self.tell()
        except errors.InvalidTransition:
            if if_allowed:
                return {"id": workflow, "state": at.state.value, "version": at.version, "ignored": True}
            raise
        self.applied.append((workflow, wire_name(type(event))))
        found: dict[str, object] = {"id": workflow, "state": after.state.value, "version": after.version}
        if key is not None:
            self.keys[workflow, key] = digest, found
        return found

    def _line(self, line: dict[str, Any]) -> dict[str, object]:
        body: dict[str, Any] = {name: line[name] for name in ("event", "data", "start") if name in line}
        try:
            return self._send(line["id"], body, key=line.get("key"))
        except InterlockError as error:
            return problem(error, id=line["id"])

    def _at(self, workflow: str) -> Snapshot[State, Order]:
        if workflow not in self.snapshots:
            raise errors.WorkflowNotFound(f"there is no workflow {workflow!r}.")
        return self.snapshots[workflow]

    def _state(self, workflow: str) -> str:
        return self.snapshots[workflow].state.value

    def _shown(self, workflow: str) -> dict[str, object]:
        at = self._at(workflow)
        return {
            "id": workflow,
            "machine": "order",
            "state": at.state.value,
            "context": at.context,
            "version": at.version,
            "created_at": NOW,
            "updated_at": NOW,
            "waiting": None,
            "unheard_of": 1,
        }

    def move(self, workflow: str, event: OrderEvent) -> None:
        """Somebody else moves it."""
        self.snapshots[workflow] = order.apply(self._at(workflow), event)
        self.tell()

    def tell(self) -> None:
        """Whoever waits looks again."""
        self.moves.set()
        self.moves = asyncio.Event()


def _refuse_unknown(wanted: list[str]) -> None:
    known = [state.value for state in State]
    for name in wanted:
        if name not in known:
            raise errors.InvalidPayload(f"machine 'order' has no state {name!r}; it has {', '.join(known)}.")


def _json(value: object, status: int = 200, **headers: str) -> Reply:
    return Reply(status, msgspec.json.encode(value), headers=headers)


def _listing(items: list[Any], cursor: str | None = None) -> Reply:
    return _json({"items": items, "cursor": cursor})
