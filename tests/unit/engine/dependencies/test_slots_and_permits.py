"""C8, C9, G6: an attempt needs a slot of its engine and a place at its dependency, and loses neither."""

from interlock.core.policies import Breaker, Dependency
from interlock.engine.dependencies.outlet import BreakerTransition, outlet_of
from interlock.engine.dependencies.wait_queue import Places, lines_of
from interlock.testing.virtual_time import VirtualClock
from tests.unit.engine.dependencies.queues import fails
from tests.unit.engine.shared.stores import Luck, play

GATEWAY, MAIL = Dependency("gateway", 2), Dependency("mail", 2)


def placed(steps: int = 1, undos: int = 1, effects: int = 1, *dependencies: Dependency) -> tuple[Places, list[str]]:
    """Places of an engine at two dependencies, and who was called."""
    lines = lines_of([], dependencies or (GATEWAY, MAIL), clock=VirtualClock(), chance=Luck(), changed=print)
    places, called = Places(steps, undos, effects, lines), list[str]()
    for slots in (places.steps, places.undos, places.effects):
        slots.called = called.append
    places.open()
    return places, called


def under_way(places: Places) -> dict[str, tuple[int, int]]:
    return {name: (each.outlet.under_way, each.outlet.undos_under_way) for name, each in places.lines.items()}


FREE = {"gateway": (0, 0), "mail": (0, 0)}


def test_without_a_dependency_a_slot_is_enough() -> None:
    async def scenario() -> None:
        places, called = placed()
        held = places.reserve(None, places.steps, None, "first")
        assert held is not None
        assert held.line is None
        assert places.reserve("a", places.steps, None, "first") is None
        places.wait("a", places.steps, None, "first")
        assert (places.waiting, called) == (1, [])
        held.leave("done")
        assert called == ["a"]
        assert places.reserve("a", places.steps, None, "first") is held
        assert under_way(places) == FREE

    play(scenario)


def test_steps_undos_and_effects_have_slots_of_their_own() -> None:
    """C9: compensation works while all steps are stuck."""

    async def scenario() -> None:
        places, _ = placed()
        for slots in (places.steps, places.undos, places.effects):
            assert places.reserve(None, slots, None, "first") is not None
            assert places.reserve(None, slots, None, "first") is None

    play(scenario)


def test_a_place_without_a_slot_is_kept_for_whoever_waits_for_the_slot() -> None:
    async def scenario() -> None:
        places, called = placed()
        line = places.lines["gateway"]
        held = places.reserve("a", places.steps, line, "first")
        assert held is not None
        assert places.reserve("b", places.steps, line, "first") is None
        assert line.keeps("b", "first")
        places.wait("b", places.steps, line, "first")
        assert (called, places.waiting, under_way(places)["gateway"]) == ([], 1, (2, 0))
        held.leave("done")
        assert called == ["b"]
        held = places.reserve("b", places.steps, line, "first")
        assert held is not None
        held.leave("done")
        assert (under_way(places), places.steps.free) == (FREE, 1)

    play(scenario)


def test_a_slot_without_a_place_is_not_kept_from_others() -> None:
    """Nobody who waits for a slow dependency takes a slot that somebody else could use."""

    async def scenario() -> None:
        places, called = placed(1, 1, 1, Dependency("gateway", 1), MAIL)
        line = places.lines["gateway"]
        assert line.outlet.ask("first") == "call"
        places.steps.wait("a")
        assert (called, places.steps.free) == (["a"], 0)
        assert places.reserve("a", places.steps, line, "first") is None
        assert places.steps.free == 1
        places.wait("a", places.steps, line, "first")
        assert (places.waiting, len(line)) == (1, 1)
        line.outlet.leave("first", "call", "done")
        assert called == ["a", "a"]
        assert places.reserve("a", places.steps, line, "first") is not None

    play(scenario)


def test_whoever_has_no_name_gets_both_or_nothing_and_pays_for_nothing() -> None:
    """A start that finds no slot takes no token, no probe and no part of the budget."""

    async def scenario() -> None:
        places, called = placed(1, 1, 1, Dependency("gateway", 5, 1.0), MAIL)
        line = places.lines["gateway"]
        assert places.reserve(None, places.steps, None, "first") is not None
        assert places.reserve(None, places.steps, line, "first") is None
        assert (line.kept, line.outlet.under_way, line.outlet._spending.calls) == (0, 0, 0)
        assert line.outlet.why("first") is None
        places.steps.release()
        line.outlet.force("open", "by hand")
        assert places.reserve(None, places.steps, line, "first") is None
        assert (places.steps.free, called) == (1, [])
        line.outlet.force(None, "auto")
        assert places.reserve(None, places.steps, line, "first") is not None

    play(scenario)


def test_declining_frees_both() -> None:
    async def scenario() -> None:
        places, called = placed(1, 1, 1, Dependency("gateway", 1), MAIL)
        line = places.lines["gateway"]
        places.wait("a", places.steps, line, "first")
        places.wait("b", places.steps, line, "first")
        assert (called, under_way(places)["gateway"]) == (["a"], (1, 0))
        places.decline("a")
        places.decline("nobody")
        assert called == ["a", "b"]
        places.decline("b")
        assert (under_way(places), places.steps.free) == (FREE, 1)

    play(scenario)


def test_a_workflow_that_was_called_for_its_step_and_unwinds_loses_no_place() -> None:
    """It was called to a slot and a place for its step, and begins an undo: with another slot, elsewhere."""

    async def scenario() -> None:
        places, called = placed()
        gateway, mail = places.lines["gateway"], places.lines["mail"]
        places.wait("a", places.steps, gateway, "first")
        assert (called, places.steps.free, under_way(places)["gateway"]) == (["a"], 0, (1, 0))
        held = places.reserve("a", places.undos, mail, "undo")
        assert held is not None
        assert (places.steps.free, places.undos.free, under_way(places)) == (1, 0, {"gateway": (0, 0), "mail": (0, 1)})
        held.leave("done")
        places.wait("a", places.steps, gateway, "first")
        plain = places.reserve("a", places.undos, None, "undo")
        assert plain is not None
        plain.leave("done")
        assert (places.steps.free, places.undos.free, under_way(places)) == (1, 1, FREE)

    play(scenario)


def test_a_probe_that_is_kept_for_a_slot_stays_a_probe() -> None:
    async def scenario() -> None:
        places, _ = placed(1, 1, 1, Dependency("gateway", 2, breaker=Breaker(failures=1)), MAIL)
        line = places.lines["gateway"]
        line.outlet.remember("open", None, "")
        assert places.reserve(None, places.steps, None, "first") is not None
        assert places.reserve("a", places.steps, line, "first") is None
        places.wait("a", places.steps, line, "first")
        places.steps.release()
        held = places.reserve("a", places.steps, line, "first")
        assert held is not None
        assert held.is_probe
        held.leave("failed", 0.0, "x")
        assert line.outlet.phase == "open"

    play(scenario)


def test_closing_gives_back_what_was_kept() -> None:
    async def scenario() -> None:
        places, _ = placed()
        places.wait("a", places.steps, places.lines["gateway"], "first")
        places.close()
        assert under_way(places) == FREE
        assert places.reserve(None, places.steps, None, "first") is None
        assert places.reserve("a", places.steps, places.lines["gateway"], "first") is None
        assert all(each.outlet.unused for each in places.lines.values())

    play(scenario)


def test_an_engine_has_a_line_at_everything_that_it_calls_or_that_was_declared() -> None:
    async def scenario() -> None:
        clock, changes = VirtualClock(), list[BreakerTransition]()
        lines = lines_of(
            ["mail", "gateway"],
            [Dependency("gateway", 7, breaker=Breaker(failures=1)), Dependency("ledger", 3)],
            clock=clock,
            chance=Luck(),
            changed=changes.append,
        )
        assert {name: each.outlet.concurrency_max for name, each in lines.items()} == {
            "gateway": 7,
            "ledger": 3,
            "mail": 50,
        }
        assert list(lines) == sorted(lines)
        assert lines["mail"].outlet is outlet_of("mail", clock)
        fails(lines["gateway"].outlet)
        assert [(each.dependency, each.after) for each in changes] == [("gateway", "open")]

    play(scenario)
