"""Helpers for calls on PostgreSQL: the rows that a statement names, and the retry of updates that found no row."""

from collections.abc import Awaitable, Callable

from interlock.sql.postgres.client import Answer, Client
from interlock.sql.postgres.plans import Parameter, Plan

Body = Callable[[Client], Awaitable[object]]


class FoundNothing(Exception):
    """A statement under READ COMMITTED has found no row to change; it must be repeated under SERIALIZABLE.

    A statement that waited for a row does not find it if another transaction deleted it and inserted it again, although
    such a row existed at any time.
    """


def found_or_nothing(body: Body) -> Body:
    """Wrap the body so that it raises FoundNothing when it has changed no row."""

    async def found(client: Client) -> object:
        result = await body(client)
        if not (result.changed if isinstance(result, Answer) else result):
            raise FoundNothing
        return result

    return found


def rows_of(plan: Plan, args: tuple[object, ...]) -> list[tuple[str, object]]:
    """Return the rows that a statement names by their keys; an empty list if the plan does not show them."""
    if plan.kind != "write" or plan.table is None or not plan.key:
        return []
    if any(isinstance(each, Parameter) and each.place >= len(args) for each in plan.key):
        return []
    chosen = tuple([args[each.place] if isinstance(each, Parameter) else each for each in plan.key])
    key: object = chosen[0] if len(chosen) == 1 else chosen
    try:
        _ = hash(key)
    except TypeError:
        return []  # A list for ANY, or a document, names several rows.
    return [(plan.table, key)]


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function for the contention report."""
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
