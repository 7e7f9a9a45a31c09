"""Logs as JSON, one object per line, and the observer that logs signals (C13).

Every line has `time`, `level`, `logger` and `message`. Where they are known it has `order_id` (the workflow's id),
`machine`, `state`, `step` and `duration_ms`, and with OpenTelemetry `trace_id` and `span_id`. Lines of a step's own
code have them too: they come from the context in which the step runs.

`Logs` writes refusals, failed attempts, breakers and alerts. Transitions and successful attempts are written only at
level DEBUG of `interlock.transitions`, and cost almost nothing while that is off.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import IO, Final

import msgspec

from interlock.engine.tracer_protocol import CURRENT
from interlock.redaction import Redacting, logger_of, record_texts, redacted_text
from interlock.signals import (
    AlertRaised,
    BreakerChanged,
    LoopBlocked,
    RedisChanged,
    ResultLate,
    Signal,
    StepAttempted,
    TransitionApplied,
    TransitionRejected,
)

FIELDS: Final = ("order_id", "machine", "state", "step", "event", "correlation_id", "duration_ms")
"""Optional fields of a line; passed with `extra=`, or taken from the context."""

BREAKS: Final = str.maketrans({each: f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"})
"""Characters that JSON allows in a text, but some readers treat as line breaks."""

log = logger_of("interlock.transitions")


class JsonFormatter(logging.Formatter):
    """Formats every record as a line of JSON; a record that cannot be encoded is written as text, and never lost."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, with secrets masked."""
        message, exception = record_texts(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        current = CURRENT.get()
        if current is not None:
            line["order_id"], line["machine"] = current.workflow, current.machine
            line["state"], line["step"] = current.state, current.step
        alerted = getattr(record, "workflow", None)  # The field's name in alerts.
        if alerted is not None:
            line["order_id"] = alerted
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = value
        line.update(_trace())
        if exception:
            line["exception"] = exception
        if record.stack_info:
            line["stack"] = redacted_text(self.formatStack(record.stack_info))
        try:
            text = self._encode(line).decode()
        except Exception:  # noqa: BLE001 -- a lone surrogate, an invalid key, an object without a text.
            text = self._encode({name: _plain(value) for name, value in line.items()}).decode()
        return text.translate(BREAKS)


def _plain(value: object) -> str:
    """Return a text that can be encoded, for any value."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 -- the line must be written in any case.
        text = f"<{type(value).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()


def _trace() -> dict[str, str]:
    """Return the ids of the current span. OpenTelemetry is not imported for this: without it there is no span."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid or not span.trace_flags.sampled:
        return {}  # A span that is not sampled is stored nowhere.
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


def log_as_text() -> None:
    """Log the whole program as text, with secrets masked. A program that has handlers keeps them."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(Redacting())
    root.addHandler(handler)
    root.setLevel(logging.WARNING)


def log_as_json(*, level: int = logging.INFO, stream: IO[str] | None = None) -> logging.Handler:
    """Log the whole program as JSON, to standard error or another stream; returns the handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


class Logs:
    """An observer that writes signals to the log."""

    @property
    def only_signals(self) -> tuple[type[Signal], ...]:
        """The signals to log at the current level, which is read when an engine is opened."""
        rare = (TransitionRejected, StepAttempted, ResultLate, BreakerChanged, RedisChanged, AlertRaised)
        return (*rare, TransitionApplied) if log.isEnabledFor(logging.DEBUG) else rare

    def __call__(self, signal: Signal) -> None:
        """Log a signal."""
        match signal:
            case TransitionApplied():
                log.debug(
                    "%s moved from %s to %s", signal.workflow, signal.from_state, signal.to_state,
                    extra=_fields(signal.machine, signal.workflow, signal.to_state, duration_s=signal.duration_s),
                )  # fmt: skip
            case StepAttempted():
                self._attempted(signal)
            case TransitionRejected():
                log.info(
                    "%s refused %s: %s", signal.workflow, signal.event, signal.guard or signal.code,
                    extra=_fields(signal.machine, signal.workflow, signal.state),
                )  # fmt: skip
            case ResultLate():
                log.info("a result came late (key %s)", signal.key, extra={"order_id": signal.workflow})
            case BreakerChanged():
                level = logging.WARNING if signal.after == "open" else logging.INFO
                log.log(level, "the breaker of %s is %s: %s", signal.dependency, signal.after, signal.reason)
            case RedisChanged():
                level = logging.INFO if signal.up else logging.WARNING
                answers = "answers" if signal.up else "does not answer"
                log.log(level, "Redis at %s %s: %s", signal.address, answers, signal.reason)
            case LoopBlocked():
                pass  # The watching thread has logged it, with the stack.
            case AlertRaised():
                level = logging.INFO if signal.resolved else logging.WARNING
                title = f"{signal.kind} is over" if signal.resolved else signal.kind
                log.log(
                    level, "%s: %s: %s", title, signal.subject, signal.summary,
                    extra={
                        "machine": signal.machine, "state": signal.state,
                        "order_id": signal.subject if signal.kind in {"stalled", "dead_letter"} else None,
                    },
                )  # fmt: skip

    @staticmethod
    def _attempted(signal: StepAttempted) -> None:
        level = logging.DEBUG if signal.outcome == "done" else logging.INFO
        if log.isEnabledFor(level):
            kind = "" if signal.error == signal.outcome else signal.error  # Do not write "retryable (retryable: …)".
            why = " ".join(": ".join(filter(None, (kind, signal.message))).split())
            log.log(
                level, "%s %s of %s, attempt %d: %s%s", signal.kind, signal.step, signal.workflow, signal.attempt,
                signal.outcome, f" ({why})" if why else "",
                extra=_fields(signal.machine, signal.workflow, signal.state, signal.step, signal.duration_s),
            )  # fmt: skip


def _fields(
    machine: str, workflow: str, state: str, step: str | None = None, duration_s: float | None = None
) -> dict[str, object]:
    return {
        "machine": machine,
        "order_id": workflow,
        "state": state,
        "step": step,
        "duration_ms": None if duration_s is None else round(duration_s * 1_000, 3),
    }
