"""The gateway's books: what was done, by idempotency key and by order, and what was undone again.

A key that comes again gets the answer of the first time and nothing is done twice. An undo names the key of what it
undoes; undoing it again is the same undo. An undo of something that never arrived leaves a tombstone: when the call
itself arrives later it is refused with 409, and does nothing. A payment that is declined is refused with 402.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

DOES = {"/charge": "/charge", "/reserve": "/reserve"}
UNDOES = {"/refund": "/charge", "/release": "/reserve"}
ENDPOINTS = (*DOES, *UNDOES)


class Ledger:
    """What was done under one endpoint, and undone under another."""

    def __init__(self) -> None:
        self.done: dict[str, str] = {}
        """The order of each key that was executed."""
        self.undone: set[str] = set()
        """Keys that were undone, whether they had been executed or not."""
        self.repeated = 0
        self.entombed = 0
        """Calls that came after their undo, and were refused."""

    def do(self, key: str, order: str) -> HTTPStatus:
        """Execute, once per key."""
        if key in self.done:
            self.repeated += 1
            return HTTPStatus.OK
        if key in self.undone:
            self.entombed += 1
            return HTTPStatus.CONFLICT
        self.done[key] = order
        return HTTPStatus.OK

    def undo(self, key: str) -> HTTPStatus:
        """Take back what was executed under this key, or see to it that it never will be."""
        self.undone.add(key)
        return HTTPStatus.OK

    def standing(self) -> list[str]:
        """The orders of whatever was executed and not undone."""
        return [order for key, order in self.done.items() if key not in self.undone]

    def twice(self) -> list[str]:
        """The orders for which it was executed more than once, undone or not."""
        return [order for order, count in Counter(self.done.values()).items() if count > 1]


class Books:
    """All ledgers, and how often the gateway was called."""

    def __init__(self, is_declined: Callable[[str], bool]) -> None:
        self._is_declined = is_declined
        self._ledgers = {endpoint: Ledger() for endpoint in DOES}
        self.calls: Counter[str] = Counter()
        self.calls_by_segment: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()
        self.concurrent = 0
        self.concurrent_max = 0
        self._tries: Counter[str] = Counter()

    def tries(self, endpoint: str, key: str) -> int:
        """How often this key has come to this endpoint before; it is counted from now on."""
        name = f"{endpoint} {key}"
        self._tries[name] += 1
        return self._tries[name] - 1

    def execute(self, endpoint: str, key: str, asked: Mapping[str, Any]) -> HTTPStatus:
        """Do what was asked for."""
        if endpoint in UNDOES:
            return self._ledgers[UNDOES[endpoint]].undo(str(asked["undoes"]))
        order = str(asked["order"])
        if endpoint == "/charge" and self._is_declined(order):
            return HTTPStatus.PAYMENT_REQUIRED
        return self._ledgers[endpoint].do(key, order)

    def as_json(self) -> dict[str, object]:
        """The books, for whoever checks them."""
        charges, reservations = self._ledgers["/charge"], self._ledgers["/reserve"]
        return {
            "charges": len(charges.done),
            "charged_twice": charges.twice(),
            "charged_not_refunded": charges.standing(),
            "reserved_twice": reservations.twice(),
            "reserved_not_released": reservations.standing(),
            "repeated": charges.repeated + reservations.repeated,
            "entombed": charges.entombed + reservations.entombed,
            "calls": dict(self.calls),
            "calls_by_segment": dict(self.calls_by_segment),
            "fates": dict(self.fates),
            "concurrent_max": self.concurrent_max,
        }
