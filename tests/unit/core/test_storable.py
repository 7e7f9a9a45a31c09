"""A type that would crash the decoder is refused before the decoder hears of it."""

from dataclasses import make_dataclass
from typing import Annotated

import pytest
from msgspec import Meta

from interlock.core.codec import not_storable

CONSTRAINED = Annotated[int, Meta(ge=0)]
NOTED = Annotated[int, Meta(description="only a note")]
FIXED = tuple[int, int]

CRASHING = [
    FIXED | CONSTRAINED,
    CONSTRAINED | None | FIXED,
    FIXED | Annotated[str, Meta(pattern="x")],
    Annotated[FIXED, Meta(description="a pair")] | CONSTRAINED,
    dict[str, list[FIXED | CONSTRAINED]],
    make_dataclass("Trap", [("where", dict[str, FIXED | CONSTRAINED])], frozen=True),
]
FINE = [
    FIXED | int,
    FIXED | NOTED,
    tuple[int, ...] | CONSTRAINED,
    list[int] | CONSTRAINED,
    make_dataclass("Fine", [("pair", FIXED), ("number", CONSTRAINED)], frozen=True),
]


@pytest.mark.parametrize("kind", CRASHING, ids=str)
def test_a_union_that_crashes_the_decoder_is_refused_before_it_is_made(kind: object) -> None:
    assert "fixed-length tuple" in not_storable(kind)


@pytest.mark.parametrize("kind", FINE, ids=str)
def test_its_neighbours_are_fine(kind: object) -> None:
    assert not_storable(kind) == ""
