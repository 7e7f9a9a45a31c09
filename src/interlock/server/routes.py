"""The table of routes: path, handler, required scope and description of each.

The document at /openapi.json and the page at /docs are generated from it. `scope` and `about` decide who may use a
route. A test has both a second time for every route, so that no route can be opened by mistake.
"""

from collections.abc import Awaitable, Callable

from interlock.engine.dependencies.breakers import BreakerView
from interlock.engine.settings import Admission
from interlock.engine.views import Compensation, Counts, DeadLetter
from interlock.server import shapes
from interlock.server.handlers import batch, databases, operations, stream, webhooks, workflows
from interlock.server.handlers.services import Served
from interlock.server.request import Request
from interlock.server.response import Answer, Streamed
from interlock.server.routing import Handler, Parameter, Route
from interlock.server.security.scopes import Scope
from interlock.server.service import Service

TEXT: dict[str, object] = {"type": "string"}
NUMBER: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": 1_000}
CURSOR = Parameter("cursor", "The cursor of the previous page.", TEXT)
LIMIT = Parameter("limit", "Maximum number of items.", NUMBER, example=100)
MACHINE = Parameter("machine", "The name of a machine; without it, all machines.", TEXT, example="order")
STATE = Parameter("state", "Only workflows in this state.", TEXT, example="charging")
KEY = Parameter(
    "Idempotency-Key",
    "An event repeated with the same key applies once, and gets the first answer again.",
    {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "header",
    "click-7",
)
MATCH = Parameter("If-Match", "Apply only if the workflow has this version, which is its ETag.", TEXT, "header", '"3"')
IF_ALLOWED = Parameter(
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
}
MOVE: dict[str, object] = {"id": "o-1", "state": "charging", "version": 2, "duplicate": False, "ignored": False}


def _of_service(
    handler: Callable[[Service, Request], Awaitable[Answer | Streamed]],
) -> Handler[Served]:
    def call(served: Served, request: Request) -> Awaitable[Answer | Streamed]:
        return handler(served.service, request)

    return call


def _stream(served: Served, request: Request) -> Awaitable[Streamed]:
    return stream.stream(served.service, served.ring, request)


def _deliver(served: Served, request: Request) -> Awaitable[Answer]:
    return webhooks.deliver(served.service, served.webhooks, request)


_WORKFLOWS: tuple[Route[Served], ...] = (
    Route(
        method="POST",
        path="/v1/machines/{machine}/workflows",
        handler=_of_service(workflows.start),
        scope=Scope.SEND,
        about="machine",
        enters="start",
        summary="Start a workflow; repeated with the same id and context, returns the existing one",
        tag="Workflows",
        body=shapes.StartBody,
        body_example={"id": "o-1", "context": {"cents": 0}},
        answer=shapes.ShownWorkflow,
        answers=(200, 201),
        answer_example=WORKFLOW,
        problems=(400, 404, 409, 413, 429, 503),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}",
        handler=_of_service(workflows.get),
        scope=Scope.READ,
        about="workflow",
        summary="Get a workflow; its ETag is its version",
        tag="Workflows",
        answer=shapes.ShownWorkflow,
        answer_example=WORKFLOW,
        problems=(400, 404, 503),
    ),
    Route(
        method="POST",
        path="/v1/workflows/{id}/events",
        handler=_of_service(workflows.send),
        scope=Scope.SEND,
        about="workflow",
        enters="event",
        summary="Send an event; answered when its transition is durable",
        tag="Workflows",
        parameters=(KEY, MATCH, IF_ALLOWED),
        body=shapes.EventBody,
        body_example={"event": "SUBMIT", "data": {"cents": 999}},
        answer=shapes.ShownMove,
        answer_example=MOVE,
        problems=(400, 404, 409, 412, 413, 422, 429, 503),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/history",
        handler=_of_service(workflows.history),
        scope=Scope.READ,
        about="workflow",
        summary="The history of a workflow, in the order of versions",
        tag="Workflows",
        parameters=(
            Parameter("cursor", "Only rows after this version.", {"type": "integer", "minimum": 0}),
            Parameter("limit", "Maximum number of rows.", {"type": "integer", "minimum": 1, "maximum": 10_000}),
        ),
        answer=shapes.ShownRow,
        lists=True,
        problems=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/allowed",
        handler=_of_service(workflows.allowed),
        scope=Scope.READ,
        about="workflow",
        summary="The events that have a transition from the current state",
        tag="Workflows",
        parameters=(
            Parameter("event", "Also evaluate the guards of this event.", TEXT, example="SUBMIT"),
            Parameter("data", "Its fields, as JSON.", TEXT, example='{"cents": 5}'),
        ),
        answer=shapes.ShownAllowed,
        lists=True,
        problems=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/workflows",
        handler=_of_service(workflows.find),
        scope=Scope.READ,
        about="items",
        summary="Find workflows by machine and state, page by page",
        tag="Workflows",
        parameters=(MACHINE, STATE, CURSOR, LIMIT),
        answer=shapes.ShownWorkflow,
        lists=True,
        problems=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/stalled",
        handler=_of_service(workflows.stalled),
        scope=Scope.READ,
        about="items",
        summary="The active workflows that have been in their state for too long",
        tag="Workflows",
        parameters=(
            MACHINE,
            Parameter("older_than_s", "Longer than this; without it, than declared.", {"type": "number", "minimum": 0}),
            STATE,
            LIMIT,
        ),
        answer=shapes.ShownWorkflow,
        lists=True,
        problems=(400, 404, 503),
    ),
    Route(
        method="POST",
        path="/v1/events:batch",
        handler=_of_service(batch.send_batch),
        scope=Scope.SEND,
        about="items",
        summary="Send many events, one per line of JSON; answers one result or problem per line, in order",
        tag="Workflows",
        body=shapes.BatchLine,
        body_example='{"id": "o-1", "event": "SUBMIT", "data": {"cents": 5}, "key": "click-7"}\n',
        body_media="application/x-ndjson",
        answer_media="application/x-ndjson",
        problems=(400,),
    ),
)

_MACHINES: tuple[Route[Served], ...] = (
    Route(
        method="GET",
        path="/v1/machines",
        handler=_of_service(workflows.machines),
        scope=Scope.READ,
        about="items",
        summary="The machines, as plain data",
        tag="Machines",
        answer=dict,
        lists=True,
        problems=(400,),
    ),
    Route(
        method="GET",
        path="/v1/machines/{machine}",
        handler=_of_service(workflows.machine),
        scope=Scope.READ,
        about="machine",
        summary="One machine with its diagram, and with `counts` how many workflows are in each state",
        tag="Machines",
        parameters=(Parameter("counts", "Count the workflows in each state.", {"type": "boolean"}),),
        answer=dict,
        problems=(400, 404, 503),
    ),
)

_OPERATING: tuple[Route[Served], ...] = (
    Route(
        method="GET",
        path="/v1/compensations",
        handler=_of_service(operations.compensations),
        scope=Scope.READ,
        about="items",
        summary="The undos that are pending or being tried",
        tag="Operating",
        answer=Compensation,
        lists=True,
        problems=(400, 503),
    ),
    Route(
        method="GET",
        path="/v1/dead-letters",
        handler=_of_service(operations.dead_letters),
        scope=Scope.READ,
        about="items",
        summary="Dead letters, which wait for a person, oldest first",
        tag="Operating",
        parameters=(
            Parameter(
                "kind", "Only dead letters of this kind.", {"type": "string", "enum": ["step", "effect", "undo"]}
            ),
            Parameter("limit", "Maximum number of dead letters.", {"type": "integer", "minimum": 1, "maximum": 10_000}),
        ),
        answer=DeadLetter,
        lists=True,
        problems=(400, 503),
    ),
    Route(
        method="POST",
        path="/v1/dead-letters/{letter}/retry",
        handler=_of_service(operations.retry),
        scope=Scope.OPERATE,
        about="letter",
        summary="Retry a dead letter, with the same idempotency key and all its attempts",
        tag="Operating",
        answer=shapes.ShownRuling,
        answer_example={"id": "7e57…", "ruling": "retried"},
        problems=(400, 404, 413, 503),
    ),
    Route(
        method="POST",
        path="/v1/dead-letters/{letter}/resolve",
        handler=_of_service(operations.resolve),
        scope=Scope.OPERATE,
        about="letter",
        summary="Mark a dead letter as resolved by a person",
        tag="Operating",
        body=shapes.ResolveBody,
        body_example={"note": "refunded by hand"},
        answer=shapes.ShownRuling,
        answer_example={"id": "7e57…", "ruling": "resolved"},
        problems=(400, 404, 413, 503),
    ),
    Route(
        method="GET",
        path="/v1/breakers",
        handler=_of_service(operations.breakers),
        scope=Scope.READ,
        about="home",
        summary="The breakers of all dependencies, as this process has them",
        tag="Operating",
        answer=BreakerView,
        lists=True,
        problems=(400, 503),
    ),
    Route(
        method="PUT",
        path="/v1/breakers/{name}",
        handler=_of_service(operations.hold_breaker),
        scope=Scope.OPERATE,
        about="home",
        summary="Hold a breaker open or closed, return it to automatic, or change its dependency's limits",
        tag="Operating",
        body=shapes.BreakerBody,
        body_example={"state": "open"},
        answer=BreakerView,
        problems=(400, 404, 413, 503),
    ),
    Route(
        method="GET",
        path="/v1/contention",
        handler=databases.contention,
        scope=Scope.READ,
        about="items",
        summary="The rows and workflows that writers contend for, worst first",
        tag="Operating",
        answer=databases.ShownHot,
        lists=True,
        problems=(400, 503),
    ),
    Route(
        method="GET",
        path="/v1/stream",
        handler=_stream,
        scope=Scope.READ,
        about="items",
        summary="Events of the answering process, as server-sent events; Last-Event-ID resumes",
        tag="Operating",
        parameters=(
            MACHINE,
            Parameter("workflow", "Only this workflow.", TEXT),
            Parameter("kind", f"Only some of {', '.join(stream.KINDS)}.", TEXT, example="transition_applied"),
            Parameter("last_event_id", "As the header, for clients that cannot set headers.", TEXT),
            Parameter("Last-Event-ID", "Resume after this event.", TEXT, "header"),
        ),
        answer_media="text/event-stream",
        problems=(400, 404, 429),
    ),
)

_OTHERS: tuple[Route[Served], ...] = (
    Route(
        method="POST",
        path="/v1/databases/{name}/transactions",
        handler=databases.transact,
        scope=Scope.ADMIN,
        about="home",
        summary="Run SQL statements as one durable transaction",
        tag="Databases",
        body=shapes.TransactionBody,
        body_example={
            "statements": [{"sql": "UPDATE stock SET n = n - $1 WHERE sku = $2", "params": [2, "A-1"]}],
            "key": "order-7",
        },
        answer=shapes.ShownTransaction,
        answer_example={"results": [{"count": 1, "rows": None}]},
        problems=(400, 404, 409, 413, 422, 429, 503),
    ),
    # The signature of the source replaces the key, because a source cannot send a bearer token.
    Route(
        method="POST",
        path="/v1/webhooks/{source}",
        handler=_deliver,
        scope=None,
        summary="Receive a webhook, signed according to Standard Webhooks",
        tag="Webhooks",
        parameters=(
            Parameter("webhook-id", "The id of the delivery.", TEXT, "header"),
            Parameter("webhook-timestamp", "Seconds since the epoch.", TEXT, "header"),
            Parameter("webhook-signature", "v1, and HMAC-SHA256 in base64.", TEXT, "header"),
        ),
        body=dict,
        body_example={"type": "charge.succeeded", "data": {"order": "o-1"}},
        answer=shapes.ShownDelivery,
        problems=(400, 401, 404, 413, 422, 429, 503),
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=_of_service(operations.metrics),
        scope=Scope.READ,
        about="home",
        summary="All metrics, for Prometheus",
        tag="Health",
        answer_media="text/plain",
        problems=(501, 503),
    ),
    # Probes hold no workflow data. Neither do the pages, which request their data with the key of the viewer.
    Route(
        method="GET",
        path="/healthz",
        handler=_of_service(operations.health),
        scope=None,
        summary="Whether this process works, or needs a restart",
        tag="Health",
        answer=shapes.ShownHealth,
        answers=(200, 503),
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=_of_service(operations.readiness),
        scope=None,
        summary="Whether requests should be sent to this process",
        tag="Health",
        answer=shapes.ShownHealth,
        answers=(200, 503),
    ),
)

_ADMINISTRATION: tuple[Route[Served], ...] = (
    Route(
        method="GET",
        path="/v1/workflows/{id}/stats",
        handler=_of_service(operations.stats),
        scope=Scope.READ,
        about="workflow",
        summary="Outcomes of the events sent to a workflow: applied, duplicate, ignored, refused",
        tag="Workflows",
        answer=Counts,
        answer_example={"applied": 2, "duplicate": 1, "ignored": 0, "refused": 1},
        problems=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/wait",
        handler=_of_service(operations.wait),
        scope=Scope.READ,
        about="workflow",
        summary="Wait until a workflow is in a state; 408 when the time is over, 409 when it can never get there",
        tag="Workflows",
        parameters=(
            Parameter(
                "state",
                "A state, or several separated by commas; without it: a final or resting state.",
                TEXT,
                example="done",
            ),
            Parameter(
                "timeout_s",
                f"Longest wait in seconds; the default and the maximum are {operations.WAIT_S_MAX:g}.",
                {"type": "number", "minimum": 0, "maximum": 1e10},
                example=10,
            ),
        ),
        answer=shapes.ShownWorkflow,
        answer_example=WORKFLOW | {"state": "done", "version": 3, "updated_at": "2026-01-01T12:00:02Z"},
        problems=(400, 404, 408, 409, 429, 503),
    ),
    Route(
        method="PUT",
        path="/v1/limits/{name}",
        handler=_of_service(operations.set_limit),
        scope=Scope.OPERATE,
        about="home",
        summary="Change the limits of a dependency, in this process and until it ends",
        tag="Operating",
        body=operations.LimitBody,
        body_example={"rate_per_s": 50},
        answer=BreakerView,
        problems=(400, 404, 413, 503),
    ),
    Route(
        method="GET",
        path="/v1/admission",
        handler=_of_service(operations.admission),
        scope=Scope.READ,
        about="home",
        summary="Admission limits of this process: calls per second, burst, calls in flight",
        tag="Operating",
        answer=Admission,
        answer_example={"rate_per_s": 10000.0, "burst": 15000.0, "in_flight_max": 100000},
        problems=(400, 503),
    ),
    Route(
        method="PUT",
        path="/v1/admission",
        handler=_of_service(operations.set_admission),
        scope=Scope.OPERATE,
        about="home",
        summary="Change the admission limits of this process, until it ends",
        tag="Operating",
        body=operations.AdmissionBody,
        body_example={"rate_per_s": 500, "burst": 1000},
        answer=Admission,
        answer_example={"rate_per_s": 500.0, "burst": 1000.0, "in_flight_max": 100000},
        problems=(400, 413, 503),
    ),
    Route(
        method="POST",
        path="/v1/prune",
        handler=_of_service(operations.prune),
        scope=Scope.ADMIN,
        about="home",
        summary="Remove workflows that ended long ago, or their history; `more` says whether to ask again",
        tag="Operating",
        body=operations.PruneBody,
        body_example={"older_than_s": 2592000, "dry_run": True},
        answer=operations.ShownPruned,
        answer_example={"workflows": 12, "events": 60, "more": False},
        problems=(400, 413, 503),
    ),
)

ROUTES: tuple[Route[Served], ...] = (*_WORKFLOWS, *_MACHINES, *_OPERATING, *_OTHERS, *_ADMINISTRATION)
