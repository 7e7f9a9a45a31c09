"""A fork begins in any state, without the effects of that state (F6)."""

from interlock.core import decide
from interlock.core.events import FORKED
from interlock.core.values import RunEffect, RunStep, StoredJson
from tests.conformance.engine.shop import Order, State, shop

PAYLOAD = StoredJson("{}", "")


def test_a_fork_owes_the_step_and_no_effects() -> None:
    table = shop().machine.compiled
    decision = decide.fork(table, State.CHARGING, Order(5), PAYLOAD)
    assert (decision.snapshot.state, decision.snapshot.version, decision.snapshot.visit) == (State.CHARGING, 1, 1)
    [record] = decision.records
    assert (record.event, record.from_state, record.to_state) == (FORKED, State.CHARGING, State.CHARGING)
    assert [type(each) for each in decision.commands] == [RunStep]
    started = decide.start(table, State.DONE, Order())
    assert any(isinstance(each, RunEffect) for each in started.commands)
    assert decide.fork(table, State.DONE, Order(), PAYLOAD).commands == ()
