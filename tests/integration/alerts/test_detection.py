"""B7, from end to end: a workflow stays too long, PagerDuty is told; it moves on, PagerDuty is told again."""

import asyncio

from interlock.clock import SystemChance
from interlock.core.table import Node
from interlock.engine.alerts import Alarms, AlertSettings, PagerDuty
from interlock.engine.alerts.detector import StallDetector
from interlock.signals import Subscribers
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Row
from tests.integration.alerts.receiver import receiving
from tests.unit.engine.alerts.test_detector import ORDER, VirtualClock


def test_a_stalled_workflow_opens_an_incident_and_closes_it_when_it_moves_on() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    nodes: dict[str, Node] = ORDER

    def row(state: str, version: int) -> Row:
        now_us = store.now_us()
        return Row(
            "o-1", "order", 1, state, b"{}", version, version, True, now_us, now_us, now_us, b"", revision=version
        )

    async def live(url: str) -> None:
        pager = PagerDuty("0123456789abcdef0123456789abcdef", url=url)
        settings = AlertSettings(close_s=30.0)
        alarms = Alarms(Subscribers(), [pager], clock=clock, chance=SystemChance(1), settings=settings)
        detector = StallDetector(store, {"order": ORDER}, alarms, every_s=30.0)
        await store.commit([Change(row(nodes["CHARGING"].name, 1), expected=0)])
        clock.now_s += 3_600
        await detector.look()
        await detector.look()
        await store.commit([Change(row(nodes["PACKING"].name, 2), expected=1)])
        await detector.look()
        await alarms.close()

    with receiving() as receiver:
        asyncio.run(live(receiver.url))
        sent = [each.json() for each in receiver.all()]
    assert [(each["event_action"], each["dedup_key"]) for each in sent] == [
        ("trigger", "interlock/stalled/order/o-1/1"),
        ("resolve", "interlock/stalled/order/o-1/1"),
    ]
