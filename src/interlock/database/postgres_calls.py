"""What is known of a call on PostgreSQL before it runs: the rows that it names, and what finding nothing means."""

from collections.abc import Awaitable, Callable

from interlock.sql.postgres.client import Answer, Client
from interlock.sql.postgres.plans import Parameter, Plan

Body = Callable[[Client], Awaitable[object]]


class FoundNothing(Exception):
    """READ COMMITTED has found no row to change; SERIALIZABLE has to say whether there is none.

    A row that another transaction deleted and inserted again is gone for whoever has waited for it, though there was
    such a row at any time.
    """


def found_or_nothing(body: Body) -> Body:
    """The body, which raises FoundNothing when it has changed no row."""

    async def found(client: Client) -> object:
        result = await body(client)
        if not (result.changed if isinstance(result, Answer) else result):
            raise FoundNothing
        return result

    return found


def rows_of(plan: Plan, args: tuple[object, ...]) -> list[tuple[str, object]]:
    """The rows that a statement names by their keys; none when it cannot be told."""
    if plan.kind != "write" or plan.table is None or not plan.key:
        return []
    if any(isinstance(each, Parameter) and each.place >= len(args) for each in plan.key):
        return []
    chosen = tuple([args[each.place] if isinstance(each, Parameter) else each for each in plan.key])
    key: object = chosen[0] if len(chosen) == 1 else chosen
    try:
        _ = hash(key)
    except TypeError:
        return []  # A list for ANY, or a document: no one row.
    return [(plan.table, key)]


def name_of(function: Callable[..., object]) -> str:
    """What a function is called, as one that may meet others."""
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"
