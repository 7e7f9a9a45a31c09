"""The document held against the server: schemathesis asks, nothing answers 5xx or otherwise than described."""

import contextlib
import re
from collections.abc import Generator
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.server.running import END_S, in_thread


@schemathesis.serializer("application/x-ndjson")
def lines(ctx: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ANN401 -- as schemathesis calls it.
    """A batch is described as a text."""
    del ctx
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
EXAMPLES = 10


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    """A server in a thread."""
    with in_thread() as found:
        yield found


@pytest.mark.slow
def test_every_answer_is_as_described(url: str) -> None:
    """Each operation is asked with what fits its description, and with what does not."""
    api = schemathesis.openapi.from_url(f"{url}/openapi.json").exclude(path="/v1/stream")
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    asked = 0
    for result in api.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        for mode in modes:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            def ask(case: "schemathesis.Case[Any]") -> None:
                nonlocal asked
                asked += 1
                case.call_and_validate(checks=[*CHECKS], timeout=END_S)

            with contextlib.suppress(Unsatisfiable):  # An operation that takes anything cannot be asked wrongly.
                ask()
    assert asked > 100


METHODS = ("GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE")


@pytest.mark.slow
def test_a_method_that_the_document_does_not_have_is_405(url: str) -> None:
    document = httpx.get(f"{url}/openapi.json", timeout=END_S).json()
    for path, described in document["paths"].items():
        known = {method.upper() for method in described}
        target = re.sub(r"{(\w+)}", "x", path)
        for method in METHODS:
            if method not in known and not (method == "HEAD" and "GET" in known):
                answer = httpx.request(method, url + target, timeout=END_S)
                assert answer.status_code == 405, (method, path)
                assert {each.strip() for each in answer.headers["allow"].split(",")} == known


def test_a_stream_is_as_described(url: str) -> None:
    """It has no end, so it is looked at by its beginning; what it refuses is a problem document."""
    asked = {"machine": "order", "last_event_id": "x-1"}
    with httpx.stream("GET", f"{url}/v1/stream", params=asked, timeout=END_S) as answer:
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert b"event: reset" in next(answer.iter_raw())
    for params, status in (({"machine": "none"}, 404), ({"kind": "none"}, 400), ({"surprise": "1"}, 400)):
        refused = httpx.get(f"{url}/v1/stream", params=params, timeout=END_S)
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")


def _examples(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    """What a body may look like: one example, or some by name, here or among the components."""
    if "examples" not in content:
        return [] if content.get("example") is None else [content["example"]]
    known = document["components"]["examples"]
    named = [
        known[each["$ref"].rpartition("/")[2]] if "$ref" in each else each for each in content["examples"].values()
    ]
    return [each["value"] for each in named]


def test_every_example_of_the_document_fits_its_schema(url: str) -> None:
    document = httpx.get(f"{url}/openapi.json", timeout=END_S).json()
    checked = 0
    for path, described in document["paths"].items():
        for operation in described.values():
            contents = [*operation.get("requestBody", {}).get("content", {}).items()]
            contents += [each for answer in operation["responses"].values() for each in answer["content"].items()]
            for _, content in contents:
                for example in _examples(document, content):
                    _validated(document, content["schema"], example, path)
                    checked += 1
            for parameter in operation["parameters"]:
                if "example" in parameter:
                    _validated(document, parameter["schema"], parameter["example"], path)
                    checked += 1
    assert checked > 50
    bodies = [each for path in document["paths"].values() for each in path.values() if "requestBody" in each]
    examples = [_examples(document, content) for each in bodies for content in each["requestBody"]["content"].values()]
    assert all(examples), "every body has an example"


def _validated(document: dict[str, Any], schema: dict[str, Any], example: object, where: str) -> None:
    whole = {**schema, "components": document["components"]}
    errors = [each.message for each in jsonschema_rs.Draft202012Validator(whole).iter_errors(example)]
    assert not errors, (where, errors)
