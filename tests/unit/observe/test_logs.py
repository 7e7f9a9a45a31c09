"""C13: logs as JSON, with the workflow, its state and step, how long it took, and the trace."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider

from interlock import Engine, InvalidTransition
from interlock.engine.alerts import Alarms, Alert
from interlock.observe.logs import JsonFormatter, Logs, log_as_json, log_as_text
from interlock.observe.otel import OpenTelemetry
from interlock.signals import AlertRaised, BreakerChanged, ResultLate, StepAttempted, Subscribers, TransitionApplied
from tests.unit.observe.tickets import Buy, Paid, Ticket, tickets


class Written:
    """What was logged, as it was written."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def written() -> Iterator[Written]:
    stream, root = io.StringIO(), logging.getLogger()
    own = logging.getLogger("interlock")  # A command that ran in this process has set its level.
    before, own_before = root.level, own.level
    own.setLevel(logging.NOTSET)
    handler = log_as_json(level=logging.DEBUG, stream=stream)
    yield Written(stream)
    root.removeHandler(handler)
    root.setLevel(before)
    own.setLevel(own_before)


def test_a_text_has_time_and_level_and_a_line_for_each_retry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])
    log_as_text()
    monkeypatch.setattr(logging.getLogger("interlock"), "level", logging.INFO)
    logs = Logs()
    charge: tuple[str, str, str, str, Literal["step"]] = ("order", "o-1", "paying", "charge", "step")
    logs(StepAttempted(*charge, 1, "retryable", 0.1, "OSError", "the bank\nis away"))
    logs(StepAttempted(*charge, 2, "retryable", 0.1, "retryable", "the bank answered 503"))
    logs(StepAttempted(*charge, 3, "timeout", 4.0, "timeout"))
    logs(StepAttempted(*charge, 4, "done", 0.1))
    logging.getLogger("interlock.operators").warning("the breaker is open; password=hidden")
    root.setLevel(level)
    [retry, again, late, warning] = capsys.readouterr().err.splitlines()
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.fullmatch(
        rf"{when} INFO    step charge of o-1, attempt 1: retryable \(OSError: the bank is away\)", retry
    )
    assert again.endswith("step charge of o-1, attempt 2: retryable (the bank answered 503)")
    assert late.endswith("step charge of o-1, attempt 3: timeout")
    assert re.fullmatch(rf"{when} WARNING the breaker is open; password=\S+", warning)
    assert "hidden" not in warning


def test_a_line_of_a_step_has_its_workflow_and_its_trace(written: Written) -> None:
    async def scenario() -> None:
        machine = tickets(lambda: logging.getLogger("shop").info("asking the bank"))
        tracing = OpenTelemetry(tracer_provider=TracerProvider(shutdown_on_exit=False))
        async with Engine.open("memory:", machines=[machine], observers=[tracing]) as engine:
            await engine.start(machine, "t-1", Ticket())
            await engine.send("t-1", Buy())
            await engine.wait("t-1")

    asyncio.run(scenario())
    [line] = [each for each in written.lines if each["logger"] == "shop"]
    assert (line["order_id"], line["machine"], line["state"], line["step"]) == ("t-1", "ticket", "paying", "paying")
    assert (line["level"], line["message"]) == ("INFO", "asking the bank")
    assert len(str(line["trace_id"])) == 32
    assert len(str(line["span_id"])) == 16
    assert str(line["time"]).endswith("+00:00")


def test_transitions_and_attempts_are_lines_with_their_duration_at_debug(written: Written) -> None:
    async def scenario() -> None:
        machine = tickets()
        async with Engine.open("memory:", machines=[machine], observers=["logs"]) as engine:
            await engine.start(machine, "t-1", Ticket())
            await engine.send("t-1", Buy())
            await engine.wait("t-1")
            with pytest.raises(InvalidTransition):
                await engine.send("t-1", Paid())

    asyncio.run(scenario())
    lines = [each for each in written.lines if each["logger"] == "interlock.transitions"]
    moved = [each for each in lines if "moved" in str(each["message"])]
    assert [each["state"] for each in moved] == ["open", "paying", "booking", "done"]
    assert all(isinstance(each["duration_ms"], float) and each["order_id"] == "t-1" for each in moved)
    [paying] = [each for each in lines if each.get("step") == "paying" and "attempt" in str(each["message"])]
    assert "done" in str(paying["message"])
    [refused] = [each for each in lines if "refused" in str(each["message"])]
    assert (refused["state"], refused["level"]) == ("done", "INFO")


def test_lines_of_one_group_have_each_the_trace_of_its_own_workflow(written: Written) -> None:
    """A group decides for many, and is begun by one of them: that one's step and trace are not the others'."""

    async def scenario() -> None:
        machine, provider = tickets(), TracerProvider(shutdown_on_exit=False)
        tracer = provider.get_tracer("caller")
        tracing = OpenTelemetry(tracer_provider=provider)

        async def refused(workflow: str) -> None:
            with tracer.start_as_current_span(workflow) as span:
                callers[workflow] = f"{span.get_span_context().trace_id:032x}"
                with pytest.raises(InvalidTransition):
                    await engine.send(workflow, Paid())

        async with Engine.open("memory:", machines=[machine], observers=["logs", tracing]) as engine:
            for workflow in ids:
                await engine.start(machine, workflow, Ticket())
            await asyncio.gather(*map(refused, ids))
            await asyncio.gather(*(engine.send(workflow, Buy()) for workflow in ids))
            await asyncio.gather(*map(engine.wait, ids))

    ids, callers = [f"t-{number}" for number in range(5)], dict[str, str]()
    asyncio.run(scenario())
    lines = [each for each in written.lines if each["logger"] == "interlock.transitions"]
    assert {each["order_id"]: each["trace_id"] for each in lines if "refused" in str(each["message"])} == callers
    moved = [each for each in lines if "moved from" in str(each["message"])]
    assert not [each for each in moved if "step" in each]
    passes = {workflow: {each["trace_id"] for each in moved if each["order_id"] == workflow} for workflow in ids}
    assert all(len(each) == 2 for each in passes.values()), "that of its start, and one for all that follows"
    assert len(set[object]().union(*passes.values())) == 10


def test_transitions_are_not_even_asked_for_unless_somebody_reads_them() -> None:
    assert TransitionApplied not in Logs().only_signals
    logging.getLogger("interlock.transitions").setLevel(logging.DEBUG)
    try:
        assert TransitionApplied in Logs().only_signals
    finally:
        logging.getLogger("interlock.transitions").setLevel(logging.NOTSET)


def test_what_needs_a_person_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logs = Logs()
    logs(BreakerChanged("bank", "closed", "open", "5 failures"))
    logs(BreakerChanged("bank", "open", "half_open", "30 s are over"))
    logs(AlertRaised("stalled", "t-1", "longer than 60 s in paying"))
    logs(AlertRaised("stalled", "t-1", "", resolved=True))
    logs(ResultLate("t-1", "pay-1"))
    logs(StepAttempted("ticket", "t-1", "paying", "pay", "step", 2, "timeout", 5.0, "timeout"))
    logs(StepAttempted("ticket", "t-1", "paying", "pay", "step", 3, "done", 0.1))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING", "INFO", "INFO", "INFO"]
    assert "attempt 2: timeout" in caplog.messages[-1]


def test_an_alert_about_a_workflow_is_found_by_its_id(written: Written) -> None:
    told = Alert(
        kind="stalled",
        subject="t-1",
        summary="it waits",
        advice="look",
        dedup_key="drill",
        at_us=0,
        machine="ticket",
        state="open",
    )
    Alarms(subscribers := Subscribers(), []).tell(told)
    subscribers.subscribe(Logs())
    subscribers.emit(AlertRaised("stalled", "t-1", "it waits", machine="ticket", state="open"))
    assert [(each["order_id"], each["machine"], each["state"]) for each in written.lines] == [
        ("t-1", "ticket", "open")
    ] * 2


def test_a_line_is_one_line_and_has_the_traceback() -> None:
    try:
        raise ValueError("two\nlines")  # noqa: TRY301 -- to have a traceback.
    except ValueError as error:
        record = logging.LogRecord("shop", logging.ERROR, "", 0, "it %s\nbroke", ("all",), (type(error), error, None))
    record.duration_ms = 1.5
    record.step = object()
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert line["message"] == "it all\nbroke"
    assert "ValueError" in line["exception"]
    assert line["duration_ms"] == 1.5
    assert "trace_id" not in line


class Untold:
    """An object that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "arguments", "step"),
    [
        ("half of a surrogate \ud800", (), "pay"),
        ("%d of %s", ("many",), "pay"),
        ("%s", (Untold(),), "pay"),
        ("a step without a text", (), Untold()),
        ("a key that is none", (), {Untold: 1}),
        ("not a number", (), float("nan")),
        ("lines \r\n of \x85 all \u2028 kinds \u2029 and \x00", (), "pay"),
    ],
)
def test_whatever_is_in_a_record_it_is_one_object_on_one_line(
    message: str, arguments: tuple[object, ...], step: object
) -> None:
    record = logging.LogRecord("shop", logging.ERROR, "", 0, message, arguments, None)
    record.step = step
    record.stack_info = "Stack:\n  here"
    [line] = JsonFormatter().format(record).splitlines()
    assert {"message", "step", "stack"} <= set(json.loads(line))
