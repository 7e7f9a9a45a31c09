"""Logs as JSON, one object per line, and the observer that writes what happens into them (C13).

Every line has `time`, `level`, `logger` and `message`; and, where they are known, `order_id` (the workflow's id),
`machine`, `state`, `step` and `duration_ms`, and with OpenTelemetry `trace_id` and `span_id`. A line that a step's own
code writes has them too: they come from the context that the step runs in.

`Logs` writes refusals, failed attempts, breakers and alerts. Transitions and successful attempts are written at the
level DEBUG of `interlock.transitions` only, and cost next to nothing while that is off.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import IO, Final

import msgspec

from interlock.redaction import Redacting, logger_of, record_texts, redacted_text
from interlock.runtime.current import CURRENT
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
"""What a line may have; given with `extra=`, or found in the context."""

BREAKS: Final = str.maketrans({each: f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"})
"""What JSON allows in a text, and some readers take for the end of a line."""

log = logger_of("interlock.transitions")


class JsonFormatter(logging.Formatter):
    """A line of JSON per record, whatever is in it: a log that loses the one odd line loses the one that matters."""

    def __init__(self) -> None:
        super().__init__()
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, with secrets masked."""
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
        alerted = getattr(record, "workflow", None)  # As an alert names it.
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
        except Exception:  # noqa: BLE001 -- half of a surrogate, a key that is none, an object that has no text.
            text = self._encode({name: _plain(value) for name, value in line.items()}).decode()
        return text.translate(BREAKS)


def _plain(value: object) -> str:
    """Text that can be written, of anything."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 -- whatever it raises, the line is written.
        text = f"<{type(value).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()


def _trace() -> dict[str, str]:
    """The span that is current. Without OpenTelemetry nobody has one, and it is not loaded to find that out."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    span = trace.get_current_span().get_span_context()
    if not span.is_valid or not span.trace_flags.sampled:
        return {}  # What is not sampled cannot be found anywhere.
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


def log_as_text(*, level: int = logging.WARNING, stream: IO[str] | None = None) -> None:
    """Write the logs of the whole program as text, with secrets masked. A program with handlers keeps its own."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(Redacting())
    root.addHandler(handler)
    root.setLevel(level)


def log_as_json(*, level: int = logging.INFO, stream: IO[str] | None = None) -> logging.Handler:
    """Write the logs of the whole program as JSON, to standard error or another stream; returns the handler."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler


class Logs:
    """An observer that writes what happens into the log."""

    @property
    def only_signals(self) -> tuple[type[Signal], ...]:
        """What is worth a line at this level. The level that counts is that of when an engine is opened."""
        rare = (TransitionRejected, StepAttempted, ResultLate, BreakerChanged, RedisChanged, AlertRaised)
        return (*rare, TransitionApplied) if log.isEnabledFor(logging.DEBUG) else rare

    def __call__(self, signal: Signal) -> None:
        """Write a line, if it is worth one."""
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
                told = "answers" if signal.up else "does not answer"
                log.log(level, "Redis at %s %s: %s", signal.address, told, signal.reason)
            case LoopBlocked():
                pass  # The thread that noticed it has written it, with the stack.
            case AlertRaised():
                level = logging.INFO if signal.resolved else logging.WARNING
                told = f"{signal.kind} is over" if signal.resolved else signal.kind
                log.log(
                    level, "%s: %s: %s", told, signal.subject, signal.summary,
                    extra={
                        "machine": signal.machine, "state": signal.state,
                        "order_id": signal.subject if signal.kind in {"stalled", "dead_letter"} else None,
                    },
                )  # fmt: skip

    @staticmethod
    def _attempted(signal: StepAttempted) -> None:
        level = logging.DEBUG if signal.outcome == "done" else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level, "%s %s of %s, attempt %d: %s%s", signal.kind, signal.step, signal.workflow, signal.attempt,
                signal.outcome, f" ({signal.error})" if signal.error else "",
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
