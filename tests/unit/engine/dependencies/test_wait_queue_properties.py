"""C4, C8, C9, G6: whatever happens in whichever order, no place is lost and nobody waits beside a free one."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from interlock.core.policies import Breaker, Dependency, Verdict
from interlock.engine.dependencies.outlet import Kind, Outcome
from interlock.engine.dependencies.wait_queue import Pass, Places, lines_of
from tests.unit.engine.dependencies.queues import clock_of_the_loop
from tests.unit.engine.shared.stores import Luck, passed, play

KINDS: tuple[Kind, ...] = ("first", "retry", "undo")
OUTCOMES: tuple[Outcome, ...] = ("done", "failed", "refused", "abandoned")

names = st.sampled_from("abcdefg")
moves = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(KINDS), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from(KINDS), names),
        st.tuples(st.just("wait"), st.sampled_from(KINDS), names),
        st.tuples(st.just("answer"), st.sampled_from(KINDS), st.just("")),
        st.tuples(st.just("answer"), st.sampled_from(KINDS), st.just("")),
        st.tuples(st.just("decline"), st.just("first"), names),
        st.tuples(st.just("leave"), st.sampled_from(OUTCOMES), st.just("")),
        st.tuples(st.just("leave"), st.sampled_from(OUTCOMES), st.just("")),
        st.tuples(st.just("pass"), st.just(""), st.sampled_from(["0.2", "1", "11", "31"])),
    ),
    max_size=80,
)
HANGING = [
    ("begin", "first", ""),
    ("leave", "failed", ""),
    ("pass", "", "31"),
    ("begin", "first", ""),
    ("pass", "", "31"),
    ("begin", "first", ""),
]
"""The second probe is made while the first hangs."""
dependencies = st.builds(
    Dependency,
    st.just("gateway"),
    st.integers(1, 3),
    st.sampled_from([None, 2.0]),
    st.builds(Breaker, failures=st.integers(1, 3), reset_s=st.just(30.0), probes=st.integers(1, 2)),
)


class Engine:
    """An engine as its line sees it: those who were called answer some time, with what they need by then."""

    def __init__(self, dependency: Dependency) -> None:
        clock = clock_of_the_loop().clock
        self.line = lines_of([], [dependency], clock=clock, chance=Luck(), changed=lambda _: None)["gateway"]
        self.places = Places(2, 1, 0, {"gateway": self.line})
        self.called = list[str]()
        self.places.steps.called = self.places.undos.called = self.called.append
        self.places.open()
        self.under_way = list[Pass]()
        self.probes_too_many = 0
        self._ask = self.line.outlet.ask
        self.line.outlet.ask = self.ask  # type: ignore[method-assign]

    def ask(self, kind: Kind) -> Verdict:
        """Ask the outlet, and count probes beyond the bound that do not replace one that hangs for `reset_s`."""
        outlet = self.line.outlet
        again_s = outlet.breaker.probes_again_s(outlet.circuit)
        verdict = self._ask(kind)
        if verdict == "probe" and outlet.circuit.probes > outlet.breaker.probes:
            self.probes_too_many += clock_of_the_loop().clock.monotonic_s() < again_s
        return verdict

    def tried(self, name: str | None, kind: Kind) -> None:
        """Begin an attempt, or wait for it."""
        slots = self.places.undos if kind == "undo" else self.places.steps
        held = self.places.reserve(name, slots, self.line, kind)
        if held is not None:
            self.under_way.append(held)
        elif name is not None:
            self.places.wait(name, slots, self.line, kind)

    async def move(self, move: tuple[str, str, str]) -> None:
        what, how, which = move
        if what in ("begin", "wait"):
            self.tried(which or None, how)  # type: ignore[arg-type]
        elif what == "answer" and self.called:
            self.tried(self.called.pop(0), how)  # type: ignore[arg-type]
        elif what == "decline":
            self.places.decline(which)
        elif what == "leave" and self.under_way:
            self.under_way.pop(0).leave(how, 0.0, "x")  # type: ignore[arg-type]
        elif what == "pass":
            await passed(float(which))

    def check(self) -> None:
        line, outlet = self.line, self.line.outlet
        kept = [*self.under_way, *line._kept.values()]
        kinds = Counter("undo" if each.kind == "undo" else "call" for each in kept)
        assert (outlet.under_way, outlet.undos_under_way) == (kinds["call"], kinds["undo"])
        assert outlet.under_way <= outlet.concurrency_max
        assert outlet.undos_under_way <= 1
        assert outlet.circuit.probes == sum(each.admitted == "probe" for each in kept)
        assert self.probes_too_many == 0
        for slots in (self.places.steps, self.places.undos):
            begun = sum(each.slots is slots for each in self.under_way)
            assert slots.free + len(slots._kept) + begun == slots.most
        for queue in (line._undos, line._calls, line._aside):
            # The time has a thousandth of a second to be noticed; what only the end of another can help is at once.
            assert not queue or outlet.why(queue.first[2]) is not None or line._timer is not None


@given(dependencies, moves)
@example(Dependency("gateway", 2, breaker=Breaker(failures=1, reset_s=30.0, probes=1)), HANGING)
def test_no_place_is_lost_and_nobody_waits_beside_a_free_one(
    dependency: Dependency, moves: list[tuple[str, str, str]]
) -> None:
    async def scenario() -> None:
        engine = Engine(dependency)
        for move in moves:
            await engine.move(move)
            engine.check()
        for _ in range(400):
            while engine.under_way:
                engine.under_way.pop(0).leave("done")
            while engine.called:
                engine.tried(engine.called.pop(0), "first")
            engine.check()
            if not len(engine.line) and not engine.under_way and not engine.called:
                break
            await passed(1)
        for name in "abcdefg":
            engine.places.decline(name)
        outlet, places = engine.line.outlet, engine.places
        assert (outlet.under_way, outlet.undos_under_way, outlet.circuit.probes, outlet.circuit.undos) == (0, 0, 0, 0)
        assert (len(engine.line), engine.line.kept, places.steps.free, places.undos.free) == (0, 0, 2, 1)

    play(scenario)
