"""Delivery of alerts: their fan-out to observers, log and receivers, and the outbox of each receiver.

Each receiver has its own thread, so that one that hangs delays neither the engine nor the other receivers; the loop's
own executor is not used, because user code may have filled it. The thread is a daemon and is started by the first
alert: an engine without alerts has none, and a hanging receiver never keeps a process alive.

The order is kept, so that the end of an alert never overtakes its beginning. G6: beyond `alerts_max` the oldest is
dropped and counted, because recent alerts matter more.

A receiver is often down for as long as the alert's own cause. An alert that it did not take moves to the end of the
queue. It is tried again until it is `keep_s` old, or a newer alert has its key.

Sections: HTTP POST; outbox; fan-out.
"""

import asyncio
import contextlib
import http.client
import io
import math
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import msgspec

from interlock.clock import Chance, Clock, SystemChance, SystemClock
from interlock.engine.alerts.alert import Alert
from interlock.engine.alerts.receivers import Post, Receiver
from interlock.errors import DefinitionError
from interlock.redaction import logger_of
from interlock.signals import AlertRaised, Subscribers

# --- HTTP POST -------------------------------------------------------------------------------------------------------
# Timeouts of sockets count from one byte to the next, so that a slow receiver could hold a thread for ever. Here
# every wait gets the rest of the whole timeout, and only the head of the answer is read. Redirects are not followed:
# that would carry the body, with its secrets, to an undeclared address.

HEAD_BYTES_MAX = 64 * 1024
"""Bytes of an answer's head; a longer one is treated as no answer."""

USER_AGENT = "interlock-alerts"

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: .*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ReceiverAnswer:
    """The status of an answer, and its Retry-After."""

    status: int
    retry_after: str | None


def post(request: Post, *, timeout_s: float, tls: ssl.SSLContext | None, clock: Clock) -> ReceiverAnswer:
    """Send the request, read the head of the answer. Raises OSError or HTTPException without one in time."""
    deadline_s = clock.monotonic_s() + timeout_s
    host, secure = request.url.hostname or "", request.url.scheme == "https"
    port = request.url.port or (443 if secure else 80)
    plain = socket.create_connection((host, port), timeout_s)
    try:
        wire = plain
        if secure:
            assert tls is not None
            _set_timeout(plain, deadline_s, clock)
            wire = tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    with wire:
        _set_timeout(wire, deadline_s, clock)
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(host, port)
        connection.sock = wire
        target = (request.url.path or "/") + (f"?{request.url.query}" if request.url.query else "")
        headers = {
            **request.headers,
            "Content-Type": "application/json",
            "User-Agent": USER_AGENT,
            "Connection": "close",
        }
        connection.request("POST", target, request.body, headers)
        return _answer(wire, deadline_s, clock)


def _answer(wire: socket.socket, deadline_s: float, clock: Clock) -> ReceiverAnswer:
    head = b""
    while True:
        while b"\r\n\r\n" not in head:
            _set_timeout(wire, deadline_s, clock)
            piece = wire.recv(4_096)
            head += piece
            if not piece or len(head) > HEAD_BYTES_MAX:
                raise http.client.RemoteDisconnected("The receiver closed the connection without an answer.")
        first, _, rest = head.partition(b"\r\n\r\n")
        # The real answer follows an interim one (1xx).
        if first[9:10] != b"1":
            break
        head = rest
    line, _, fields = first.partition(b"\r\n")
    status = _STATUS_LINE.fullmatch(line)
    if status is None:
        raise http.client.BadStatusLine("The receiver does not answer in HTTP/1.1.")
    return ReceiverAnswer(
        int(status[1]), http.client.parse_headers(io.BytesIO(fields + b"\r\n\r\n")).get("Retry-After")
    )


def _set_timeout(wire: socket.socket, deadline_s: float, clock: Clock) -> None:
    """Set the socket's timeout to the time left until the deadline."""
    left_s = deadline_s - clock.monotonic_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    wire.settimeout(left_s)


# --- Outbox ----------------------------------------------------------------------------------------------------------

_LOG = logger_of("interlock.alerts")


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and waits of the delivery to a receiver."""

    alerts_max: int = 1_000
    """Alerts that wait for one receiver; beyond it the oldest is dropped and counted."""
    attempts_max: int = 8
    """Attempts at one alert in a row; with the backoff below they take about two minutes."""
    keep_s: float = 3_600.0
    """Seconds for which an alert that was not taken is queued after the others and tried again; 0 drops it."""
    backoff_first_s: float = 1.0
    backoff_max_s: float = 60.0
    retry_after_max_s: float = 300.0
    """The longest wait that a receiver can ask for."""
    close_s: float = 2.0
    """Seconds that closing waits for alerts that are on their way."""

    def __post_init__(self) -> None:
        """Raise DefinitionError for bounds below 1."""
        for name in ("alerts_max", "attempts_max"):
            if getattr(self, name) < 1:
                raise DefinitionError(
                    f"AlertSettings({name}={getattr(self, name)!r}) is less than 1.",
                    why="Then no alert could ever be sent.",
                    fix="Give 1 or more.",
                    rule="bad-receiver",
                )


class ReceiverReport(msgspec.Struct, frozen=True):
    """Counts of one receiver: what it took, and what never reached it."""

    receiver: str
    delivered: int
    """Alerts it took with a 2xx."""
    retried: int
    """Attempts that were repeated."""
    refused: int
    """Alerts it refused, or that were given up after `attempts_max`."""
    dropped: int
    """Alerts that gave way to newer ones, or were left at closing."""
    waiting: int


@dataclass(slots=True)
class _Due:
    """A queued alert and its attempts."""

    alert: Alert
    since_s: float
    tried: int = 0


class Outbox:
    """The queue and the delivery thread of one receiver."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        clock: Clock,
        chance: Chance,
        settings: AlertSettings,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._receiver = receiver
        self._clock = clock
        self._chance = chance
        self._settings = settings
        self._queue: deque[_Due] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._abandoned = False
        self._wait = self._closing.wait if wait is None else wait
        self._thread: threading.Thread | None = None
        self._ended: Future[None] = Future()
        self._busy = False
        self._full = False
        self._well = True
        """Whether the receiver took the last alert."""
        self._delivered = self._retried = self._refused = self._dropped = 0

    def put(self, alert: Alert) -> None:
        """Queue the alert; never waits, never raises."""
        with self._changed:
            if self._closing.is_set():
                self._dropped += 1
                return
            overflow = len(self._queue) >= self._settings.alerts_max
            if overflow:
                self._queue.popleft()
                self._dropped += 1
            was_full, self._full = self._full, overflow or self._full
            self._queue.append(_Due(alert, self._clock.monotonic_s()))
            if self._thread is None:
                self._thread = self._start()
            self._changed.notify()
        if overflow and not was_full:
            _LOG.error(
                "%s is too slow: %d alerts wait for it (alerts_max), and the oldest are dropped. "
                "To fix it, look whether the receiver answers.",
                self._receiver.name,
                self._settings.alerts_max,
            )

    def close(self) -> Future[None]:
        """Send waiting alerts, each at most once more, and end; the future is done when the thread has ended."""
        with self._changed:
            self._closing.set()
            if self._thread is None and not self._ended.done():
                self._ended.set_result(None)
            self._changed.notify()
        return self._ended

    def abandon(self) -> int:
        """Drop waiting alerts and return their number. An attempt under way ends by its own timeout."""
        with self._changed:
            self._closing.set()
            self._abandoned = True
            left = len(self._queue) + self._busy
            self._dropped += len(self._queue)
            self._queue.clear()
            self._changed.notify()
        return left

    def report(self) -> ReceiverReport:
        """Return the counts of the receiver."""
        with self._changed:
            return ReceiverReport(
                self._receiver.name,
                self._delivered,
                self._retried,
                self._refused,
                self._dropped,
                len(self._queue) + self._busy,
            )

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _start(self) -> threading.Thread:
        # A future that is running cannot be cancelled by the loop that awaits it.
        self._ended.set_running_or_notify_cancel()
        thread = threading.Thread(target=self._run, name="interlock-alerts", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        try:
            while (due := self._next()) is not None:
                taken = self._deliver(due)
                with self._changed:
                    self._busy = False
                    if not taken and self._requeue(due):
                        continue
                    self._full = self._full and not taken
                    self._delivered += taken
                    self._refused += not taken
        finally:
            self._ended.set_result(None)

    def _next(self) -> _Due | None:
        with self._changed:
            while not self._queue:
                if self._closing.is_set():
                    return None
                self._changed.wait()
            self._busy = True
            return self._queue.popleft()

    def _deliver(self, due: _Due) -> bool:
        """Post the alert until it is taken, refused, or tried often enough for this time."""
        alert, tries = due.alert, self._settings.attempts_max
        if due.tried:
            tries = 1
            if not self._well:
                self._wait(self._backoff_s(due.tried))
        for left in range(tries - 1, -1, -1):
            # An attempt that began before closing is followed by one more immediately; one that began after is the
            # last.
            last = left == 0 or self._closing.is_set()
            problem, again, asked_s = self._attempt(alert)
            due.tried += 1
            self._well = not problem
            if not problem:
                return True
            if not again or last:
                due.since_s = due.since_s if again else -math.inf
                self._log_failure(due, problem)
                return False
            delay_s = max(asked_s, self._backoff_s(due.tried))
            _LOG.info("%s: %s Attempt %d follows in %.1f s.", self._receiver.name, problem, due.tried + 1, delay_s)
            with self._changed:
                self._retried += 1
            self._wait(delay_s)
            if self._abandoned:
                return False
        return False

    def _log_failure(self, due: _Due, problem: str) -> None:
        """Log a failure once when the alert is kept for later, and once when it is dropped."""
        kept = self._may_keep(due)
        if kept and due.tried > self._settings.attempts_max:
            return
        _LOG.error(
            "%s did not take the alert %s at attempt %d, and it is %s: %s",
            self._receiver.name,
            due.alert.dedup_key,
            due.tried,
            f"tried again for up to {self._settings.keep_s:g} s" if kept else "dropped",
            problem,
        )

    def _may_keep(self, due: _Due) -> bool:
        young = self._clock.monotonic_s() - due.since_s < self._settings.keep_s
        return young and not self._closing.is_set()

    def _requeue(self, due: _Due) -> bool:
        """Queue it after the others, unless a newer alert has its key: the order of one key is kept."""
        newer = any(other.alert.dedup_key == due.alert.dedup_key for other in self._queue)
        if newer or not self._may_keep(due) or len(self._queue) >= self._settings.alerts_max:
            return False
        self._queue.append(due)
        return True

    def _attempt(self, alert: Alert) -> tuple[str, bool, float]:
        """Post once; return the problem, whether to retry, and the seconds that the receiver asked to wait."""
        try:
            request = self._receiver.post(alert, self._clock.wall_s())
            tls = self._receiver.tls() if request.url.scheme == "https" else None
            answer = post(request, timeout_s=self._receiver.timeout_s, tls=tls, clock=self._clock)
        except ssl.SSLCertVerificationError as error:
            why = (
                f"its certificate is not valid ({error.verify_message}). Nothing was sent. A private authority is given"
            )
            return f"{why} by ca_file.", False, 0.0
        except (OSError, http.client.HTTPException) as error:
            # Only the class and the system's own words: an error may quote the request.
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
            return f"it could not be reached ({type(error).__name__}: {reason}).", True, 0.0
        except Exception as error:  # noqa: BLE001 -- a receiver of the user's own may raise anything; the thread goes on.
            return f"the alert could not be put into a request ({type(error).__name__}).", False, 0.0
        return self._judge(answer)

    def _judge(self, answer: ReceiverAnswer) -> tuple[str, bool, float]:
        status = answer.status
        if 200 <= status < 300:  # noqa: PLR2004 -- the classes of HTTP are known by their numbers.
            return "", False, 0.0
        if status == http.HTTPStatus.TOO_MANY_REQUESTS or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"it answered {status}.", True, self._retry_after_s(answer.retry_after)
        if status < http.HTTPStatus.BAD_REQUEST:
            return f"it answered {status}, a redirect, which is not followed: declare the final address.", False, 0.0
        return f"it answered {status}. Check its address, key and headers.", False, 0.0

    def _retry_after_s(self, retry_after: str | None) -> float:
        """Return the seconds of Retry-After, a number or a date, within bounds."""
        if retry_after is None:
            return 0.0
        text, asked_s = retry_after.strip(), 0.0
        if text.isascii() and text.isdigit():
            asked_s = float(text[:9])
        else:
            with contextlib.suppress(ValueError, OverflowError):
                asked_s = parsedate_to_datetime(text).timestamp() - self._clock.wall_s()
        return min(max(asked_s, 0.0), self._settings.retry_after_max_s)

    def _backoff_s(self, attempt: int) -> float:
        """Return the backoff: doubled each time, half of it random, so that engines do not return together."""
        whole_s = min(self._settings.backoff_first_s * 2.0 ** min(attempt - 1, 30), self._settings.backoff_max_s)
        return whole_s * (0.5 + 0.5 * self._chance.fraction())


# --- Fan-out ---------------------------------------------------------------------------------------------------------
# Sending never waits and never raises, because it happens on the engine's own loop. `Subscribers` guards the
# observers, the log is the standard one (a warning when an alert begins, a note when it is over), and receivers only
# queue the alert in their outbox.


class Alarms:
    """Sends alerts. `wait` replaces the wait between attempts, in tests."""

    def __init__(
        self,
        subscribers: Subscribers,
        receivers: Sequence[Receiver] = (),
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        settings: AlertSettings | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._subscribers = subscribers
        self._settings = settings or AlertSettings()
        clock, chance = clock or SystemClock(), chance or SystemChance()
        self._outboxes = [
            Outbox(receiver, clock=clock, chance=chance, settings=self._settings, wait=wait) for receiver in receivers
        ]

    def tell(self, alert: Alert) -> None:
        """Send the alert to the log, the observers and the receivers."""
        fields = {
            "alert": alert.kind,
            "workflow": alert.subject if alert.kind in {"stalled", "dead_letter"} else None,
            "machine": alert.machine,
            "state": alert.state,
            "dedup_key": alert.dedup_key,
            "resolved": alert.resolved,
        }
        if alert.resolved:
            _LOG.info("%s", alert.summary, extra=fields)
        else:
            end = "" if alert.summary.endswith((".", "…")) else "."
            _LOG.warning("%s%s What to do: %s", alert.summary, end, alert.advice, extra=fields)
        self._subscribers.emit(
            AlertRaised(
                alert.kind,
                alert.subject,
                alert.summary,
                machine=alert.machine,
                state=alert.state,
                resolved=alert.resolved,
            )
        )
        for outbox in self._outboxes:
            outbox.put(alert)

    @property
    def idle(self) -> bool:
        """Whether no receiver has anything waiting: every alert has arrived, or was given up."""
        return all(report.waiting == 0 for report in self.reports())

    def reports(self) -> list[ReceiverReport]:
        """Return the counts of each receiver, in the order they were declared."""
        return [outbox.report() for outbox in self._outboxes]

    async def close(self) -> None:
        """Send waiting alerts, for at most `close_s`; the rest is counted in the log and dropped."""
        ended = [asyncio.wrap_future(outbox.close()) for outbox in self._outboxes]
        if not ended:
            return
        try:
            await asyncio.wait(ended, timeout=self._settings.close_s)
        finally:
            for outbox, future in zip(self._outboxes, ended, strict=True):
                if not future.done():
                    future.cancel()
                    left = outbox.abandon()
                    _LOG.error(
                        "%s did not take its last alerts in %g s (close_s): %d are dropped.",
                        outbox.report().receiver,
                        self._settings.close_s,
                        left,
                    )
