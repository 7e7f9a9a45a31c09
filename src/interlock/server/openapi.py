"""The OpenAPI document, generated from the table of routes and the structs of requests and answers.

It has examples of every problem, and requests for the served machines if the client may see them.
"""

import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

import msgspec

from interlock.runtime.bound import Bound
from interlock.server.examples import Examples, codes_for, machine_examples
from interlock.server.examples import components as problem_components
from interlock.server.problems import Problem, phrase
from interlock.server.routing import Route

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


def document(routes: Sequence[Route[Any]], *, root: str = "", machines: Sequence[Bound] = ()) -> dict[str, object]:
    """Return the document of an app that is mounted at `root`, with examples for these machines."""
    bodies = machine_examples(machines)
    visible = [route for route in routes if not route.hidden]
    types = {kind for route in visible for kind in (route.body, route.answer) if kind is not None and kind is not dict}
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
            "schemas": components,
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
    route: Route[Any], references: dict[type, dict[str, object]], bodies: Examples | None
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


def _operation_id(route: Route[Any]) -> str:
    words = re.findall(r"[a-z]+", route.path.removeprefix("/v1"))
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Route[Any]) -> Iterable[dict[str, object]]:
    for name in re.findall(r"{(\w+)}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": ID}


def _parameters(route: Route[Any]) -> Iterable[dict[str, object]]:
    for each in route.parameters:
        found: dict[str, object] = {
            "name": each.name,
            "in": each.place,
            "required": False,
            "description": each.description,
            "schema": each.schema,
        }
        yield found if each.example is None else {**found, "example": each.example}


def _responses(route: Route[Any], references: dict[type, dict[str, object]]) -> dict[str, object]:
    responses: dict[str, object] = {}
    for status in route.answers:
        schema: dict[str, object] = {"type": "string"} if route.answer is None else references[route.answer]
        if route.lists:
            schema = {
                "type": "object",
                "required": ["items", "cursor"],
                "properties": {
                    "items": {"type": "array", "items": schema},
                    "cursor": {"type": ["string", "null"]},
                },
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
