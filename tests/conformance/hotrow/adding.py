"""What the killed processes do: clients that add to two counters under every kind, while both are rolled up nonstop.

Every client says what it is about to do (`?`) before it does it, and that it was acknowledged (`+`) afterwards, so that
after a kill it is known what is certain and what is not. One counter gets adds with a key, the other one those without.
"""

import asyncio
import itertools
from collections.abc import Callable

from interlock.database.database import Database
from interlock.hotrow.counters import Counter, Counters
from tests.conformance.hotrow.counting import FORMS, KINDS, chosen

CLIENTS = 12

Say = Callable[[str], None]


def add(say: Say, url: str, life: str, unknown: list[str], rounds: int | None) -> None:
    """Repeat what is unknown since the last life, then add with many clients, `rounds` times each.

    None is for ever: however late the kill comes, it meets a life that works.
    """

    async def main() -> None:
        async with Database.open(url) as db:
            # Another number of shards in each life, and a roll-up that never rests.
            counters = Counters(db, shard_count=1 + len(life) % 3, roll_up_every_s=0.0)
            keyed = [counters.open("keyed", kind=kind) for kind in KINDS]
            plain = [counters.open("plain", kind=kind) for kind in KINDS]
            for number, key in enumerate(unknown):
                await keyed[number % len(keyed)].add(key=key)
                say(f"+{key}")
            clients = [client(say, keyed, plain, f"{life}-{number}", rounds) for number in range(CLIENTS)]
            await asyncio.gather(*clients)
            await counters.close()
        say("done")

    asyncio.run(main())


async def client(say: Say, keyed: list[Counter], plain: list[Counter], name: str, rounds: int | None) -> None:
    forms = itertools.cycle(FORMS)
    for number in itertools.count() if rounds is None else range(rounds):
        for place, kind in enumerate(KINDS):
            if kind == "auto":
                chosen(plain[place], next(forms))
            say(f"?k{name}-{number}-{place}")
            await keyed[place].add(key=f"k{name}-{number}-{place}")
            say(f"+k{name}-{number}-{place}")
            say(f"?p{name}-{number}-{place}")
            await plain[place].add()
            say(f"+p{name}-{number}-{place}")
