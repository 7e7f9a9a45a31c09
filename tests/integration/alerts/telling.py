"""What the tests of alerts share: an alert, alarms, and waits that are written down instead of waited for."""

import asyncio
import threading
from collections.abc import Callable, Sequence

from interlock.clock import SystemClock
from interlock.engine.alerts import Alarms, Alert, AlertSettings, AlertWebhook, Receiver, stalled_alert
from interlock.signals import Subscribers
from interlock.store.records import Row
from tests.integration.alerts.receiver import Answer, LocalReceiver, receiving

NOW_US = 1_700_000_000_123_000
ROUTING_KEY = "SECRET7890abcdef0123456789abcdef"


def alert(workflow: str = "o-1") -> Alert:
    since_us = NOW_US - 300_000_000
    row = Row(workflow, "order", 1, "charging", b"{}", 2, 2, True, since_us, since_us, since_us, b"")
    return stalled_alert(row, 120.0, NOW_US)


WALL_S = 1_700_000_500.0


class Standing(SystemClock):
    """A clock on the wall that stands still; durations are real, for so are the sockets."""

    def wall_s(self) -> float:
        return WALL_S


class Half:
    """Luck that is always in the middle."""

    def fraction(self) -> float:
        return 0.5


class Waits:
    """The waits between attempts, written down instead of waited for."""

    def __init__(self, expected: int = 0) -> None:
        self.seconds: list[float] = []
        self.enough = threading.Event()
        self._expected = expected

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == self._expected:
            self.enough.set()


class Impatient(AlertWebhook):
    """Waits a moment until a request has arrived once, and long from then on, so that no machine is too slow for it.

    An attempt that was over before its request arrived, on a machine that stood still, is nothing to the receiver.
    """

    def __init__(self, receiver: LocalReceiver, first_s: float) -> None:
        super().__init__(receiver.url)
        self._reached = receiver.reached
        self._first_s = first_s

    @property
    def timeout_s(self) -> float:
        return 30.0 if self._reached.is_set() else self._first_s


def alarmed(
    *receivers: Receiver, wait: Callable[[float], object] | None = None, settings: AlertSettings | None = None
) -> Alarms:
    settings = settings or AlertSettings(close_s=30.0)
    return Alarms(Subscribers(), receivers, clock=Standing(), chance=Half(), settings=settings, wait=wait)


def tell_and_close(alarms: Alarms, *alerts: Alert) -> None:
    for each in alerts:
        alarms.tell(each)
    asyncio.run(alarms.close())


def send(
    answers: Sequence[Answer], *, settings: AlertSettings | None = None, alerts: int = 1, first_s: float = 30.0
) -> tuple[Alarms, list[str], list[float]]:
    """Send alerts to a receiver that answers by the script; who came to it, and what was waited between attempts.

    Closing waits until the whole script was answered, because it gives every alert only one more attempt.
    """
    waits, settings = Waits(), settings or AlertSettings(close_s=30.0)
    with receiving(*answers) as receiver:
        alarms = alarmed(Impatient(receiver, first_s), wait=waits, settings=settings)
        for each in range(alerts):
            alarms.tell(alert(f"o-{each}"))
        subjects = [receiver.next().json()["subject"] for _ in range(len(answers))]
        asyncio.run(alarms.close())
        subjects += [each.json()["subject"] for each in receiver.all()]
    return alarms, subjects, waits.seconds
