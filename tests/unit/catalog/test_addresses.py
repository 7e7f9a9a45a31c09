"""Addresses: what is a lane, and what is said about everything else."""

import pytest

from interlock.errors import BadUsage
from interlock.urls import lane_path


def test_postgresql_is_told_from_a_mistake_where_a_lane_is_needed() -> None:
    with pytest.raises(BadUsage, match="is on PostgreSQL, and this needs a lane") as caught:
        lane_path("postgresql://ann:secret@db/shop")
    assert "secret" not in str(caught.value)
