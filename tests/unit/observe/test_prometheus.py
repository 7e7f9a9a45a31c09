"""C13: the names that Prometheus sees, and that their values are true."""

import asyncio
import importlib
import re
import sys

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from interlock import Admission, Breaker, Dependency, Engine, InvalidTransition, MissingExtra, Overloaded
from interlock.observe import prometheus as module
from interlock.observe.metrics import METRICS
from interlock.observe.prometheus import Prometheus
from tests.unit.observe.tickets import Buy, Paid, State, Ticket, tickets

BANK = Dependency("bank", breaker=Breaker(failures=2, reset_s=600))


def values(body: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_transitions_are_counted_one_by_one_although_they_come_in_groups() -> None:
    async def scenario() -> None:
        machine, observer = tickets(), Prometheus()
        async with Engine.open("memory:", machines=[machine], dependencies=[BANK], observers=[observer]) as engine:
            await asyncio.gather(*(engine.start(machine, f"t-{number}", Ticket()) for number in range(30)))
            await engine.send_many([(f"t-{number}", Buy()) for number in range(20)])
            await asyncio.gather(*(engine.wait(f"t-{number}") for number in range(20)))
            kind, body = await observer.render()
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        found = values(body)
        durations = "pipeline_transition_duration_count"
        for move, count in {("open", "open"): 30, ("open", "paying"): 20, ("booking", "done"): 20}.items():
            labels = (("from", move[0]), ("machine", "ticket"), ("to", move[1]))
            assert found[durations, labels] == count
            beyond = (("from", move[0]), ("le", "+Inf"), ("machine", "ticket"), ("to", move[1]))
            assert found["pipeline_transition_duration_bucket", beyond] == count
            assert found["pipeline_transition_duration_sum", labels] > 0
        sizes = found["pipeline_group_size_sum", ()]
        assert sizes == sum(value for (name, _), value in found.items() if name == durations)
        assert found["pipeline_group_size_count", ()] < sizes
        depths = {labels: value for (name, labels), value in found.items() if name == "state_machine_depth"}
        assert depths[("machine", "ticket"), ("state", "open")] == 10
        assert depths[("machine", "ticket"), ("state", "done")] == 20
        assert depths[("machine", "ticket"), ("state", "paying")] == 0
        attempts = (("kind", "step"), ("machine", "ticket"), ("outcome", "done"), ("step", "paying"))
        assert found["step_attempt_duration_count", attempts] == 20

    asyncio.run(scenario())


def test_buckets_are_cumulative_and_in_order() -> None:
    async def scenario() -> bytes:
        machine, observer = tickets(), Prometheus()
        observer.counting.grouped({("ticket", "a", "b"): 3}, 0.0007)
        observer.counting.grouped({("ticket", "a", "b"): 2}, 0.3)
        observer.counting.grouped({("ticket", "a", "b"): 1}, 1e6)
        del machine
        return (await observer.render())[1]

    body = asyncio.run(scenario()).decode()
    found = re.findall(r'pipeline_transition_duration_bucket\{from="a",le="([^"]+)"[^}]*\} (\S+)', body)
    assert [bound for bound, _ in found][:3] == ["0.0005", "0.001", "0.0025"]
    assert [float(value) for _, value in found] == [0.0, *[3.0] * 7, *[3.0], *[5.0] * 7, 6.0]
    assert "pipeline_transition_duration_sum" in body


def test_the_breaker_is_0_closed_1_open_and_its_changes_are_counted() -> None:
    async def scenario() -> None:
        def down() -> None:
            raise ConnectionError("no route to the bank")

        machine, observer = tickets(down), Prometheus()
        async with Engine.open("memory:", machines=[machine], dependencies=[BANK], observers=[observer]) as engine:
            labels = (("dependency", "bank"),)
            assert values((await observer.render())[1])["circuit_breaker_state", labels] == 0
            opened: asyncio.Event = asyncio.Event()
            engine.subscribe(lambda signal: opened.set() if type(signal).__name__ == "BreakerChanged" else None)
            await engine.start(machine, "t-1", Ticket())
            await engine.send("t-1", Buy())
            await opened.wait()
            found = values((await observer.render())[1])
            assert found["circuit_breaker_state", labels] == 1
            assert found["circuit_breaker_changes_total", (*labels, ("to", "open"))] == 1
            engine.force_breaker("bank", "closed")
            assert values((await observer.render())[1])["circuit_breaker_state", labels] == 0

    asyncio.run(scenario())


def test_rejections_and_refusals_are_counted() -> None:
    async def scenario() -> None:
        machine, observer = tickets(), Prometheus()
        admission = Admission(rate_per_s=0.001, burst=4)
        async with Engine.open(
            "memory:", machines=[machine], observers=[observer], admission=admission, worker=False
        ) as engine:
            await engine.start(machine, "t-1", Ticket())
            for _ in range(3):
                with pytest.raises(InvalidTransition):
                    await engine.send("t-1", Paid())
            with pytest.raises(Overloaded):
                await engine.send("t-1", Paid())
            found = values((await observer.render())[1])
        labels = (("code", "invalid-transition"), ("event", "PAID"), ("machine", "ticket"))
        assert found["transition_rejections_total", labels] == 3
        assert found["admission_refusals_total", ()] == 1
        assert found["observer_failures_total", ()] == 0

    asyncio.run(scenario())


def test_debt_and_dead_letters_come_from_the_store() -> None:
    async def scenario() -> None:
        machine, observer = tickets(), Prometheus()
        url = "memory:"
        async with Engine.open(url, machines=[machine], observers=[observer], worker=False) as engine:
            await engine.start(machine, "t-1", Ticket())
            await engine.send("t-1", Buy())
            found = values((await observer.render())[1])
        assert found["compensation_debt", (("machine", "ticket"),)] == 0
        assert {kind: found["dead_letters", (("kind", kind),)] for kind in ("step", "effect", "undo")} == {
            "step": 0, "effect": 0, "undo": 0,
        }  # fmt: skip
        assert found["workflows_stalled", (("machine", "ticket"),)] == 0

    asyncio.run(scenario())


def test_every_metric_has_its_name_and_nothing_else_is_there_but_the_process() -> None:
    async def scenario() -> str:
        observer = Prometheus()
        async with Engine.open("memory:", machines=[tickets()], observers=[observer]):
            return (await observer.render())[1].decode()

    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", asyncio.run(scenario()), re.MULTILINE))
    ours = {name: kind for name, kind in kinds.items() if not name.startswith("process_")}
    assert ours == {metric.flat + ("_total" if metric.kind == "counter" else ""): metric.kind for metric in METRICS}
    for name in ("pipeline_transition_duration", "circuit_breaker_state", "state_machine_depth"):
        assert name in ours


def test_one_observer_of_several_engines_adds_them_up_and_forgets_the_closed() -> None:
    async def scenario() -> None:
        first, second, observer = tickets(), tickets(), Prometheus()
        async with Engine.open("memory:", machines=[first], observers=[observer]) as engine:
            await engine.start(first, "t-1", Ticket())
            async with Engine.open("memory:", machines=[second], observers=[observer]) as other:
                await other.start(second, "t-1", Ticket())
                found = values((await observer.render())[1])
                assert found["state_machine_depth", (("machine", "ticket"), ("state", "open"))] == 2
            found = values((await observer.render())[1])
            assert found["state_machine_depth", (("machine", "ticket"), ("state", "open"))] == 1

    asyncio.run(scenario())


def test_its_metrics_can_stand_among_others() -> None:
    registry = CollectorRegistry()
    observer = Prometheus(registry=registry)
    observer.counting.grouped({("ticket", "a", "b"): 3}, 0.5)
    labels = {"machine": "ticket", "from": "a", "to": "b"}
    assert registry.get_sample_value("pipeline_transition_duration_count", labels) == 3


def test_without_its_package_it_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match="prometheus-client") as missing:
        importlib.reload(module)
    assert "interlock[otel]" in missing.value.fix
    monkeypatch.undo()
    importlib.reload(module)
    assert State.OPEN.value == "open"
