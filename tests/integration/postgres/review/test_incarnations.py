"""G1 across pruning: what one engine remembers of a workflow that is gone says nothing about the next of that id."""

from interlock import Engine
from tests.conformance.store.samples import run
from tests.integration.postgres.review.shop import Finish, Note, Order, Outside, shop


def test_an_event_is_not_decided_upon_a_workflow_that_was_pruned_and_began_anew(postgres_url: str) -> None:
    """G1: both have the same id and the same revision; memory holds the first, the store the second."""

    async def scenario() -> None:
        machine = shop(Outside())
        async with (
            Engine.open(postgres_url, machines=[machine], worker=False) as one,
            Engine.open(postgres_url, machines=[machine], worker=False) as two,
        ):
            await one.start(machine, "daily", Order(cents=1))
            await one.send("daily", Note("old"))
            await two.send("daily", Finish())
            pruned = await two.prune(older_than_s=0, with_owed=True)
            assert pruned.workflows == 1
            await two.start(machine, "daily", Order(cents=2))
            await two.send("daily", Note("new"))
            await one.send("daily", Note("newer"))
            context = (await two.get("daily")).context
            assert context == Order(cents=2, note="newer")

    run(scenario)
