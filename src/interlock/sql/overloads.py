"""Resolve an operator by the types of its sides: numbers, moments, documents, arrays or text."""

from interlock.sql import arraycalls, documentcalls, operators, timecalls
from interlock.sql.datatypes import INTERVAL, JSONB, UNKNOWN
from interlock.sql.refusal import wrong
from interlock.sql.terms import Term, call


def arithmetic(operator: str, left: Term, right: Term) -> Term:
    """One of + - * / %."""
    if timecalls.is_temporal(left, right):
        return timecalls.arithmetic(operator, left, right)
    if operator == "-" and left.type == JSONB:
        return documentcalls.removal(left, right)
    return operators.arithmetic(operator, left, right)


def negation(term: Term) -> Term:
    """A minus sign before a value."""
    return call("interlock_interval_negate", INTERVAL, term) if term.type == INTERVAL else operators.negation(term)


def concatenation(left: Term, right: Term) -> Term:
    """||."""
    if JSONB in {left.type, right.type}:
        return documentcalls.joined(left, right)
    if left.type.is_array or right.type.is_array:
        return arraycalls.joined(left, right)
    return operators.concatenation(left, right)


def containment(left: Term, right: Term) -> Term:
    """@>, of documents or of arrays."""
    if left.type is UNKNOWN and right.type is UNKNOWN:
        raise wrong("the types of both sides of @> are unknown.", fix="Cast one side: $1::jsonb.")
    if left.type.is_array or right.type.is_array:
        return arraycalls.containment(left, right)
    return documentcalls.containment(left, right)
