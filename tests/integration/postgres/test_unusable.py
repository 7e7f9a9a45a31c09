"""A schema that is not what it was: everybody is told that nothing was changed, and goes on when it is right again."""

import pytest

from interlock.errors import UnavailableError
from tests.conformance.store.samples import begun, moved, run, started
from tests.integration.postgres.stores import opened, somebody


def test_tables_that_are_gone_for_a_moment_are_told_and_pass(postgres_url: str) -> None:
    async def scenario() -> None:
        async with opened(postgres_url) as store, somebody(postgres_url) as caller:
            (row,) = await begun(store, started())
            for table in ("workflows", "notes"):
                await caller.execute(f"ALTER TABLE {table} RENAME TO {table}_away")
            with pytest.raises(UnavailableError, match="the store could not do it"):
                await store.commit([moved(row)])
            with pytest.raises(UnavailableError, match="Nothing was changed"):
                await store.load(["w"])
            with pytest.raises(UnavailableError, match="the store could not do it"):
                await store.note("n", "x")
            for table in ("workflows", "notes"):
                await caller.execute(f"ALTER TABLE {table}_away RENAME TO {table}")
            assert await store.load(["w"]) == {"w": row}
            assert await store.commit([moved(row)]) == []
            await store.note("n", "x")

    run(scenario)
