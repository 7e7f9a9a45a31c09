"""Any database of the dialect survives a journey from engine to engine: its shape, its rows, its digest."""

import pytest
from hypothesis import HealthCheck, given, settings

from interlock.relocate.lane_shape import shape_of_lane
from interlock.relocate.postgres_rows import postgres_positions
from interlock.relocate.postgres_shape import shape_of_postgres
from interlock.relocate.rows import lane_positions
from tests.integration.postgres.moving.carrying import (
    digests,
    from_server,
    lane_contents,
    linked,
    run,
    server_contents,
    skeleton,
    texts,
    to_server,
)
from tests.integration.postgres.moving.schemas import Drawn, databases

EXAMPLES = settings().max_examples // 4
"""Each makes two schemas; HYPOTHESIS_PROFILE=proof has twenty times as many."""


@pytest.mark.slow
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(databases())
def test_any_database_is_the_same_after_a_journey(postgres: str, drawn: Drawn) -> None:
    async def scenario() -> None:
        async with linked(postgres) as link:
            lane = drawn.made()
            shape, rows = shape_of_lane(lane), lane_contents(lane, shape_of_lane(lane))
            first = await to_server(lane, link)
            there = await shape_of_postgres(link, first)
            assert texts(skeleton(there)) == texts(skeleton(shape))
            assert skeleton(there) == skeleton(shape)
            assert await server_contents(link, first, there) == rows
            back = await from_server(link, first)
            assert texts(shape_of_lane(back)) == texts(there)
            assert shape_of_lane(back) == there
            assert lane_contents(back, there) == rows
            assert lane_positions(back, there) == lane_positions(lane, shape)
            second = await to_server(back, link)
            again = await shape_of_postgres(link, second)
            assert texts(again) == texts(there)
            assert again == there
            assert digests(await server_contents(link, second, again)) == digests(rows)
            assert await postgres_positions(link, second, again) == lane_positions(lane, shape)
            await link.driver.execute(f'DROP SCHEMA "{first}" CASCADE; DROP SCHEMA "{second}" CASCADE')

    run(scenario())
