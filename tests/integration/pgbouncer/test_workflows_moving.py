"""D10 behind a pooler: workflows move to and from a schema that is reached through PgBouncer, in transaction mode."""

from tests.integration.postgres.workflows_moving.test_everything_arrives import (
    test_everything_that_a_store_keeps_arrives,
    test_nobody_can_use_the_target_before_everything_is_there,
    test_what_is_written_while_it_is_copied_arrives,
)
from tests.integration.postgres.workflows_returning.test_everything_returns import (
    test_a_round_trip_gives_back_the_same,
    test_what_is_written_while_it_is_copied_returns,
)

__all__ = [
    "test_a_round_trip_gives_back_the_same",
    "test_everything_that_a_store_keeps_arrives",
    "test_nobody_can_use_the_target_before_everything_is_there",
    "test_what_is_written_while_it_is_copied_arrives",
    "test_what_is_written_while_it_is_copied_returns",
]
