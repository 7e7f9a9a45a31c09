"""Writes `catalog.json`, the rows by which a lane chooses operators, functions and casts, and `letters.json`.

Run it as `python -m tests.conformance.dialect.catalog` after a function was added to the dialect. It holds every
overload of each function that a lane has, and all types, casts and operators: leaving one out could make another win.
"""

import asyncio
import json
from pathlib import Path

import asyncpg

from interlock.sql.aggregates import NAMES as AGGREGATES
from interlock.sql.functions.sets import SET_FUNCTIONS
from interlock.sql.operators_and_functions import CALLABLE_NAMES
from interlock.sql.windows import WINDOW_FUNCTIONS
from tests.conformance.engines import postgres_server

FILE = Path(__file__).resolve().parents[3] / "src/interlock/sql/catalog.json"
LETTERS = FILE.with_name("letters.json")
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


CHARACTERS = "SELECT chr(n) FROM generate_series(1, 1114111) AS n WHERE n NOT BETWEEN 55296 AND 57343"
CLASSES = ("alpha", "lower", "punct", "space", "upper")


async def letters(url: str) -> str:
    """The case and the classes of all characters, as the file of letters holds them."""
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(f"SELECT c, lower(c), upper(c) FROM ({CHARACTERS}) AS s (c)")
        lines = []
        for place, name in ((1, "lower"), (2, "upper")):
            pairs = [(ord(row[0]), ord(row[place]) - ord(row[0])) for row in found if row[place] != row[0]]
            lines.append(f'"{name}":{json.dumps(_runs(pairs), separators=(",", ":"))}')
        classes = []
        for name in CLASSES:
            rows = await connection.fetch(f"SELECT c FROM ({CHARACTERS}) AS s (c) WHERE c ~ '[[:{name}:]]'")
            classes.append(f'"{name}":{json.dumps(_ranges([ord(row[0]) for row in rows]), separators=(",", ":"))}')
    finally:
        await connection.close()
    return '{"mappings":{\n' + ",\n".join(lines) + '\n},"classes":{\n' + ",\n".join(classes) + "\n}}\n"


def _runs(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """First and last character, the distance between two of them, and the difference that is common to all."""
    runs: list[list[int]] = []
    for code, difference in pairs:
        if runs and runs[-1][3] == difference:
            first, last, step, _ = runs[-1]
            if code - last == step or (first == last and code - last <= 2):
                runs[-1][1], runs[-1][2] = code, code - last
                continue
        runs.append([code, code, 1, difference])
    return runs


def _ranges(codes: list[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


if __name__ == "__main__":
    with postgres_server() as address:
        FILE.write_text(asyncio.run(rows(address)), encoding="utf-8")
        LETTERS.write_text(asyncio.run(letters(address)), encoding="utf-8")
