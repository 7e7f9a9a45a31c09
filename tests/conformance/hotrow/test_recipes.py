"""The copy-paste SQL of the documentation, exactly as printed, with many clients, on every engine (D14, D15)."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import asyncpg
import pytest

from tests.conformance.hotrow.places import Place, run
from tests.conformance.hotrow.recipes import CONNECTIONS, PAGE, RECIPES, Bare, Client, ThroughDatabase, crowd

IN_ONE_STATEMENT = "roll up post $1, in one statement"
WRONG = "wrong: count one view of page $1 in a shard that WHERE chooses"


async def count_in_one_row(client: Client) -> None:
    await client.make("make the table")
    await crowd([partial(client.changed, "count one view of page $1", f"p{n % 2}") for n in range(200)])
    assert await client.rows("read the views of page $1", "p0") == [(100,)]
    assert await client.rows("read the views of page $1", "p1") == [(100,)]


async def count_in_shards(client: Client) -> None:
    await client.make("make the table of shards")
    changed = await crowd(
        [partial(client.changed, "count one view of page $1 in one of 16 shards", "p") for _ in range(300)]
    )
    assert set(changed) == {1}
    assert await client.rows("read the views of page $1 in all shards", "p") == [(300,)]
    assert await client.rows("read the views of page $1 in all shards", "q") == [(0,)]
    shards = await client.rows("see how even the shards of page $1 are", "p")
    assert {int(str(shard)) for shard, _ in shards} <= set(range(16))
    assert len(shards) > 8


async def roll_up(client: Client, name: str) -> None:
    await client.transaction(name, "p")


async def count_in_a_log(client: Client, roll_up_name: str = "roll up post $1, in one transaction") -> None:
    await client.make("make the tables of the log")
    acknowledged = asked = 0

    async def like(likes: int) -> None:
        nonlocal acknowledged, asked
        asked += likes
        await client.changed("add $2 likes to post $1 (-1 takes one back)", "p", likes)
        acknowledged += likes

    async def read() -> None:
        least = acknowledged
        [(likes,)] = await client.rows("read the likes of post $1", "p")
        assert least <= int(str(likes)) <= asked

    actions: list[Callable[[], Awaitable[None]]] = []
    for number in range(200):
        actions.append(partial(like, 1 + number % 3))
        if number % 10 == 0:
            actions += [partial(roll_up, client, roll_up_name), read]
    await crowd(actions)
    assert await client.rows("read the likes of post $1", "p") == [(acknowledged,)]
    await client.changed("add $2 likes to post $1 (-1 takes one back)", "p", -1)
    await roll_up(client, roll_up_name)
    await roll_up(client, roll_up_name)
    assert await client.other("SELECT count(*) FROM post_like") == [(0,)]
    assert await client.rows("read the likes of post $1", "p") == [(acknowledged - 1,)]
    assert await client.other("SELECT likes FROM post_total WHERE post = 'p'") == [(acknowledged - 1,)]


async def sell_units(client: Client) -> None:
    await client.make("make the table of items")
    for _ in range(2):
        await client.changed("put $2 more units of $1 on sale", "sku", 150)
    taken = 0

    async def buyer(number: int) -> None:
        nonlocal taken
        quantity = 1 + number % 5
        if await client.changed("take $2 units of $1", "sku", quantity):
            taken += quantity
            if number % 7 == 0:
                assert await client.changed("give $2 units of $1 back", "sku", quantity) == 1
                taken -= quantity

    async def watcher() -> None:
        [(available, sold)] = await client.rows("see where the units of $1 are", "sku")
        assert int(str(available)) + int(str(sold)) == 300
        assert min(int(str(available)), int(str(sold))) >= 0

    await crowd([watcher if number % 10 == 0 else partial(buyer, number) for number in range(250)])
    assert await client.rows("see where the units of $1 are", "sku") == [(300 - taken, taken)]
    assert taken > 290
    assert not await client.changed("give $2 units of $1 back", "sku", 301)


async def sell_seats(client: Client) -> None:
    await client.make("make the table of seats")
    await crowd([partial(client.changed, "put seat $2 of event $1 on sale", "e", n % 10) for n in range(40)])

    async def hold(seat: int, guest: str) -> tuple[int, str] | None:
        held = await client.changed("hold seat $2 of event $1 for guest $3, five minutes long", "e", seat, guest)
        return (seat, guest) if held else None

    holds = await crowd([partial(hold, n % 10, f"guest-{n}") for n in range(100)])
    held = [one for one in holds if one]
    assert sorted(seat for seat, _ in held) == list(range(10))
    buying = "buy seat $2 of event $1 that guest $3 holds"
    seat, guest = held[0]
    assert await client.changed(buying, "e", seat, "somebody else") == 0
    assert await client.changed(buying, "e", seat, guest) == 1
    assert await client.changed(buying, "e", seat, guest) == 0
    assert await hold(seat, "late") is None
    letting_go = "let go of seat $2 of event $1 that guest $3 holds"
    assert await client.changed(letting_go, "e", seat, guest) == 0
    seat, guest = held[1]
    assert await client.changed(letting_go, "e", seat, guest) == 1
    assert await hold(seat, "next") == (seat, "next")
    # Time passes: what was held, and not bought, is free, and cannot be bought by who held it once somebody has it.
    await client.other("UPDATE seat SET held_until = now() - interval '1 second' WHERE held_until IS NOT NULL")
    seat, guest = held[2]
    assert await client.changed(buying, "e", seat, guest) == 0
    assert await hold(seat, "later") == (seat, "later")
    assert await hold(held[0][0], "later") is None


async def claim_seats(client: Client) -> None:
    name = "claim any free seat of event $1 for guest $2"
    await client.make("make the table of seats")
    for number in range(30):
        await client.changed("put seat $2 of event $1 on sale", "e", number)
    await client.changed("hold seat $2 of event $1 for guest $3, five minutes long", "e", 7, "holder")
    claims = await crowd([partial(client.rows, name, "e", f"guest-{n}") for n in range(45)])
    claimed = sorted(int(str(rows[0][0])) for rows in claims if rows)
    assert claimed == [number for number in range(30) if number != 7]
    await client.other("UPDATE seat SET held_until = now() - interval '1 second' WHERE held_until IS NOT NULL")
    assert await client.rows(name, "e", "patient") == [(7,)]
    assert await client.rows(name, "e", "too late") == []


async def limit_a_rate(client: Client) -> None:
    await client.make("make the table of quotas")
    using = "use one of client $1's $2 calls in this minute"
    assert await client.rows(using, "c", 5) == [(1,)]
    # A minute that does not end during the test: everybody comes late, and counts in it.
    await client.other("UPDATE api_quota SET minute = minute + interval '1 hour', used = 0")
    allowed = await crowd([partial(client.rows, using, "c", 40) for _ in range(100)])
    assert sorted(int(str(rows[0][0])) for rows in allowed if rows) == list(range(1, 41))
    await client.other("UPDATE api_quota SET minute = minute - interval '2 hours'")
    assert await client.rows(using, "c", 40) == [(1,)]
    assert await client.other("SELECT count(*) FROM api_quota") == [(1,)]


async def share_a_balance(client: Client) -> None:
    await client.make("make the table of accounts")
    owners = ["a", "b", "c"]
    for owner in owners:
        await client.changed("open account $1 that may go down to $2", owner, -10)
        await client.changed("pay $2 into account $1", owner, 100)
    paid = 0

    async def act(number: int) -> None:
        nonlocal paid
        giver, taker, amount = owners[number % 3], owners[(number + 1 + number % 2) % 3], 1 + number % 40
        if number % 3 == 0:
            changed = await client.changed("transfer $3 from account $1 to account $2", giver, taker, amount)
            assert changed in {0, 2}
        elif await client.changed("withdraw $2 from account $1", giver, amount):
            paid += amount

    async def watcher() -> None:
        rows = await client.other("SELECT balance FROM account ORDER BY owner")
        assert min(int(str(row[0])) for row in rows) >= -10

    await crowd([watcher if number % 12 == 0 else partial(act, number) for number in range(150)])
    balances = [(await client.rows("see what is on account $1", owner))[0][0] for owner in owners]
    assert sum(int(str(balance)) for balance in balances) == 300 - paid
    transferring = "transfer $3 from account $1 to account $2"
    assert await client.changed(transferring, "a", "a", 1) == 0
    assert await client.changed(transferring, "a", "nobody", 1) == 0
    assert await client.changed(transferring, "nobody", "a", 1) == 0
    assert await client.changed(transferring, "a", "b", 10_000) == 0


async def touch_a_parent(client: Client) -> None:
    await client.make("make the tables of threads")
    rolling = "roll up thread $1, in one transaction"
    assert await client.rows("read thread $1", "p") == [(0, None)]
    acknowledged = asked = 0

    async def touch() -> None:
        nonlocal acknowledged, asked
        asked += 1
        await client.changed("touch thread $1", "p")
        acknowledged += 1

    async def read() -> None:
        least = acknowledged
        [(replies, _)] = await client.rows("read thread $1", "p")
        assert least <= int(str(replies)) <= asked

    actions: list[Callable[[], Awaitable[None]]] = []
    for number in range(150):
        actions.append(touch)
        if number % 10 == 0:
            actions += [partial(roll_up, client, rolling), read]
    await crowd(actions)
    before = await client.rows("read thread $1", "p")
    assert before[0][0] == 150
    await roll_up(client, rolling)
    await roll_up(client, rolling)
    assert await client.rows("read thread $1", "p") == before
    assert await client.other("SELECT replies, last_reply_at FROM thread WHERE name = 'p'") == before
    assert await client.other("SELECT count(*) FROM thread_touch") == [(0,)]


SCENARIOS = pytest.mark.parametrize(
    "scenario",
    [
        count_in_one_row,
        count_in_shards,
        count_in_a_log,
        sell_units,
        sell_seats,
        claim_seats,
        limit_a_rate,
        share_a_balance,
        touch_a_parent,
    ],
)
Scenario = Callable[[Client], Awaitable[None]]


@SCENARIOS
def test_a_recipe_holds_through_the_database(place: Place, scenario: Scenario) -> None:
    async def main() -> None:
        async with place.opened() as db:
            await scenario(ThroughDatabase(db))

    run(main)


def bare(postgres_url: str, scenario: Scenario) -> None:
    """Run it with a client of PostgreSQL alone, in a schema of its own."""
    address, _, schema = postgres_url.partition("&schema=")

    async def main() -> None:
        settings = {"search_path": schema}
        async with asyncpg.create_pool(address, max_size=CONNECTIONS, server_settings=settings) as pool:
            await pool.execute(f"CREATE SCHEMA {schema}")
            await scenario(Bare(pool))

    run(main)


@SCENARIOS
def test_a_recipe_holds_on_postgresql_without_interlock(postgres_url: str, scenario: Scenario) -> None:
    bare(postgres_url, scenario)


def test_the_roll_up_in_one_statement_holds_on_postgresql(postgres_url: str) -> None:
    bare(postgres_url, partial(count_in_a_log, roll_up_name=IN_ONE_STATEMENT))


def test_the_roll_up_in_one_statement_holds_through_the_database(place: Place) -> None:
    async def main() -> None:
        async with place.opened() as db:
            await count_in_a_log(ThroughDatabase(db), IN_ONE_STATEMENT)

    run(main)


@pytest.mark.parametrize("place", ["memory", "postgres"], indirect=True)
def test_random_in_where_changes_no_row_or_several(place: Place) -> None:
    """D5: why the shard is never chosen in WHERE, on both engines. The shares are those that the page prints."""

    async def main() -> Counter[int]:
        async with place.opened() as db:
            client = ThroughDatabase(db)
            await client.make("make the table of shards")
            for shard in range(16):
                await db.execute("INSERT INTO page_view_shard (page, shard, views) VALUES ('p', $1, 0)", shard)
            # One after the other. With others in between it is worse: a row that was waited for is asked again.
            return Counter(await crowd([partial(client.changed, WRONG, "p")] * 2_000, at_once=1))

    changed = run(main)
    several = sum(count for rows, count in changed.items() if rows > 1)
    shares = {"none": changed[0] / 2_000, "one": changed[1] / 2_000, "several": several / 2_000}
    printed = dict(
        re.findall(r"^\| (none|one|several)\b.*\| (\d+) % \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert printed.keys() == shares.keys()
    for name, share in shares.items():
        # Five standard deviations of 2,000 draws, and half a percent for the rounding of the page.
        assert abs(share - int(printed[name]) / 100) < 0.06, f"{name}: {share:.1%}, and the page says {printed[name]} %"


@pytest.mark.parametrize("place", ["memory", "postgres"], indirect=True)
@pytest.mark.parametrize("chosen", ["floor(random() * 16)::integer", "(floor(random() * 16) + 0)::integer"])
def test_an_index_does_not_make_a_volatile_function_be_asked_once(place: Place, chosen: str) -> None:
    """D5: SQLite would look the value up in the index, PostgreSQL would not; no statement means two things."""

    async def main() -> None:
        async with place.opened() as db:
            await ThroughDatabase(db).make("make the table of shards")
            for shard in range(16):
                await db.execute("INSERT INTO page_view_shard (page, shard, views) VALUES ('p', $1, 0)", shard)
            for where in (f"shard = {chosen}", f"shard >= {chosen}", f"shard BETWEEN {chosen} AND {chosen}"):
                changing = f"UPDATE page_view_shard SET views = views + 1 WHERE page = 'p' AND {where}"
                assert len({await db.execute(changing) for _ in range(60)}) > 2, where
                finding = f"SELECT shard FROM page_view_shard WHERE page = 'p' AND {where}"
                assert len({len(await db.query(finding)) for _ in range(60)}) > 2, where

    run(main)


def test_the_numbers_on_the_page_add_up() -> None:
    rows = re.findall(
        r"^\| (?:none|one|several)\b.*\| ([\d,]+) \| (\d+) % \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sum(int(count.replace(",", "")) for count, _ in rows) == 10_000
    assert [round(int(count.replace(",", "")) / 100) for count, _ in rows] == [int(share) for _, share in rows]


def test_every_statement_of_the_page_is_used() -> None:
    """D14: what nobody runs is not tested as printed."""
    used = "".join(
        constant
        for function in [*SCENARIOS.args[1], test_random_in_where_changes_no_row_or_several]
        for constant in _texts(function.__code__)
    )
    unused = [name for name in RECIPES if name not in used and not name.startswith((IN_ONE_STATEMENT, "wrong"))]
    missing = [name for name in unused if name not in str(count_in_a_log.__defaults__)]
    assert not missing


def _texts(code: object) -> list[str]:
    found: list[str] = []
    for constant in getattr(code, "co_consts", ()):
        if isinstance(constant, str):
            found.append(constant)
        elif hasattr(constant, "co_consts"):
            found += _texts(constant)
    return found


def test_a_roll_up_under_read_committed_loses_likes(postgres_url: str) -> None:
    """D14: the page says so, and why the three statements are one SERIALIZABLE transaction."""

    async def scenario(client: Client) -> None:
        await client.make("make the tables of the log")
        await client.changed("add $2 likes to post $1 (-1 takes one back)", "p", 1)
        first, summed, deleted = RECIPES["roll up post $1, in one transaction"]
        await client.other(first, "p")
        await client.other(summed, "p")
        # Somebody likes the post between two statements that do not share a snapshot.
        await client.changed("add $2 likes to post $1 (-1 takes one back)", "p", 1)
        await client.other(deleted, "p")
        assert await client.rows("read the likes of post $1", "p") == [(1,)]

    bare(postgres_url, scenario)


def test_a_crowd_is_at_once() -> None:
    """The tests above mean what they say: as many actions are under way at a time as there are connections."""

    async def main() -> None:
        under_way = most = 0

        async def act() -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

        await crowd([act] * 100)
        assert most == CONNECTIONS

    run(main)
