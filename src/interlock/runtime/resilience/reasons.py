"""Reasons for a breaker's changes, for people: one line, with the error that caused it.

A reason is part of the breaker's view, of the alert, and of the note for the next process. A waiting workflow shows
only `fact_of` it: a key that may see one workflow may not read the errors of others.
"""

import re
from typing import Literal

from interlock.core.breakers import Breaker, Circuit, Verdict

Outcome = Literal["done", "failed", "refused", "abandoned"]

_QUOTED = re.compile(r"(?s)([^:]*, the last|its probe failed): (?:([\w.-]{1,60})(?=:|$))?.*")

WHY_CHARACTERS_MAX = 200
"""Characters kept of the error that opened a breaker."""


def why_changed(breaker: Breaker, circuit: Circuit, admitted: Verdict, outcome: Outcome, why: str) -> str:
    """Return why the breaker changed to this circuit."""
    if not circuit.opened:
        return "a probe has worked"
    by_business = breaker.business_failures is not None and circuit.business >= breaker.business_failures
    if admitted != "call":
        answered = outcome == "done" or (outcome == "refused" and not by_business)
        return "its probe was too slow" if answered else f"its probe failed: {why}"
    if by_business:
        return f"{_in_a_row(circuit.business, 'business error')}, the last: {why}"
    if outcome != "failed":
        return "calls are too slow"
    if breaker.failure_rate is not None:
        return f"at least {breaker.failure_rate:.0%} of the last calls failed, the last: {why}"
    return f"{_in_a_row(circuit.failures, 'failure')}, the last: {why}"


def fact_of(reason: str) -> str:
    """Return the reason up to the class of the error. Its text may contain another customer's data."""
    found = _QUOTED.match(reason)
    return reason if found is None else f"{found[1]}: {found[2]}" if found[2] else found[1]


def brief(why: str) -> str:
    """Return the text in one line, shortened and printable: every waiting workflow shows it."""
    text = " ".join(why.split())
    text = text if len(text) <= WHY_CHARACTERS_MAX else text[: WHY_CHARACTERS_MAX - 1] + "…"
    return "".join(each if each.isprintable() else "�" for each in text)


def _in_a_row(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s in a row"
