"""Statements with one token too many, too few or in another place: what a slip of the pen makes of a good one."""

import re
from collections.abc import Iterator
from random import Random

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$\d+|\d+\.\d+|\w+|::|[<>=!|@#?&-]+|[^\s]")
_INSERTED = re.findall(
    r"\S+",
    """
    , ( ) [ ] 'x' x 1 * . :: = - AND NOT NULL IN BETWEEN SELECT FROM WHERE AS SET DEFAULT VALUES ON ALL INTO IS LIKE
    CASE END ARRAY INSERT DELETE UPDATE USING RETURNING UNION integer
    """,
)


def mutants(sql: str, chance: Random, count: int) -> Iterator[str]:
    """Yield mutants of the statement: a token is left out, doubled, inserted, replaced or swapped with another one."""
    tokens = _TOKEN.findall(sql)
    for _ in range(count):
        changed = list(tokens)
        place, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
        match chance.randrange(5):
            case 0:
                del changed[place]
            case 1:
                changed.insert(place, changed[place])
            case 2:
                changed.insert(place, chance.choice(_INSERTED))
            case 3:
                changed[place] = chance.choice(_INSERTED)
            case _:
                changed[place], changed[other] = changed[other], changed[place]
        yield " ".join(changed)
