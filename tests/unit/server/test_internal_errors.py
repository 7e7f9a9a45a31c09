"""B15: a bug in a guard or an action is 500 with the id of its log line, and never blamed on the client."""

import logging
import math
from dataclasses import dataclass, replace
from enum import Enum

import pytest

from interlock import Event, Machine
from tests.unit.server.serving import Served, problem, served

SECRET = "Q9secretQ9"


class State(Enum):
    OPEN = "open"
    SHUT = "shut"


@dataclass(frozen=True)
class Bin:
    count: int = 0
    weight: float = 0.0


class BinEvent(Event):
    pass


@dataclass(frozen=True)
class Put(BinEvent):
    how: str = ""


@dataclass(frozen=True)
class Shut(BinEvent):
    pass


def fits(context: Bin, event: Put) -> bool:
    if event.how == "guard":
        raise KeyError(f"password={SECRET}")
    return True


bins = Machine("bin", states=State, context=Bin, events=BinEvent, initial=State.OPEN, final={State.SHUT})
bins.on(Shut, State.OPEN, to=State.SHUT)


@bins.on(Put, State.OPEN, when=fits)
def put(context: Bin, event: Put) -> Bin:
    match event.how:
        case "action":
            raise KeyError(f"password={SECRET}")
        case "another type":
            return {"count": 1}  # type: ignore[return-value]
        case "mistyped field":
            return replace(context, count="one")  # type: ignore[arg-type]
        case "not a number":
            return replace(context, weight=math.nan)
        case _:
            return replace(context, count=object())  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["guard", "action", "another type", "mistyped field", "not a number", "no JSON"])
def test_a_bug_is_500_with_the_correlation_id_of_its_log_line(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: Served) -> None:
        await app.start("b-1", "bin")
        response = await app.send("PUT", "b-1", how=how)
        document = problem(response, 500, "user-code-error")
        [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert document["correlation_id"] == record.__dict__["correlation_id"]
        assert (document["machine"], document["event"]) == ("bin", "PUT")
        assert record.__dict__["order_id"] == "b-1"
        assert "Traceback (most recent call last)" in (record.exc_text or "")
        assert "below" not in response.text
        assert SECRET not in response.text + caplog.text

    served(test, machines=[bins])


def test_a_bug_in_a_batch_has_its_correlation_id(caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: Served) -> None:
        await app.start("b-1", "bin")
        lines = b'{"id": "b-1", "event": "PUT", "data": {"how": "action"}}\n'
        response = await app.post("/v1/events:batch", content=lines, headers={"content-type": "application/x-ndjson"})
        [record] = [each for each in caplog.records if each.levelno >= logging.ERROR]
        assert record.__dict__["correlation_id"] in response.text

    served(test, machines=[bins])
