"""Random machines: any shape, any names, everything a description can hold.

Most of them make no sense as machines. A diagram is still drawn, and still obeys its rules.
"""

from hypothesis import strategies as st

from interlock.core.describe import (
    MachineDescription,
    StateDescription,
    StepDescription,
    TimerDescription,
    TransitionDescription,
)
from tests.unit.core.diagrams.samples import machine

NAMES = st.one_of(
    st.from_regex(r"[a-z_]{1,24}", fullmatch=True),
    st.text(max_size=12),
    st.sampled_from(
        ["<b>&amp;</b>", 'say "hi"', "a|b", "two\nlines", "日本語", "end", "]]>", "\x00", "'", "any", "start"]
    ),
)
EVENTS = st.one_of(st.sampled_from(["GO", "STOP", "A|B", "<E>"]), NAMES)
SECONDS = st.sampled_from([0.25, 1.5, 4, 60, 5400, 86400, 259200])
STEPS = st.builds(StepDescription, name=NAMES, timeout_s=SECONDS, attempts=st.just(1))
TIMERS = st.builds(TimerDescription, event=EVENTS, after_s=SECONDS, policy=st.just("deadline"))


@st.composite
def machines(draw: st.DrawFn, states_max: int = 9) -> MachineDescription:
    names = draw(st.lists(NAMES, min_size=1, max_size=states_max, unique=True))
    one_of_them = st.sampled_from(names)
    states = tuple(
        StateDescription(
            name=name,
            initial=index == 0,
            final=draw(st.booleans()),
            resting=draw(st.booleans()),
            unwinds_to=draw(st.none() | one_of_them),
            step=draw(st.none() | STEPS),
            timers=tuple(draw(st.lists(TIMERS, max_size=2))),
        )
        for index, name in enumerate(names)
    )
    transitions = draw(
        st.lists(
            st.builds(
                TransitionDescription,
                source=one_of_them,
                event=EVENTS,
                target=one_of_them,
                kind=st.sampled_from(["event", "failed", "unwound"]),
                guard=st.none() | NAMES,
            ),
            max_size=3 * len(names),
        )
    )
    internal = [
        TransitionDescription(source=name, event=event, target=name, internal=True)
        for name, event in draw(st.lists(st.tuples(one_of_them, EVENTS), max_size=2))
    ]
    catch_alls = [
        TransitionDescription(source=name, event=event, target=target, catch_all=True)
        for event, target in draw(st.lists(st.tuples(EVENTS, one_of_them), max_size=2))
        for name in names
    ]
    return machine(draw(NAMES), states, (*transitions, *internal, *catch_alls))
