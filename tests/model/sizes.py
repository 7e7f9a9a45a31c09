"""How far the search looks, and what it has to find in each sabotaged protocol."""

import os
from typing import NamedTuple

from tests.model.world import Sabotage, Size

SMALL = (
    Size(3, 4),
    Size(3, 4, groups=2, late=0),
    Size(2, 4, groups=2, late=2),
    Size(2, 3, changes=2, renewals=True),
)
LARGE = (
    Size(3, 4, groups=2),
    Size(3, 4, late=2),
    Size(3, 3, late=2, renewals=True),
    Size(2, 4, groups=2, late=2, changes=2, renewals=True),
    Size(4, 4, late=0),
)
FAR = os.environ.get("INTERLOCK_MODEL") == "large"
SIZES = (*SMALL, *LARGE) if FAR else SMALL


class Finding(NamedTuple):
    """The shortest story of a sabotage: where to look, how the broken guarantee begins, how many steps it takes."""

    size: Size
    broken: str
    steps: int


# What is looked at is as small as the sabotage allows: a story in a larger world is no better.
SABOTAGES = {
    Sabotage.ACKNOWLEDGE_FIRST: Finding(Size(1, 2), "G2: A acknowledges A1", 4),
    Sabotage.EXISTS_IS_SUCCESS: Finding(Size(1, 2), "G2: A acknowledges A1", 4),
    Sabotage.EXISTS_IS_FENCED: Finding(Size(1, 2), "G9: A says that it is fenced, but nobody took over", 4),
    Sabotage.NO_FENCE: Finding(Size(2, 1, late=0), "G1: B begins with [], recovery yields [A1]", 7),
    Sabotage.FENCE_COLLECTED: Finding(Size(2, 2, late=0), "G2: A acknowledges A1", 11),
    Sabotage.SLOT_SKIPPED: Finding(Size(1, 3, late=0), "G2: A acknowledges A1", 5),
    Sabotage.SLOT_REUSED: Finding(Size(1, 2, groups=2), "corruption: A of epoch 1 meets epoch 1", 7),
    Sabotage.LOCAL_POSITION: Finding(Size(2, 3, late=0), "G1: B begins with [A1], recovery yields []", 7),
    Sabotage.NO_NONCE: Finding(Size(2, 1, late=0), "corruption: B meets another writer of its own epoch 1", 5),
    Sabotage.SAME_EPOCH: Finding(Size(2, 1, late=0), "corruption: B meets another writer of its own epoch 1", 4),
    Sabotage.FLOOR_FIRST: Finding(Size(1, 1), "G2: the database cannot be opened: there is no snapshot", 5),
    Sabotage.DELETE_FIRST: Finding(Size(1, 2), "G1, G2: recovery yielded [A1], and now []", 6),
    Sabotage.PENDING_SNAPSHOT: Finding(
        Size(2, 3, late=0), "G2: the database cannot be opened: the chain is broken", 12
    ),
    Sabotage.PENDING_READ: Finding(Size(1, 2), "G7: A shows [A1], recovery yields []", 4),
    Sabotage.NO_CONFIRMATION: Finding(Size(3, 4, groups=2, late=0, faults=False), "corruption: B of epoch 2 meets", 17),
    Sabotage.BLIND_REFUSAL: Finding(Size(2, 3), "G9: A1 was refused for certain", 15),
}

# Without the second look at the manifest nothing breaks here.
TOO_SMALL = (
    Size(3, 4, late=int(FAR), faults=FAR),
    Size(3, 3, groups=2, late=int(FAR), faults=FAR),
    Size(2, 4, groups=2, late=int(FAR), faults=FAR),
)
