"""The example of machines that work together: sound, and its story ends as it says."""

import pytest

from examples import fulfilment as story
from examples.fulfilment import account, fulfilment, parcel, settlement
from tests.conformance.engine.places import run


@pytest.mark.parametrize("machine", [fulfilment, parcel, account, settlement], ids=lambda machine: machine.name)
def test_no_machine_has_more_than_remarks(machine: object) -> None:
    assert [str(each) for each in machine.check() if each.severity != "info"] == []  # type: ignore[attr-defined]


def test_the_story_ends_with_every_parcel_returned(capsys: pytest.CaptureFixture[str]) -> None:
    run(story.main)
    told = capsys.readouterr().out
    assert "charged 94800 cents" in told
    assert "a large refund waits: approving" in told
    assert told.index("refunded 94800 cents") < told.index("o-1.0-sofa is returned")
    assert "settled 20" in told
