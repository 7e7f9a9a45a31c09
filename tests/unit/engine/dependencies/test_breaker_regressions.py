"""What a second reader of breakers and lines has found: passes that leak, attempts that never were, odd names."""

from pathlib import Path

import pytest

from interlock import AlertRaised, Breaker, Dependency, StepContext
from interlock.engine.steps import attempt
from interlock.errors import DefinitionError, InterlockError, OutcomeUnknown
from tests.conformance.engine.outages import down, later, look, named, submit
from tests.conformance.engine.places import Place, SetClock, run, settled, turns
from tests.conformance.engine.shop import Call, Charged, Held, Order, Outside, Reserved, State, Submit, World, shop

QUICK = Dependency("gateway", breaker=Breaker(failures=1))
"""Opens with the first failure."""

MEMORY = Place(Path(), "memory:")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that ignore their timeouts are given up at once."""
    monkeypatch.setattr(attempt, "IGNORED_S", 0.01)


def test_an_undo_behind_a_stuck_attempt_is_not_counted_when_the_engine_stops(tmp_path: Path, impatient: None) -> None:
    """C9: it was never made. Counted as a crash, three restarts would make a dead letter of it."""

    async def scenario() -> None:
        clock, stuck = SetClock(), Held(Charged(), stubborn=True)
        order = shop(World(charge=Outside(stuck)), charges_at="gateway", timeout_s=0.01, attempts=1).machine
        place = Place(tmp_path / "cache", f"lanes://{tmp_path}/shop")
        engine = await place.engine(order, clock=clock, drain_s=0.0)
        await submit(engine, order, ["o-1"])
        await engine.wait("o-1", State.UNDOING)
        await settled(engine)
        assert [each.attempts for each in await engine.compensations()] == [1]
        outlet = engine._inside.places.lines["gateway"].outlet
        await engine.close()
        assert (outlet.under_way, outlet.undos_under_way) == (0, 0)
        stuck.go.set()
        await turns()
        again = shop(World(refund=Outside(Held())), charges_at="gateway").machine
        async with place.engine(again, clock=clock, worker=False) as after:
            assert [each.attempts for each in await after.compensations()] == [0]

    run(scenario)


def test_an_undo_behind_a_stuck_attempt_does_not_keep_the_probe_from_others(impatient: None) -> None:
    """C4: half-open for ever, because the one that probes waits for an attempt that never ends."""

    async def scenario() -> None:
        clock, stuck = SetClock(), Held(Charged(), stubborn=True)
        world = World(charge=Outside(stuck, down(), Charged()), refund=Outside(down(), None))
        order = shop(world, charges_at="gateway", timeout_s=0.1, attempts=1).machine
        async with MEMORY.engine(order, clock=clock, drain_s=0.0, dependencies=[QUICK]) as engine:
            await submit(engine, order, named(2))
            assert engine.breakers()["gateway"].state == "open"
            await engine.wait("o-1", State.UNDOING)
            await submit(engine, order, ["o-3"])
            for _ in range(3):
                await later(engine, clock, 31.0)
            assert (await engine.wait("o-3")).state is State.DONE
            assert world.refund.calls[1:] == []
            stuck.go.set()
            assert (await engine.wait("o-1")).state is State.CANCELLED

    run(scenario)


def test_a_dead_engine_keeps_no_places_from_the_others() -> None:
    """C4, C8: an engine that cannot go on calls nobody, so it holds no probe and no place either."""

    async def scenario() -> None:
        clock = SetClock()
        first = shop(World(charge=Outside(down(), Charged())), charges_at="gateway").machine
        second = shop(World(charge=Outside(Charged())), charges_at="gateway").machine
        dead = await MEMORY.engine(first, clock=clock, dependencies=[QUICK])
        async with MEMORY.engine(second, clock=clock, dependencies=[QUICK]) as engine:
            await submit(dead, first, named(3))
            dead._inside.pipeline.dead = OutcomeUnknown("nobody knows.")
            await later(dead, clock, 31.0)
            await submit(engine, second, ["o-9"])
            assert (await engine.wait("o-9")).state is State.DONE
        await dead.close()

    run(scenario)


def test_an_alert_of_an_earlier_engine_of_the_same_process_is_resolved(tmp_path: Path) -> None:
    """C4: on-call was told that it is open, and is told when that is over, whichever engine finds out."""

    async def scenario() -> None:
        clock, signals = SetClock(), list[object]()
        order = shop(World(charge=Outside(down(), Charged())), charges_at="gateway").machine
        place = Place(tmp_path / "cache", f"lanes://{tmp_path}/shop")
        async with place.engine(order, clock=clock, dependencies=[QUICK], observers=[signals.append]) as engine:
            await submit(engine, order, named(2))
        async with place.engine(order, clock=clock, dependencies=[QUICK], observers=[signals.append]) as engine:
            await later(engine, clock, 31.0)
            await engine.wait("o-2")
            assert engine.breakers()["gateway"].state == "closed"
        assert [each.resolved for each in signals if isinstance(each, AlertRaised)] == [False, True]

    run(scenario)


@pytest.mark.parametrize("name", ["a b", "a/b", "a'b", "ü" * 300, "a\nb", "a\x1b[31mb", "a\0b", "a\ud800b"], ids=repr)
def test_a_dependency_has_any_name_or_is_refused_where_it_is_declared(tmp_path: Path, name: str) -> None:
    """A name that no store takes is refused at its line, and not when its breaker opens at night."""

    async def scenario() -> None:
        try:
            declared = Dependency(name, breaker=Breaker(failures=1))
        except DefinitionError:
            return
        order = shop(World(charge=Outside(down(), Charged())), charges_at=name).machine
        place = Place(tmp_path / "cache", f"lanes://{tmp_path}/shop")
        async with place.engine(order, clock=SetClock(), dependencies=[declared]) as engine:
            await submit(engine, order, named(2))
            await engine._inside.publisher.close()
            assert f"breaker:{name}" in await engine._store.notes()

    run(scenario)


@pytest.mark.parametrize("wrong", ["50", -1, 0, float("nan"), True], ids=repr)
def test_a_limit_that_is_none_is_refused_in_words(wrong: float) -> None:
    async def scenario() -> None:
        order = shop(charges_at="gateway").machine
        async with MEMORY.engine(order, clock=SetClock()) as engine:
            for given in ({"rate_per_s": wrong}, {"concurrency_max": wrong}):
                with pytest.raises(InterlockError, match=str(next(iter(given)))):
                    engine.set_limit("gateway", **given)  # type: ignore[arg-type]

    run(scenario)


def test_a_person_who_opens_a_breaker_stops_the_probe_that_waits_for_a_slot() -> None:
    """C4: held open means that nobody calls, also not the one who was called before."""

    async def scenario() -> None:
        clock, busy = SetClock(), Held(Reserved())
        world = World(charge=Outside(Charged(), down(), Charged()), reserve=Outside(busy, Reserved()))
        order = shop(world, charges_at="gateway").machine
        async with MEMORY.engine(order, clock=clock, dependencies=[QUICK], steps_max=2) as engine:
            await submit(engine, order, named(2))
            await submit(engine, order, ["o-3"])
            engine._inside.places.steps.reserve()
            await later(engine, clock, 31.0)
            view = engine.breakers()["gateway"]
            assert (view.state, view.under_way, len(world.charge.calls)) == ("half_open", 1, 2)
            engine.force_breaker("gateway", "open")
            engine._inside.places.steps.release()
            await settled(engine)
            assert (engine.breakers()["gateway"].under_way, len(world.charge.calls)) == (0, 2)
            engine.force_breaker("gateway", "auto")
            assert (await engine.wait("o-3")).state is State.DONE
            busy.go.set()

    run(scenario)


def test_the_reason_of_a_breaker_is_one_line_that_a_person_reads() -> None:
    """Everybody who waits says it: a page of a gateway's HTML, or its control characters, would be in every view."""

    async def scenario() -> None:
        told = ConnectionError("bad \x1b[31m gateway\n<html>" + "x" * 3_000)
        order = shop(World(charge=Outside(told)), charges_at="gateway").machine
        async with MEMORY.engine(order, clock=SetClock(), dependencies=[QUICK]) as engine:
            await submit(engine, order, ["o-1"])
            waiting = (await engine.get("o-1")).waiting
            assert waiting is not None
            assert "ConnectionError)" in waiting, "its text may be about another workflow"
            reason = engine.breakers()["gateway"].reason
            assert "ConnectionError: bad" in reason
            assert reason.isprintable()
            assert len(reason) < 400

    run(scenario)


@pytest.mark.parametrize("wrong", [Dependency("gateway"), None, 5], ids=repr)
def test_dependencies_that_are_no_list_are_refused_in_words(wrong: object) -> None:
    with pytest.raises(DefinitionError, match="which is not a list"):
        _ = MEMORY.engine(shop().machine, dependencies=wrong)  # type: ignore[arg-type]


def test_those_who_waited_for_a_breaker_that_a_person_held_open_come_back_in_waves() -> None:
    """C4: whether it has recovered is what the first of them find out, and not fifty at once."""

    async def scenario() -> None:
        clock, calls = SetClock(), [Held(Charged()) for _ in range(6)]
        order = shop(World(charge=Outside(*calls)), charges_at="gateway").machine
        async with MEMORY.engine(order, clock=clock) as engine:
            engine.force_breaker("gateway", "open")
            await submit(engine, order, named(6))
            engine.force_breaker("gateway", "auto")
            await settled(engine)
            assert [each.begun.is_set() for each in calls] == [True] * 2 + [False] * 4
            calls[0].go.set()
            await settled(engine)
            assert [each.begun.is_set() for each in calls] == [True] * 4 + [False] * 2
            for each in calls:
                each.go.set()
            for workflow in named(6):
                assert (await engine.wait(workflow)).state is State.DONE

    run(scenario)


def test_a_retry_does_not_overtake_an_older_workflow_that_waits() -> None:
    """C8: whoever comes back at the very moment that a token is there waits behind those who are older."""

    async def scenario() -> None:
        clock, world = SetClock(), World(charge=Outside(down(0.5), Charged()))
        order = shop(world, charges_at="gateway").machine
        slow = Dependency("gateway", rate_per_s=1.0)
        async with MEMORY.engine(order, clock=clock, dependencies=[slow]) as engine:
            await engine.start(order, "older", Order())
            clock.now_s += 0.001
            await submit(engine, order, ["younger"])
            await engine.send("older", Submit())
            await settled(engine)
            clock.now_s += 1.0
            engine._inside.runner.timers._look()
            await settled(engine)
            await look(engine)
            assert [call.ctx.workflow for call in world.charge.calls] == ["younger", "older"]
            await later(engine, clock, 1.0)
            assert [call.ctx.workflow for call in world.charge.calls] == ["younger", "older", "younger"]

    run(scenario)


def test_a_workflow_that_always_fails_does_not_make_every_probe() -> None:
    """C4: a failed probe costs no attempt. If the oldest were always the next, nobody would ever be let through."""

    async def scenario() -> None:
        clock, world = SetClock(), World()
        order = shop(world, charges_at="gateway").machine

        async def charge(order: Order, ctx: StepContext) -> Charged:
            world.charge.calls.append(Call(order, ctx))
            if ctx.workflow == "poison":
                raise ConnectionError("this one kills the gateway")
            return Charged()

        async with MEMORY.engine(order, clock=clock, dependencies=[QUICK], steps={"charge": charge}) as engine:
            await submit(engine, order, ["poison"])
            clock.now_s += 0.001
            await submit(engine, order, ["well"])
            for _ in range(3):
                await later(engine, clock, 31.0)
            assert (await engine.get("well")).state is State.DONE

    run(scenario)
