"""Connections that are cut at chosen moments: what never left goes to another one, what may have is told so (G9)."""

import pytest

from interlock.errors import OutcomeUnknown
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.cutting import Cut, cutting
from tests.integration.postgres.stores import opened
from tests.integration.postgres.test_failures import FIRST, enveloped

POOLED = "&pgbouncer=true"

NEVER_LEFT = {
    "a statement is prepared": ("", Cut(b"P", b"INSERT INTO")),
    "it was prepared and nobody knows": ("", Cut(b"P", b"INSERT INTO", delivered=True)),
    "a transaction begins": (POOLED, Cut(b"Q", b"BEGIN")),
    "it has begun": (POOLED, Cut(b"Q", b"BEGIN", delivered=True)),
    "a statement is sent within it": (POOLED, Cut(b"B")),
    "it was executed within it": (POOLED, Cut(b"B", delivered=True)),
}


@pytest.mark.parametrize("moment", NEVER_LEFT)
def test_a_commit_that_cannot_have_happened_goes_to_another_connection(postgres_url: str, moment: str) -> None:
    """G9: the caller hears nothing of it, and it happens once."""
    options, cut = NEVER_LEFT[moment]

    async def scenario() -> None:
        async with opened(postgres_url), cutting(postgres_url) as proxy, opened(proxy.url + options) as store:
            connections = proxy.connections
            proxy.cut = cut
            (row,) = await begun(store, started())
            assert (proxy.cuts, proxy.connections) == (1, connections + 1)
            assert await store.load(["w"]) == {"w": row}
            assert len(await store.history("w")) == 1

    run(scenario)


MAY_HAVE = {
    "a statement is sent": ("", Cut(b"B"), False),
    "it was executed": ("", Cut(b"B", delivered=True), True),
    "a transaction is committed": (POOLED, Cut(b"Q", b"COMMIT"), False),
    "it was committed": (POOLED, Cut(b"Q", b"COMMIT", delivered=True), True),
}


@pytest.mark.parametrize("moment", MAY_HAVE)
def test_a_commit_that_may_have_happened_is_not_repeated_and_its_envelope_tells(postgres_url: str, moment: str) -> None:
    """G9: both look the same from here."""
    options, cut, happened = MAY_HAVE[moment]

    async def scenario() -> None:
        async with opened(postgres_url), cutting(postgres_url) as proxy, opened(proxy.url + options) as store:
            (row,) = await begun(store, started())
            (row,) = await begun(store, moved(row))  # What it takes to move is prepared by now.
            proxy.cut = cut
            with pytest.raises(OutcomeUnknown):
                await store.commit_as([moved(row)], enveloped(FIRST))
            assert proxy.cuts == 1
            assert await store.settle([moved(row)], FIRST) == ({"w"} if happened else set())
            assert len(await store.history("w")) == (3 if happened else 2)

    run(scenario)


@pytest.mark.parametrize("options", ["", POOLED])
@pytest.mark.parametrize("delivered", [False, True])
def test_a_read_that_is_cut_goes_to_another_connection(postgres_url: str, options: str, *, delivered: bool) -> None:
    async def scenario() -> None:
        async with opened(postgres_url), cutting(postgres_url) as proxy, opened(proxy.url + options) as store:
            (row,) = await begun(store, started())
            assert await store.load(["w"]) == {"w": row}
            proxy.cut = Cut(b"B", delivered=delivered)
            assert await store.load(["w"]) == {"w": row}
            assert proxy.cuts == 1

    run(scenario)


def test_a_commit_on_a_connection_that_was_found_closed_goes_to_another_one(postgres_url: str) -> None:
    """The driver says the same as for one that breaks in the middle; here nothing was sent."""

    async def scenario() -> None:
        async with opened(postgres_url) as store:
            (row,) = await begun(store, started())
            (row,) = await begun(store, moved(row))
            [link] = store._pool._idle
            statement, closed = link._statement, []

            async def closing(sql: str) -> object:
                prepared = await statement(sql)
                closed.append(sql)
                link.driver.terminate()
                return prepared

            link._statement = closing  # type: ignore[assignment, method-assign]
            await begun(store, moved(row))
            assert len(closed) == 1
            assert len(await store.history("w")) == 3

    run(scenario)
