"""The doctor for a database's address: finds the file, and knows the functions that its schema may call."""

from interlock.database.addresses import lane_path
from interlock.database.translation import register
from interlock.errors import BadUsage
from interlock.lanes.doctor import LaneReport, examine
from interlock.seams import RandomIds, SystemChance, SystemClock


def examine_database(url: str) -> LaneReport:
    """Look at the lane at this address; changes nothing. Raises TargetNotFound, LaneOwned and BadUsage."""
    path = lane_path(url)
    if path is None:
        raise BadUsage(
            "a database in memory cannot be looked at from outside.",
            why="It exists only inside the process that opened it.",
            fix="Name a lane: lanes:///var/shop/stock.",
        )
    return examine(
        path,
        clock=SystemClock(),
        prepare=lambda connection, now_us: register(connection, now_us, chance=SystemChance(), ids=RandomIds()),
    )
