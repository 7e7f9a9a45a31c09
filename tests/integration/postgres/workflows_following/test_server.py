"""A server with a home on a disk whose workflows move to PostgreSQL under the eyes of its clients."""

import asyncio
from pathlib import Path

from interlock import Client, Engine
from tests.integration.client.serving import running
from tests.integration.postgres.workflows_following.flowing import Flow, made, problems
from tests.integration.postgres.workflows_moving.moves import move
from tests.unit.engine.follow_moves.shop import Noted, Order, Submit

SOME = 8


def test_clients_with_keys_see_no_failed_request(tmp_path: Path, postgres_url: str) -> None:
    async def test() -> None:
        home = f"lanes://{tmp_path}"
        gateway, machine = made()
        async with (
            Engine.open(home, machines=[machine], drain_s=0) as engine,
            running(engine) as server,
            Client(server.url, machines=[machine]) as client,
        ):

            async def buy(workflow: str) -> None:
                await client.start(machine, workflow, Order())
                await client.send(workflow, Noted(), key=f"{workflow}/note")
                answers = await client.send_many([(workflow, Submit(), f"{workflow}/submit")])
                assert getattr(answers[0], "version", 0) == 3, answers
                await client.of(machine).wait(workflow, timeout_s=60)

            flow = Flow(buy)
            seen: set[tuple[str, int]] = set()
            async with client.stream(machine="shop", kinds=["transition_applied"]) as events, flow.flowing():
                await flow.more(SOME)
                await move(home, postgres_url)
                await flow.more(SOME)
                # The stream has gone on: it tells of orders that were begun and ended at the new place.
                while (flow.through[-1], 5) not in seen:
                    event = await anext(events)
                    assert event.kind == "transition_applied"
                    seen.add((getattr(event.signal, "workflow", ""), getattr(event.signal, "version", 0)))
            assert engine._inside.store.shared
            assert await problems(engine, flow, gateway) == []

    asyncio.run(test())
