"""The OpenAPI document and the page at /docs, generated from the table of routes and the structs of bodies.

The document has examples of every problem, and requests for the served machines if the client may see them. The page
loads nothing from other servers, and works without JavaScript.
"""

import contextlib
import functools
import html
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import NamedTuple, cast

import msgspec

import interlock.errors as errors  # noqa: PLR0402 -- `from interlock` would be a cycle to a type checker.
from interlock.engine.bound_machine import BoundMachine
from interlock.server.http_messages import PAGE, HttpAnswer, Request, json_answer
from interlock.server.problems import HTTP_KINDS, TITLES, Headers, HttpProblem, phrase, problem_of
from interlock.server.router import Endpoint, mounted_at
from interlock.server.routes import ROUTES
from interlock.server.security.keys import Scope
from interlock.server.service import Service
from interlock.wire import Problem, encode

EXAMPLES_MAX = 50
"""Examples of one request body: a server may have many machines with many events."""

DEPTH_MAX = 4
"""Levels below which optional members are left out: a type may contain itself."""

TEXTS = ("text", "2026-01-01T12:00:00Z", "12:00:00")
"""Values for a string without a format: the schema of a naive datetime or time does not name one."""

Examples = dict[str, dict[str, object]]
Schema = Mapping[str, object]


# --- Examples of problems --------------------------------------------------------------------------------------------
# A problem example is built from an error, as for an answer.


def _sample_errors() -> Iterable[errors.InterlockError]:
    rich = ("affordable", "The amount is between 1 cent and 100 euros.")
    yield errors.InvalidTransition(machine="order", state="done", event="SUBMIT", allowed=())
    yield errors.GuardRejected(
        machine="order", state="draft", event="SUBMIT", guards=[rich], allowed=["SUBMIT", "CANCEL"]
    )
    yield errors.InvalidPayload("there is no event 'SUMBIT'; the events are SUBMIT, CANCEL. Did you mean SUBMIT?")
    yield errors.PayloadTooLarge("the body of the request", size_bytes=3_000_000, limit_bytes=2_097_152)
    yield errors.LimitReached("100 databases are open already (databases_max).")
    yield errors.WorkflowNotFound("there is no workflow 'o-1'.")
    yield errors.WorkflowExists("workflow 'o-1' exists already, with other input.")
    yield errors.VersionConflict("workflow 'o-1' is at version 3, not 2.")
    since = datetime(2026, 1, 1, 12, tzinfo=UTC)
    yield errors.TaskClaimed("task 'o-1@3' cannot be claimed: ada has claimed it.", by="ada", since=since)
    yield errors.KeyReused("the key 'click-7' was used for another event of workflow 'o-1'.")
    yield errors.WaitFailed("workflow 'o-1' ended in state 'cancelled', not in 'done'.")
    yield errors.WaitTimeout("workflow 'o-1' did not reach the state 'done' within 10 s.")
    yield errors.TargetNotFound("there is no dead letter '7e57'.")
    yield errors.DialectError("PRAGMA is not a statement of this dialect.")
    yield errors.TransactionError("there is no table 'stokc'.")
    yield errors.ConstraintViolation("the CHECK constraint of table 'stock' refuses n = -1.")
    yield errors.NotAuthenticated("the request has no API key.")
    yield errors.NotPermitted("the key has no scope send; it has read.")
    bug = errors.UserCodeError(
        "order: guard affordable for SUBMIT in state 'draft' raised ZeroDivisionError: division by zero",
        machine="order",
        event="SUBMIT",
    )
    bug.correlation_id = "0b5fd0a1-6f6e-4c1e-9d51-1f6a3c0e7a42"  # Without an id the example would be logged as a bug.
    yield bug
    yield errors.UnavailableError("the store does not answer.")
    yield errors.MachineMismatch(
        "workflow 'o-1' was stored by version 2 of machine 'order'; this process runs version 1."
    )
    yield errors.Overloaded(1.5)
    yield errors.OutcomeUnknown("the request took longer than 60 s.")
    yield errors.InternalError("Something unexpected happened; it is in the server's log as 0b5fd0a1.")


@functools.cache
def problem_examples() -> dict[str, Problem]:
    """An example for each code that a client may receive."""
    found = {error.code: problem_of(error) for error in _sample_errors()}
    for code, kind in HTTP_KINDS.items():
        error = HttpProblem(code, kind.example, why="The answer says why.", fix="The answer says how to go on.")
        found[code] = problem_of(error)
    return found


def problem_components() -> Examples:
    """Return the examples by code, for the components of the document."""
    return {code: {"summary": TITLES[code], "value": value} for code, value in problem_examples().items()}


_CODES: dict[int, tuple[str, ...]] = {
    400: ("invalid-payload",),
    401: ("not-authenticated",),
    403: ("not-permitted",),
    404: ("machine-not-found",),
    408: ("request-timeout",),
    409: ("limit-reached",),
    412: ("version-conflict",),
    413: ("payload-too-large",),
    415: ("unsupported-media-type",),
    422: ("guard-rejected", "key-reused"),
    429: ("overloaded",),
    500: ("internal", "user-code-error"),
    501: ("no-metrics",),
    503: ("unavailable", "outcome-unknown"),
}
_CODES_BELOW: dict[tuple[int, str], tuple[str, ...]] = {
    (400, "/v1/databases"): ("invalid-payload", "dialect"),
    (401, "/v1/webhooks"): ("bad-signature",),
    (404, "/v1/workflows/{"): ("workflow-not-found",),
    (404, "/v1/pauses"): ("machine-not-found", "workflow-not-found"),
    (404, "/v1/tasks"): ("workflow-not-found", "machine-not-found"),
    (404, "/v1/dead-letters"): ("target-not-found", "machine-not-found"),
    (404, "/v1/breakers"): ("breaker-not-found",),
    (404, "/v1/limits"): ("breaker-not-found",),
    (404, "/v1/databases"): ("database-not-found",),
    (404, "/v1/webhooks"): ("webhook-not-found", "workflow-not-found"),
    (408, "/v1/workflows/{id}/wait"): ("wait-timeout", "request-timeout"),
    (409, "/v1/machines/{machine}/workflows"): ("workflow-exists",),
    (409, "/v1/workflows/{id}/events"): ("invalid-transition",),
    (409, "/v1/workflows/{id}/wait"): ("wait-failed",),
    (409, "/v1/tasks/{task}/"): ("task-claimed", "version-conflict"),
    (409, "/v1/tasks"): ("version-conflict",),
    (409, "/v1/pauses"): ("workflow-exists", "invalid-transition"),
    (409, "/v1/databases"): ("transaction", "limit-reached"),
    (422, "/v1/databases"): ("constraint-violation", "transaction", "key-reused"),
    (503, "/v1/workflows/{id}/events"): ("unavailable", "outcome-unknown", "machine-mismatch"),
}


def codes_for(path: str, status: int) -> tuple[str, ...]:
    """Return the codes of a route's answers with a status, the usual one first."""
    below = (codes for (each, begin), codes in _CODES_BELOW.items() if each == status and path.startswith(begin))
    return next(below, _CODES[status])


# --- Examples of requests --------------------------------------------------------------------------------------------
# An example of a context or payload is built from its JSON schema. It is used only if the machine can decode it,
# because a schema does not express every check of a class.


def machine_examples(bounds: Sequence[BoundMachine]) -> dict[str, Examples]:
    """Return an example of each start and each event of the machines, by the path of its route."""
    starts: Examples = {}
    events: Examples = {}
    lines: Examples = {}
    for bound in bounds:
        described, workflow = bound.machine.describe(), f"{bound.name}-1"
        context = _read_by(bound, None, described.context_schema)
        if len(starts) < EXAMPLES_MAX and context is not None:
            starts[bound.name] = {"summary": f"Start {bound.name}", "value": {"id": workflow, "context": context}}
        for event in described.events:
            data = _read_by(bound, event.name, event.schema)
            if len(events) >= EXAMPLES_MAX or data is None:
                continue
            name, summary = f"{bound.name}.{event.name}", f"Send {event.name} to {bound.name}"
            value = {"event": event.name, "data": data}
            events[name] = {"summary": summary, "value": value}
            lines[name] = {"summary": summary, "value": encode({"id": workflow, **value}).decode() + "\n"}
    return {"/v1/machines/{machine}/workflows": starts, "/v1/workflows/{id}/events": events, "/v1/events:batch": lines}


def _read_by(bound: BoundMachine, event: str | None, schema: Schema) -> object:
    """Return an example that the machine decodes as this event, or as its context; None if there is no such example."""
    for text in TEXTS:
        value = example_of(schema, text)
        try:
            data = encode(value)
            if event is None:
                bound.codec.decode_context(data, strict=True)
            else:
                bound.codec.decode_event(event, data, strict=True)
        except (errors.InterlockError, TypeError, msgspec.MsgspecError):
            continue
        return value
    return None


def example_of(schema: Schema, text: str = TEXTS[0]) -> object:
    """Return a value that fits a JSON schema as msgspec writes it; `text` is the value of a string without a format."""
    return _example(schema, _Known(cast("Mapping[str, Schema]", schema.get("$defs", {})), text), 0)


class _Known(NamedTuple):
    definitions: Mapping[str, Schema]
    text: str


def _example(schema: Schema, known: _Known, depth: int) -> object:
    if "$ref" in schema:
        return _example(known.definitions[str(schema["$ref"]).rpartition("/")[2]], known, depth)
    if "anyOf" in schema:
        choices = [each for each in cast("Sequence[Schema]", schema["anyOf"]) if each.get("type") != "null"]
        optional = len(choices) < len(cast("Sequence[Schema]", schema["anyOf"]))
        return None if not choices or (optional and depth >= DEPTH_MAX) else _example(choices[0], known, depth + 1)
    values = [schema[name] for name in ("default", "const") if name in schema]
    values += [cast("Sequence[object]", schema[name])[0] for name in ("examples", "enum") if schema.get(name)]
    return values[0] if values else _plain(schema, known, depth)


def _plain(schema: Schema, known: _Known, depth: int) -> object:
    """Return an example for a schema that names one type, or no type: then any JSON fits."""
    kind = schema.get("type")
    if kind == "object":
        members = cast("Mapping[str, Schema]", schema.get("properties", {}))
        needed = cast("Sequence[str]", schema.get("required", ()))
        wanted = [name for name in members if name in needed or depth < DEPTH_MAX]
        return {name: _example(members[name], known, depth + 1) for name in wanted}
    if kind == "array":
        return _array(schema, known, depth)
    if kind == "string":
        return _text(schema, known.text)
    if kind in {"integer", "number"}:
        return _number(schema)
    if kind is None:
        return cast("dict[str, object]", {})
    return True if kind == "boolean" else None


def _array(schema: Schema, known: _Known, depth: int) -> list[object]:
    first = cast("Sequence[Schema]", schema.get("prefixItems", ()))
    if first:
        return [_example(each, known, depth + 1) for each in first]
    items, least = schema.get("items"), cast("int", schema.get("minItems", 0))
    if not isinstance(items, dict) or depth >= DEPTH_MAX > least:
        return []
    return [_example(cast("Schema", items), known, depth + 1)] * max(1, least)


_FORMATS = {
    "date-time": "2026-01-01T12:00:00Z",
    "date": "2026-01-01",
    "time": "12:00:00",
    "duration": "PT60S",
    "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "decimal": "19.90",
}


def _text(schema: Schema, text: str) -> str:
    known = _FORMATS.get(str(schema.get("format")))
    if known is not None:
        return known
    text = "aGVsbG8=" if schema.get("contentEncoding") == "base64" else text
    return text.ljust(cast("int", schema.get("minLength", 0)), "x")[: cast("int", schema.get("maxLength", len(text)))]


def _number(schema: Schema) -> int | float:
    least = cast("float", schema.get("minimum", cast("float", schema.get("exclusiveMinimum", 0)) + 1))
    step = cast("float", schema.get("multipleOf", 1))
    value = max(step, -(-least // step) * step)
    most = cast("float", schema.get("maximum", cast("float", schema.get("exclusiveMaximum", value + 1)) - 1))
    found = min(value, most)
    return int(found) if schema.get("type") == "integer" else float(found)


# --- Components of machines ------------------------------------------------------------------------------------------
# A client that is generated from the document knows the contexts and the events of each machine, and its states.

COMPONENTS_MAX = 2_000
"""Components of machines: a server may have many machines with many events."""


def machine_components(bounds: Sequence[BoundMachine]) -> dict[str, Schema]:
    """Return the schemas of each machine's context, workflow and events, by the names of their components."""
    found: dict[str, Schema] = {}
    for bound in bounds:
        described = bound.machine.describe()
        machine = component_name(described.name)
        found |= _hoisted(f"{machine}.Context", machine, described.context_schema)
        own = {
            "machine": {"const": described.name},
            "state": {"enum": [state.name for state in described.states]},
            "context": _reference(f"{machine}.Context"),
        }
        narrowed = {"type": "object", "properties": own}
        found[f"{machine}.Workflow"] = {"allOf": [_reference("ShownWorkflow"), narrowed]}
        bodies: list[Schema] = []
        for event in described.events:
            name = f"{machine}.{component_name(event.name)}"
            found |= _hoisted(f"{name}.Data", machine, event.schema)
            members = {"event": {"const": event.name}, "data": _reference(f"{name}.Data")}
            found[name] = {"type": "object", "required": ["event"], "properties": members}
            bodies.append(_reference(name))
        if bodies:
            found[f"{machine}.Event"] = {"description": f"A body that sends an event to {machine}.", "oneOf": bodies}
    return dict(itertools.islice(found.items(), COMPONENTS_MAX))


def component_name(name: str) -> str:
    """Return the name of a component: other characters than OpenAPI allows become an underscore."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _reference(name: str) -> dict[str, object]:
    return {"$ref": TEMPLATE.format(name=name)}


def _hoisted(name: str, machine: str, schema: Schema) -> dict[str, Schema]:
    """Return a schema and its definitions as components, which refer to each other by their new names."""
    definitions = cast("Mapping[str, Schema]", schema.get("$defs", {}))
    names = {f"#/$defs/{each}": f"{machine}.{component_name(each)}.Type" for each in definitions}
    whole = {key: value for key, value in schema.items() if key != "$defs"}
    moved = {f"{machine}.{component_name(each)}.Type": value for each, value in definitions.items()}
    return {each: cast("Schema", _renamed(value, names)) for each, value in {name: whole, **moved}.items()}


def _renamed(value: object, names: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        target = members.get("$ref")
        if isinstance(target, str) and target in names:
            return {**members, **_reference(names[target])}
        return {name: _renamed(each, names) for name, each in members.items()}
    return [_renamed(each, names) for each in cast("list[object]", value)] if isinstance(value, list) else value


# --- Document --------------------------------------------------------------------------------------------------------

TEMPLATE = "#/components/schemas/{name}"
EXAMPLE = "#/components/examples/"
PROBLEM = "application/problem+json"

ID: dict[str, object] = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[^/]+$"}

ALWAYS = (401, 403, 408, 500)
"""Problem statuses of every route that needs a key."""

DESCRIPTION = (
    "Durable state-machine workflows. Errors are problem documents (RFC 9457): `title` names the type of the problem, "
    "`detail` says what happened and why, `fix` is how to go on, `code` is stable. Requests with an Idempotency-Key "
    "can be repeated safely."
)


def document(routes: Sequence[Endpoint], *, root: str = "", machines: Sequence[BoundMachine] = ()) -> dict[str, object]:
    """Return the document of an app that is mounted at `root`, with examples and components for these machines."""
    bodies = machine_examples(machines)
    visible = [route for route in routes if route.summary]
    types = {
        kind
        for route in visible
        for kind in (route.body, route.answer, route.dry_answer)
        if kind is not None and kind is not dict
    }
    ordered = sorted(types, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(
        [*ordered, Problem], schema_hook=_anything, ref_template=TEMPLATE
    )
    references: dict[type, dict[str, object]] = dict(zip([*ordered, Problem], schemas, strict=True))
    references[dict] = {"type": "object"}
    paths: dict[str, dict[str, object]] = {}
    for route in visible:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, references, bodies.get(route.path))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Interlock", "version": _version(), "description": DESCRIPTION},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": {**components, **machine_components(machines)},
            "examples": problem_components(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


def _anything(kind: type) -> dict[str, object]:
    """Return the schema of a value of any type: a parameter of SQL, a column, a key."""
    assert kind is object, kind
    return {"description": "Any JSON."}


def _version() -> str:
    try:
        return metadata.version("interlock")
    except metadata.PackageNotFoundError:
        return "source"


def _operation(
    route: Endpoint, references: dict[type, dict[str, object]], bodies: Examples | None
) -> dict[str, object]:
    operation: dict[str, object] = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_parameters(route)],
        "responses": _responses(route, references),
    }
    if route.scope is not None:
        operation["security"] = [{}, {"key": []}]
        operation["description"] = f"Needs a key with the scope `{route.scope}` where keys are in use."
    if route.body is not None:
        schema = references[route.body] if route.body_media == "application/json" else {"type": "string"}
        example: dict[str, object] = {"examples": bodies} if bodies else {"example": route.body_example}
        operation["requestBody"] = {"required": True, "content": {route.body_media: {"schema": schema, **example}}}
    return operation


def _operation_id(route: Endpoint) -> str:
    words = re.findall(r"[a-z]+", route.path.removeprefix("/v1"))
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Endpoint) -> Iterable[dict[str, object]]:
    for name in re.findall(r"{(\w+)}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": ID}


def _parameters(route: Endpoint) -> Iterable[dict[str, object]]:
    for each in route.parameters:
        found: dict[str, object] = {
            "name": each.name,
            "in": each.place,
            "required": False,
            "description": each.description,
            "schema": each.schema,
        }
        yield found if each.example is None else {**found, "example": each.example}


def _responses(route: Endpoint, references: dict[type, dict[str, object]]) -> dict[str, object]:
    responses: dict[str, object] = {}
    for status in route.answers:
        schema: dict[str, object] = {"type": "string"} if route.answer is None else references[route.answer]
        if route.dry_answer is not None:
            schema = {"anyOf": [schema, references[route.dry_answer]]}
        if route.lists:
            schema = {
                "type": "object",
                "required": ["items", "cursor"],
                "properties": {"items": {"type": "array", "items": schema}, "cursor": {"type": ["string", "null"]}},
            }
        content: dict[str, object] = {"schema": schema}
        if route.answer_example is not None:
            content["example"] = route.answer_example
        responses[str(status)] = {"description": phrase(status), "content": {route.answer_media: content}}
    problems = {*route.problems, *(ALWAYS if route.scope is not None else (403, 408, 500))}
    if route.body is not None:
        problems.add(415)
    for status in sorted(problems):
        responses[str(status)] = {
            "description": phrase(status),
            "content": {
                PROBLEM: {
                    "schema": references[Problem],
                    "examples": {code: {"$ref": EXAMPLE + code} for code in codes_for(route.path, status)},
                }
            },
        }
    return responses


# --- Pages -----------------------------------------------------------------------------------------------------------

VARY: Headers = ((b"vary", b"accept"),)
CSS: Headers = ((b"content-type", b"text/css; charset=utf-8"),)

STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --strong: #0a6; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; margin: 1rem 0; }
article h3 { margin: 0; font: 600 1rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
article h3 b { color: var(--strong); margin-right: .5rem; }
p { margin: .5rem 0; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .5rem .75rem; border-radius: .25rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: .25rem .5rem; vertical-align: top; }
"""


async def openapi(service: Service, request: Request) -> HttpAnswer:
    """The OpenAPI document."""
    return json_answer(await _document(service, request, "/openapi.json"))


async def _document(service: Service, request: Request, path: str) -> dict[str, object]:
    """Return the document, with examples and components for the machines that the client's key may read."""
    return document(ROUTES, root=mounted_at(request.scope, path), machines=await _readable(service, request))


async def _readable(service: Service, request: Request) -> list[BoundMachine]:
    """Return the machines that the client may read; none without a key, where keys are in use."""
    bounds: list[BoundMachine] = []
    with contextlib.suppress(errors.NotAuthenticated, errors.NotPermitted, errors.UnavailableError):
        await service.guard.fresh()
        identity = service.guard.identify(request.headers)
        identity.require(Scope.READ)
        bounds = [bound for bound in service.select_machines(None) if identity.allows(bound.name, None)]
    return bounds


async def docs(service: Service, request: Request) -> HttpAnswer:
    """Return the page about all routes, or the document for a client that accepts JSON but not HTML."""
    wanted = request.header(b"accept") or ""
    if "json" in wanted and "html" not in wanted:
        return json_answer(await _document(service, request, "/docs"), headers=VARY)
    return HttpAnswer(200, page(await _readable(service, request)).encode(), PAGE + VARY, secured=True)


async def style(_service: Service, _request: Request) -> HttpAnswer:
    """Return the style sheet of the page."""
    return HttpAnswer(200, STYLE.encode(), CSS)


def page(machines: Sequence[BoundMachine] = ()) -> str:
    """Render the page about all routes and these machines as HTML. Everything in it is escaped."""
    tags = dict.fromkeys(route.tag for route in ROUTES)
    parts = [f"<h2>{html.escape(tag)}</h2>" + "".join(_article(r) for r in ROUTES if r.tag == tag) for tag in tags]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Interlock: HTTP</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="docs/style.css"></head><body>'
        "<h1>Interlock over HTTP</h1>"
        "<p>JSON in and out. Errors are problem documents (RFC 9457): <code>title</code> names the type of "
        "the problem, <code>detail</code> says what happened and why, <code>fix</code> is how to go on, "
        "<code>code</code> is stable. "
        'The same as <a href="openapi.json">OpenAPI 3.1</a>.</p>'
        + "".join([*map(_machine_section, machines), *parts])
        + "</body></html>"
    )


def _machine_section(bound: BoundMachine) -> str:
    """Render how to start a workflow of a machine, and its events with an example of each."""
    described, examples = bound.machine.describe(), machine_examples([bound])
    starts, events = examples["/v1/machines/{machine}/workflows"], examples["/v1/workflows/{id}/events"]
    states = ", ".join(f"<code>{html.escape(state.name)}</code>" for state in described.states)
    parts = [f"<h2>Machine {html.escape(described.name)}</h2><p>States: {states}.</p>"]
    bodies = {"Context": starts.get(described.name)}
    bodies |= {event.name: events.get(f"{described.name}.{event.name}") for event in described.events}
    for name, example in bodies.items():
        component = f"{component_name(described.name)}.{component_name(name)}"
        sent = "" if example is None else f"<pre>{_example_html(example['value'])}</pre>"
        title = "Start a workflow" if name == "Context" else f"Send {name}"
        parts.append(
            f"<article><h3>{html.escape(title)}</h3><p>Schema: <code>{component}</code> in "
            f'<a href="openapi.json">OpenAPI</a>.</p>{sent}</article>'
        )
    return "".join(parts)


def _article(route: Endpoint) -> str:
    parts = [f"<article><h3><b>{route.method}</b>{html.escape(route.path)}</h3><p>{html.escape(route.summary)}.</p>"]
    if route.scope is not None:
        parts.append(f"<p>Scope: <code>{route.scope}</code></p>")
    if route.parameters:
        rows = "".join(
            f"<tr><td><code>{html.escape(each.name)}</code></td><td>{each.place}</td><td>{html.escape(each.description)}</td></tr>"
            for each in route.parameters
        )
        parts.append(f"<table>{rows}</table>")
    if route.body_example is not None:
        parts.append(f"<p>Send <code>{route.body_media}</code>:</p><pre>{_example_html(route.body_example)}</pre>")
    statuses = ", ".join(f"{status} {phrase(status)}" for status in (*route.answers, *route.problems))
    parts.append(f"<p>Answers: {html.escape(statuses)}</p>")
    if route.answer_example is not None:
        parts.append(f"<pre>{_example_html(route.answer_example)}</pre>")
    return "".join(parts) + "</article>"


def _example_html(value: object) -> str:
    return html.escape(value if isinstance(value, str) else encode(value).decode())


PAGES: tuple[Endpoint, ...] = tuple(
    Endpoint("GET", None, path, handler, ignores_query=handler is style)
    for path, handler in (("/openapi.json", openapi), ("/docs", docs), ("/docs/style.css", style))
)
