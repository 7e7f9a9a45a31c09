"""Writes `catalog.json`, the rows of PostgreSQL's catalog by which a lane chooses operators, functions and casts.

Run it as `python -m tests.conformance.dialect.catalog` after a function was added to the dialect. It holds every
overload of each function that a lane has, and all types, casts and operators: leaving one out could make another win.
"""

import asyncio
import json
from pathlib import Path

import asyncpg

from interlock.sql.aggregates import NAMES as AGGREGATES
from interlock.sql.calls import CALLABLE_NAMES
from interlock.sql.functions.sets import SET_FUNCTIONS
from interlock.sql.windows import WINDOW_FUNCTIONS
from tests.conformance.engines import postgres_server

FILE = Path(__file__).resolve().parents[3] / "src/interlock/sql/catalog.json"
_NAME = (
    "CASE WHEN t.typcategory = 'A' AND left(t.typname, 1) = '_' THEN substr(t.typname, 2) || '[]' ELSE t.typname END"
)


def _named(oid: str) -> str:
    return f"(SELECT {_NAME} FROM pg_type t WHERE t.oid = {oid})"


QUERIES = {
    "types": f"""SELECT {_NAME} AS name, typcategory::text, typispreferred FROM pg_type t
        WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'p') AND {_NAME} !~ '^_?pg_' ORDER BY 1""",
    "casts": f"""SELECT {_named("castsource")} AS s, {_named("casttarget")} AS t, castcontext::text, castmethod::text
        FROM pg_cast ORDER BY 1, 2""",
    "operators": f"""SELECT oprname, {_named("oprleft")} AS l, {_named("oprright")} AS r, {_named("oprresult")} AS g
        FROM pg_operator ORDER BY 1, 2, 3""",
    "functions": f"""SELECT proname, coalesce((SELECT array_agg({_named("a")} ORDER BY i)
            FROM unnest(proargtypes) WITH ORDINALITY u(a, i)), '{{}}') AS takes, {_named("prorettype")} AS gives,
            prokind::text, provariadic <> 0 AS variadic, pronargdefaults, proretset
        FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY($1)
            AND prokind IN ('f', 'a', 'w') ORDER BY 1, 2""",
}


async def rows(url: str) -> str:
    """The rows as the file holds them."""
    names = sorted({*CALLABLE_NAMES, *AGGREGATES, *WINDOW_FUNCTIONS, *SET_FUNCTIONS})
    connection = await asyncpg.connect(url)
    try:
        lines: list[str] = []
        for part, query in QUERIES.items():
            found = await connection.fetch(query, *([names] if part == "functions" else []))
            listed = ",\n".join(json.dumps(list(row), separators=(",", ":")) for row in found)
            lines.append(f'"{part}":[\n{listed}\n]')
    finally:
        await connection.close()
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    with postgres_server() as address:
        FILE.write_text(asyncio.run(rows(address)), encoding="utf-8")
