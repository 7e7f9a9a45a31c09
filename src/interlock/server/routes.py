"""The table of routes: path, handler, required scope and description of each.

The document at /openapi.json and the page at /docs are generated from the table. `scope` and `about` decide who may use
a route. A test has both a second time for every route, so that no route can be opened by mistake.

Sections: parameters and examples, workflows, machines, charts, operating, pauses, tasks, schedules, bulk, databases,
webhooks, health.
"""

from functools import partial

import msgspec

import interlock.wire as wire  # noqa: PLR0402 -- `from interlock` would be a cycle to a type checker.
from interlock.engine.charts import Charts
from interlock.engine.dependencies.breakers import BreakerView
from interlock.engine.engine_settings import Admission
from interlock.engine.operators.attempts import Attempt
from interlock.engine.operators.bulk_runs import BulkPlan, BulkRun
from interlock.engine.operators.tasks import Task
from interlock.engine.operators.why import Why
from interlock.engine.pauses import PauseView
from interlock.engine.schedules import ScheduleView
from interlock.engine.views import Compensation, Counts, DeadLetter
from interlock.server.handlers import bulk_routes, operator_routes, sql, stream, webhooks, workflows
from interlock.server.router import Endpoint, RouteParameter
from interlock.server.security.keys import Scope

TEXT: dict[str, object] = {"type": "string"}
NUMBER: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": 1_000}
SEARCH = (
    RouteParameter(
        "where",
        "A condition on a field that the machine declares in `search=`: `field=value`, with one of the operators "
        "`=`, `!=`, `<`, `<=`, `>`, `>=`, ` in ` and ` prefix `. May be sent several times: all must hold. A value may "
        'be JSON: `null` means None, `"null"` a text.',
        {"type": "array", "items": TEXT},
        example=["customer=ada"],
    ),
    RouteParameter(
        "updated_after", "Only workflows that moved last after this time.", {"type": "string", "format": "date-time"}
    ),
    RouteParameter(
        "updated_before", "Only workflows that moved last before this time.", {"type": "string", "format": "date-time"}
    ),
    RouteParameter(
        "order",
        "`updated_at`, `created_at` or a searchable field; a minus in front reverses it.",
        TEXT,
        example="-updated_at",
    ),
)
CURSOR = RouteParameter("cursor", "The cursor of the previous page.", TEXT)
LIMIT = RouteParameter("limit", "Maximum number of items.", NUMBER, example=100)
MACHINE = RouteParameter("machine", "The name of a machine; without it, all machines.", TEXT, example="order")
STATE = RouteParameter("state", "Only workflows in this state.", TEXT, example="charging")
KEY = RouteParameter(
    "Idempotency-Key",
    "An event repeated with the same key applies once, and gets the first answer again.",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "header",
    "click-7",
)
MATCH = RouteParameter(
    "If-Match", "Apply only if the workflow has this version, which is its ETag.", TEXT, "header", '"3"'
)
BY = RouteParameter(
    "by",
    "The person who acts, where that is not the holder of the key; history and the audit log have both.",
    {"type": "string", "maxLength": 200},
    example="ada",
)
IF_ALLOWED = RouteParameter(
    "if_allowed",
    "Ignore an event that has no transition from the current state, instead of refusing it.",
    {"type": "boolean"},
    example=True,
)

WORKFLOW: dict[str, object] = {
    "id": "o-1",
    "machine": "order",
    "state": "charging",
    "context": {"cents": 999},
    "version": 2,
    "created_at": "2026-01-01T12:00:00Z",
    "updated_at": "2026-01-01T12:00:01Z",
    "waiting": None,
    "timers": [{"event": "CANCEL", "due_at": "2026-01-02T12:00:01Z"}],
    "paused": False,
}
MOVE: dict[str, object] = {"id": "o-1", "state": "charging", "version": 2, "duplicate": False, "ignored": False}


_read = partial(Endpoint, "GET", Scope.READ)
_send = partial(Endpoint, "POST", Scope.SEND, parameters=(BY,))
_operate = partial(Endpoint, "POST", Scope.OPERATE, parameters=(BY,))
_change = partial(Endpoint, "PUT", Scope.OPERATE, parameters=(BY,))

_WORKFLOWS = (
    _send(
        "/v1/machines/{machine}/workflows",
        workflows.start,
        "machine",
        "Start a workflow; repeated with the same id and context, returns the existing one",
        enters="start",
        body=wire.StartBody,
        body_example={"id": "o-1", "context": {"cents": 0}},
        answer=wire.ShownWorkflow,
        answers=(200, 201),
        answer_example=WORKFLOW,
        also=(409, 429),
    ),
    _read(
        "/v1/workflows/{id}",
        workflows.get,
        "workflow",
        "Get a workflow; its ETag is its version",
        answer=wire.ShownWorkflow,
        answer_example=WORKFLOW,
    ),
    _send(
        "/v1/workflows/{id}/events",
        workflows.send,
        "workflow",
        "Send an event; answered when its transition is durable",
        enters="event",
        parameters=(KEY, MATCH, IF_ALLOWED, BY),
        body=wire.EventBody,
        body_example={"event": "SUBMIT", "data": {"cents": 999}},
        answer=wire.ShownMove,
        answer_example=MOVE,
        also=(409, 412, 422, 429),
    ),
    _read(
        "/v1/workflows/{id}/history",
        workflows.history,
        "workflow",
        "The history of a workflow, in the order of versions",
        parameters=(
            RouteParameter("cursor", "Only rows after this version.", {"type": "integer", "minimum": 0}),
            RouteParameter("limit", "Maximum number of rows.", {"type": "integer", "minimum": 1, "maximum": 10_000}),
        ),
        answer=wire.ShownRow,
        lists=True,
    ),
    _read(
        "/v1/workflows/{id}/children",
        workflows.children,
        "workflow",
        "The workflows that a workflow has started as its children, page by page",
        parameters=(CURSOR, LIMIT),
        answer=wire.ShownWorkflow,
        lists=True,
    ),
    _read(
        "/v1/workflows/{id}/attempts",
        workflows.attempts,
        "workflow",
        "The attempts of a workflow's steps, undos and effects, the oldest first, page by page",
        parameters=(
            RouteParameter(
                "after",
                "Only those that have ended after the move to this version.",
                {"type": "integer", "minimum": 0},
            ),
            CURSOR,
            LIMIT,
        ),
        answer=Attempt,
        lists=True,
    ),
    _operate(
        "/v1/workflows/{id}/fork",
        workflows.fork,
        "workflow",
        "Start a new workflow in the state and with the context that this one had at a version",
        enters="start",
        body=wire.ForkBody,
        body_example={"at_version": 3, "id": "o-1-again"},
        answer=wire.ShownWorkflow,
        answers=(201,),
        answer_example=WORKFLOW,
        also=(404, 409, 429),
    ),
    _operate(
        "/v1/workflows/{id}/rewind",
        workflows.rewind,
        "workflow",
        "Set a workflow back to the state and context of an earlier version, after what it did since then is undone",
        parameters=(KEY, MATCH, BY),
        body=wire.RewindBody,
        body_example={"to_version": 3, "note": "charged twice", "dry_run": True},
        answer=wire.ShownRewind,
        also=(404, 409, 412),
    ),
    _read(
        "/v1/workflows/{id}/why",
        workflows.why,
        "workflow",
        "Why a workflow is where it is, in plain words: how it came there, what it waits for, what can move it",
        answer=Why,
    ),
    _read(
        "/v1/workflows/{id}/allowed",
        workflows.allowed,
        "workflow",
        "The events that have a transition from the current state",
        parameters=(
            RouteParameter("event", "Also evaluate the guards of this event.", TEXT, example="SUBMIT"),
            RouteParameter("data", "Its fields, as JSON.", TEXT, example='{"cents": 5}'),
        ),
        answer=wire.ShownAllowed,
        lists=True,
    ),
    _read(
        "/v1/workflows",
        workflows.find,
        "items",
        "Find workflows by machine, state, fields and time, page by page",
        parameters=(MACHINE, STATE, *SEARCH, CURSOR, LIMIT),
        answer=wire.ShownWorkflow,
        lists=True,
        also=(404,),
    ),
    _read(
        "/v1/stalled",
        workflows.stalled,
        "items",
        "The active workflows that have been in their state for too long",
        parameters=(
            MACHINE,
            RouteParameter(
                "older_than_s", "Longer than this; without it, than declared.", {"type": "number", "minimum": 0}
            ),
            STATE,
            LIMIT,
        ),
        answer=wire.ShownWorkflow,
        lists=True,
        also=(404,),
    ),
    _send(
        "/v1/events:batch",
        workflows.send_batch,
        "items",
        "Send many events, one per line of JSON; answers one result or problem per line, in order",
        body=wire.BatchLine,
        body_example='{"id": "o-1", "event": "SUBMIT", "data": {"cents": 5}, "key": "click-7"}\n',
        body_media="application/x-ndjson",
        answer_media="application/x-ndjson",
    ),
    _read(
        "/v1/workflows/{id}/stats",
        operator_routes.stats,
        "workflow",
        "Outcomes of the events sent to a workflow: applied, duplicate, ignored, refused",
        answer=Counts,
        answer_example={"applied": 2, "duplicate": 1, "ignored": 0, "refused": 1},
    ),
    _read(
        "/v1/workflows/{id}/wait",
        operator_routes.wait,
        "workflow",
        "Wait until a workflow is in a state; 408 when the time is over, 409 when it can never get there",
        parameters=(
            RouteParameter(
                "state",
                "A state, or several separated by commas; without it: a final or resting state.",
                TEXT,
                example="done",
            ),
            RouteParameter(
                "timeout_s",
                f"Longest wait in seconds; the default and the maximum are {operator_routes.WAIT_S_MAX:g}.",
                {"type": "number", "minimum": 0, "maximum": 1e10},
                example=10,
            ),
        ),
        answer=wire.ShownWorkflow,
        answer_example=WORKFLOW | {"state": "done", "version": 3, "updated_at": "2026-01-01T12:00:02Z"},
        also=(408, 409, 429),
    ),
)
_MACHINES = (
    _read("/v1/machines", workflows.machines, "items", "The machines, as plain data", answer=dict, lists=True),
    _read(
        "/v1/machines/{machine}",
        workflows.machine,
        "machine",
        "One machine with its diagram, and with `counts` how many workflows are in each state",
        parameters=(RouteParameter("counts", "Count the workflows in each state.", {"type": "boolean"}),),
        answer=dict,
    ),
)
_CHARTS: dict[str, object] = {
    "since": "2026-01-01T12:00:00Z",
    "until": "2026-01-01T12:02:00Z",
    "step_s": 60,
    "machines": [
        {
            "machine": "order",
            "moves": [3, 1],
            "started": [1, 0],
            "failed_attempts": [0, 2],
            "refused": [0, 0],
            "dead_letters": [0, 0],
            "waiting": [0, 1],
            "workflows": [4, 4],
            "states": [
                {
                    "state": "charging",
                    "final": False,
                    "moves": [2, 0],
                    "left": [1, 0],
                    "dwell_mean_s": [0.8, None],
                    "dwell_max_s": [0.8, None],
                    "failed_attempts": [0, 2],
                    "refused": [0, 0],
                    "dead_letters": [0, 0],
                    "workflows": [1, 1],
                }
            ],
        }
    ],
}
_OPERATING = (
    _read(
        "/v1/whoami",
        operator_routes.whoami,
        "items",
        "The client of the request: its name in the audit log, its scopes and limits",
        answer=wire.ShownIdentity,
        answer_example={"actor": "the key 7e57 (ada)", "scopes": ["read", "send"], "machines": [], "prefixes": []},
    ),
    _read(
        "/v1/compensations",
        operator_routes.compensations,
        "items",
        "The undos that are pending or being tried",
        answer=Compensation,
        lists=True,
    ),
    _read(
        "/v1/dead-letters",
        operator_routes.dead_letters,
        "items",
        "Dead letters, which wait for a person, oldest first",
        parameters=(
            RouteParameter(
                "kind", "Only dead letters of this kind.", {"type": "string", "enum": ["step", "effect", "undo"]}
            ),
            MACHINE,
            RouteParameter("workflow", "Only dead letters of this workflow.", TEXT, example="o-1"),
            RouteParameter("name", "Only dead letters of the step, effect or undo of this name.", TEXT),
            RouteParameter("group", "Only dead letters of this group of errors.", TEXT),
            RouteParameter(
                "limit", "Maximum number of dead letters.", {"type": "integer", "minimum": 1, "maximum": 10_000}
            ),
        ),
        also=(404,),
        answer=DeadLetter,
        lists=True,
    ),
    _read(
        "/v1/dead-letters/groups",
        operator_routes.dead_letter_groups,
        "items",
        "How many dead letters there are of each error, by machine and step, effect or undo; the most frequent first",
        answer=wire.ShownLetterGroup,
        lists=True,
    ),
    _operate(
        "/v1/dead-letters/{letter}/retry",
        operator_routes.retry,
        "letter",
        "Retry a dead letter, with the same idempotency key and all its attempts",
        parameters=(BY, RouteParameter("workflow", "The workflow of the letter, by which it is found sooner.", TEXT)),
        answer=wire.ShownRuling,
        answer_example={"id": "7e57…", "ruling": "retried"},
    ),
    _operate(
        "/v1/dead-letters/{letter}/resolve",
        operator_routes.resolve,
        "letter",
        "Mark a dead letter as resolved by a person",
        body=wire.ResolveBody,
        body_example={"note": "refunded by hand"},
        answer=wire.ShownRuling,
        answer_example={"id": "7e57…", "ruling": "resolved"},
    ),
    _read(
        "/v1/breakers",
        operator_routes.breakers,
        "home",
        "The breakers of all dependencies, as this process has them",
        answer=BreakerView,
        lists=True,
    ),
    _change(
        "/v1/breakers/{name}",
        operator_routes.hold_breaker,
        "home",
        "Hold a breaker open or closed, return it to automatic, or change its dependency's limits",
        body=wire.BreakerBody,
        body_example={"state": "open"},
        answer=BreakerView,
    ),
    _read(
        "/v1/charts",
        operator_routes.charts,
        "items",
        "Moves, failures, time in state and backlog over time, per machine and state",
        parameters=(
            MACHINE,
            RouteParameter(
                "since", "Beginning; by default three hours before the end.", {"type": "string", "format": "date-time"}
            ),
            RouteParameter("until", "End; by default now.", {"type": "string", "format": "date-time"}),
            RouteParameter(
                "step",
                "Seconds of an interval: a multiple of 60, or of 3600 if it begins over a day ago. By default there "
                "are at most 360 intervals.",
                {"type": "integer", "minimum": 1, "maximum": operator_routes.STEP_S_MAX},
            ),
        ),
        answer=Charts,
        answer_example=_CHARTS,
        also=(404,),
    ),
    _read(
        "/v1/contention",
        sql.contention,
        "items",
        "The rows and workflows that writers contend for, worst first",
        answer=wire.ShownHot,
        lists=True,
    ),
    _read(
        "/v1/stream",
        stream.stream,
        "items",
        "Events of the answering process, as server-sent events; Last-Event-ID resumes",
        parameters=(
            MACHINE,
            RouteParameter("workflow", "Only this workflow.", TEXT),
            RouteParameter("kind", f"Only some of {', '.join(wire.KINDS)}.", TEXT, example="transition_applied"),
            RouteParameter("last_event_id", "As the header, for clients that cannot set headers.", TEXT),
            RouteParameter("Last-Event-ID", "Resume after this event.", TEXT, "header"),
        ),
        answer_media="text/event-stream",
        also=(404, 429),
    ),
    _change(
        "/v1/limits/{name}",
        operator_routes.set_limit,
        "home",
        "Change the limits of a dependency, in this process and until it ends",
        body=wire.LimitBody,
        body_example={"rate_per_s": 50},
        answer=BreakerView,
    ),
    _read(
        "/v1/admission",
        operator_routes.admission,
        "home",
        "Admission limits of this process: calls per second, burst, calls in flight",
        answer=Admission,
        answer_example={"rate_per_s": 10000.0, "burst": 15000.0, "in_flight_max": 100000},
    ),
    _change(
        "/v1/admission",
        operator_routes.set_admission,
        "home",
        "Change the admission limits of this process, until it ends",
        body=wire.AdmissionBody,
        body_example={"rate_per_s": 500, "burst": 1000},
        answer=Admission,
        answer_example={"rate_per_s": 500.0, "burst": 1000.0, "in_flight_max": 100000},
    ),
    Endpoint(
        "POST",
        Scope.ADMIN,
        "/v1/prune",
        operator_routes.prune,
        "home",
        "Remove workflows that ended long ago, or their history; `more` says whether to ask again",
        body=wire.PruneBody,
        body_example={"older_than_s": 2592000, "dry_run": True},
        answer=wire.ShownPruned,
        answer_example={"workflows": 12, "events": 60, "more": False},
        parameters=(BY,),
    ),
)
_SCHEDULE: dict[str, object] = {
    "name": "nightly",
    "machine": "order",
    "cron": "0 3 * * *",
    "every_s": None,
    "timezone": "Europe/Berlin",
    "overlap": "skip",
    "catch_up": "last",
    "paused": False,
    "next_due": "2026-01-02T02:00:00Z",
    "last": "nightly.2026-01-01T02:00:00Z",
    "waiting": 0,
    "started": 1,
    "skipped": 0,
}
_PAUSES = (
    _read(
        "/v1/pauses",
        operator_routes.pauses,
        "home",
        "The active pauses of this home, oldest first",
        answer=PauseView,
        lists=True,
    ),
    _operate(
        "/v1/pauses",
        operator_routes.pause,
        "home",
        "Pause a workflow, a machine or one of its states: nothing begins there until it is resumed; events apply",
        body=wire.PauseBody,
        body_example={"machine": "order", "state": "charging", "note": "the bank is down"},
        answer=PauseView,
        answer_example={
            "machine": "order",
            "state": "charging",
            "workflow": None,
            "by": "ada",
            "note": "the bank is down",
            "since": "2026-01-01T12:00:00Z",
        },
        also=(404, 409),
    ),
    _operate(
        "/v1/pauses/resume",
        operator_routes.resume,
        "home",
        "Go on with what was paused, named as in the pause",
        body=wire.PauseBody,
        body_example={"machine": "order", "state": "charging"},
        answer=wire.ShownResume,
        answer_example={"resumed": True},
        also=(404, 409),
    ),
)
TASK: dict[str, object] = {
    "id": "o-1@3",
    "workflow": "o-1",
    "machine": "order",
    "state": "review",
    "version": 3,
    "role": "finance",
    "title": "Approve 4200 for ada",
    "since": "2026-01-01T12:00:00Z",
    "due_at": "2026-01-02T12:00:00Z",
    "overdue": False,
    "claimed_by": "ada",
    "claimed_at": "2026-01-01T12:30:00Z",
    "events": ["APPROVE", "REJECT"],
}
_FORM: dict[str, object] = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
_TASKS = (
    _read(
        "/v1/tasks",
        operator_routes.tasks,
        "items",
        "The tasks that wait for a person, the most urgent first, page by page",
        parameters=(
            RouteParameter("role", "Only tasks of this role.", TEXT, example="finance"),
            RouteParameter(
                "by",
                "Only tasks that this person has claimed; a page may then be short although its cursor is set.",
                TEXT,
                example="ada",
            ),
            MACHINE,
            CURSOR,
            LIMIT,
        ),
        answer=Task,
        lists=True,
        also=(404,),
    ),
    _read(
        "/v1/tasks/{task}",
        operator_routes.task,
        "task",
        "One task, with the schema of the fields of each event with which it is decided",
        answer=wire.ShownTask,
        answer_example=TASK | {"forms": {"APPROVE": _FORM, "REJECT": _FORM}},
        also=(409,),
    ),
    _send(
        "/v1/tasks/{task}/claim",
        operator_routes.claim_task,
        "task",
        "Claim a task for the person that `by` names, or for the holder of the key",
        answer=Task,
        answer_example=TASK,
        also=(409,),
    ),
    _send(
        "/v1/tasks/{task}/release",
        operator_routes.release_task,
        "task",
        "Release a task; with `force` and the scope `operate`, also one that another person has claimed",
        parameters=(
            BY,
            RouteParameter("force", "Release it from another person.", {"type": "boolean"}, example=True),
        ),
        answer=Task,
        answer_example=TASK | {"claimed_by": None, "claimed_at": None},
        also=(409,),
    ),
)
_SCHEDULES = (
    _read(
        "/v1/schedules",
        operator_routes.schedules,
        "home",
        "The schedules of this home, oldest first",
        answer=ScheduleView,
        lists=True,
    ),
    _read(
        "/v1/schedules/{name}",
        operator_routes.schedule,
        "home",
        "One schedule",
        answer=ScheduleView,
        answer_example=_SCHEDULE,
    ),
    _change(
        "/v1/schedules/{name}",
        operator_routes.put_schedule,
        "home",
        "Store a schedule, or change it; one that was paused stays paused",
        body=wire.ScheduleBody,
        body_example={"machine": "order", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "context": {"cents": 0}},
        answer=ScheduleView,
        answer_example=_SCHEDULE,
    ),
    Endpoint(
        "DELETE",
        Scope.OPERATE,
        "/v1/schedules/{name}",
        operator_routes.delete_schedule,
        "home",
        "Delete a schedule; workflows that it started go on",
        answer=ScheduleView,
        answer_example=_SCHEDULE,
        parameters=(BY,),
    ),
    _operate(
        "/v1/schedules/{name}/pause",
        operator_routes.pause_schedule,
        "home",
        "Start nothing at due times until the schedule is resumed",
        answer=ScheduleView,
        answer_example=_SCHEDULE | {"paused": True, "next_due": None},
    ),
    _operate(
        "/v1/schedules/{name}/resume",
        operator_routes.resume_schedule,
        "home",
        "Start at due times again; those that passed meanwhile are not caught up with",
        answer=ScheduleView,
        answer_example=_SCHEDULE,
    ),
    _operate(
        "/v1/schedules/{name}/trigger",
        operator_routes.trigger_schedule,
        "home",
        "Start one workflow now",
        answer=wire.ShownStarts,
        answer_example={"name": "nightly", "count": 1, "id": "nightly.2026-01-01T12:00:00Z"},
        also=(422,),
    ),
    _operate(
        "/v1/schedules/{name}/backfill",
        operator_routes.backfill_schedule,
        "home",
        "Start the workflows of due times in the past",
        body=wire.BackfillBody,
        body_example={"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T00:00:00Z"},
        answer=wire.ShownStarts,
        answer_example={"name": "nightly", "count": 2, "id": None},
        also=(422,),
    ),
)
_BULK_RUN: dict[str, object] = {
    "name": "2026-11 cleanup",
    "machine": "order",
    "action": "send",
    "event": "CANCEL",
    "data": {},
    "filter": {
        "state": "charging",
        "where": ['customer = "ada"'],
        "updated_after": None,
        "updated_before": None,
        "kind": None,
        "letter": None,
        "error": None,
    },
    "by": "ada",
    "note": "",
    "rate_per_s": 100.0,
    "state": "running",
    "matching": 500,
    "moved": 499,
    "refused": {"event CANCEL has no transition from state 'done'": 1},
    "examples": {"event CANCEL has no transition from state 'done'": ["o-7"]},
    "since": "2026-01-01T12:00:00Z",
    "updated": "2026-01-01T12:00:05Z",
}
_BULK = (
    _read(
        "/v1/bulk",
        bulk_routes.list_runs,
        "home",
        "The bulk runs of this home, the newest first",
        parameters=(
            RouteParameter("limit", "Maximum number of runs.", {"type": "integer", "minimum": 1, "maximum": 3_000}),
        ),
        answer=BulkRun,
        lists=True,
    ),
    _read(
        "/v1/bulk/{name}",
        bulk_routes.get_run,
        "home",
        "One bulk run, with its progress or its result",
        answer=BulkRun,
        answer_example=_BULK_RUN,
    ),
    _operate(
        "/v1/bulk/{name}",
        bulk_routes.run,
        "home",
        "Act on all workflows of a filter, in the background; repeated, returns the progress, or resumes it",
        parameters=(
            RouteParameter(
                "dry_run",
                "Change nothing: answer how many would move, and how many would be refused for which reason.",
                {"type": "boolean"},
            ),
            BY,
        ),
        body=wire.BulkBody,
        body_example={"machine": "order", "action": "send", "state": "charging", "event": "CANCEL"},
        answer=BulkRun,
        dry_answer=BulkPlan,
        answers=(200, 202),
        answer_example=_BULK_RUN,
        also=(404, 422),
    ),
    Endpoint(
        "DELETE",
        Scope.OPERATE,
        "/v1/bulk/{name}",
        bulk_routes.stop_run,
        "home",
        "Stop a bulk run before its next page; repeating its request resumes it",
        answer=BulkRun,
        answer_example=_BULK_RUN | {"state": "interrupted"},
        parameters=(BY,),
    ),
)
_DATABASES = (
    Endpoint(
        "POST",
        Scope.ADMIN,
        "/v1/databases/{name}/transactions",
        sql.transact,
        "home",
        "Run SQL statements as one durable transaction",
        body=wire.TransactionBody,
        body_example={
            "statements": [{"sql": "UPDATE stock SET n = n - $1 WHERE sku = $2", "params": [2, "A-1"]}],
            "key": "order-7",
        },
        answer=wire.ShownTransaction,
        answer_example={"results": [{"count": 1, "rows": None}]},
        also=(409, 422, 429),
        parameters=(BY,),
    ),
)
_WEBHOOKS = (
    # The signature of the source replaces the key, because a source cannot send a bearer token.
    Endpoint(
        "POST",
        None,
        "/v1/webhooks/{source}",
        webhooks.deliver,
        None,
        "Receive a webhook, verified by the signature of its scheme",
        parameters=(
            RouteParameter("webhook-id", "Standard Webhooks: the id of the delivery.", TEXT, "header"),
            RouteParameter("webhook-timestamp", "Standard Webhooks: seconds since the epoch.", TEXT, "header"),
            RouteParameter("webhook-signature", "Standard Webhooks: v1, and HMAC-SHA256 in base64.", TEXT, "header"),
        ),
        body=dict,
        body_example={"type": "charge.succeeded", "data": {"order": "o-1"}},
        answer=wire.ShownDelivery,
        also=(400, 401, 404, 413, 422, 429, 503),
    ),
)
_HEALTH = (
    _read(
        "/metrics",
        operator_routes.metrics,
        "home",
        "All metrics, for Prometheus",
        ignores_query=True,
        answer_media="text/plain",
        also=(501,),
    ),
    # Probes hold no workflow data. Neither do the pages, which request their data with the key of the viewer.
    Endpoint(
        "GET",
        None,
        "/healthz",
        operator_routes.health,
        None,
        "Whether this process works, or needs a restart",
        ignores_query=True,
        answer=wire.ShownHealth,
        answers=(200, 503),
    ),
    Endpoint(
        "GET",
        None,
        "/readyz",
        operator_routes.readiness,
        None,
        "Whether requests should be sent to this process",
        ignores_query=True,
        answer=wire.ShownHealth,
        answers=(200, 503),
    ),
)

ROUTES: tuple[Endpoint, ...] = tuple(
    msgspec.structs.replace(route, tag=tag)
    for tag, routes in {
        "Workflows": _WORKFLOWS,
        "Machines": _MACHINES,
        "Operating": _OPERATING,
        "Tasks": _TASKS,
        "Schedules": _SCHEDULES,
        "Pauses": _PAUSES,
        "Bulk": _BULK,
        "Databases": _DATABASES,
        "Webhooks": _WEBHOOKS,
        "Health": _HEALTH,
    }.items()
    for route in routes
)
