"""Sketch of a machine: boxes and arrows with their lines of text, without coordinates.

It is the step between the description, with states and transitions, and the layout, which uses only sizes. Here
parallel arrows become one, catch-alls become a pill, self-targets become loops and internal transitions become lines
inside their box.

The invariant: every state and every transition of the description is in the sketch, exactly once. The odd
choice is that internal transitions are text and not arrows, as in UML: the state is neither left nor entered.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from interlock.core.description import MachineDescription, StateDescription, TransitionDescription, TransitionKind
from interlock.core.diagrams.gather import CatchAll, gather, sources_in_words
from interlock.core.diagrams.measure import text_width
from interlock.core.diagrams.wording import SETTLES, guard, step_words, timer_words, trigger, visible

Look = Literal["plain", "step", "resting", "unwinding", "final", "start", "any"]
Role = Literal["name", "detail", "visits", "event", "failed", "unwound", "guard", "pill"]
Icon = Literal["step", "timer", "unwind", "internal"]

NAME_SIZE = 13.0
TEXT_SIZE = 11.0
NAME_HEIGHT = 19.0
TEXT_HEIGHT = 15.5
ICON_WIDTH = 16.0
SPACE_WIDTH = 4.0
DOT_DIAMETER = 12.0
_BOX_PADDING = (14.0, 9.0)
_BOX_MIN = (88.0, 38.0)
_PILL_PADDING = (12.0, 4.0)
_LABEL_PADDING = (5.0, 2.0)
_LABEL_WIDTH_MAX = 210.0


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line, all in one style."""

    text: str
    role: Role

    @property
    def width(self) -> float:
        """An upper estimate of its width."""
        named = self.role == "name"
        return text_width(self.text, NAME_SIZE if named else TEXT_SIZE, bold=named or self.role in ("visits", "pill"))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text, perhaps with a drawn icon in front."""

    spans: tuple[Span, ...]
    icon: Icon | None = None

    @property
    def width(self) -> float:
        """An upper estimate of its width, icon and spaces included."""
        spaces = SPACE_WIDTH * (len(self.spans) - 1)
        return sum(span.width for span in self.spans) + spaces + (ICON_WIDTH if self.icon else 0.0)

    @property
    def height(self) -> float:
        """The height it takes in a box."""
        return NAME_HEIGHT if self.spans[0].role == "name" else TEXT_HEIGHT


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Node:
    """A box, a pill or the initial dot."""

    name: str
    look: Look
    lines: tuple[Line, ...]
    loop: tuple[Line, ...] = ()
    """The label of the arrow from the box to itself."""
    loop_kind: TransitionKind = "event"
    loop_note: str = ""
    visits: int | None = None

    @property
    def size(self) -> Size:
        """The size of the box itself, without its loop."""
        match self.look:
            case "start":
                return Size(DOT_DIAMETER, DOT_DIAMETER)
            case "any":
                return _padded(self.lines, _PILL_PADDING)
            case _:
                size = _padded(self.lines, _BOX_PADDING)
                return Size(max(size.width, _BOX_MIN[0]), max(size.height, _BOX_MIN[1]))


@dataclass(frozen=True, slots=True)
class Arrow:
    """One arrow between two different nodes, for one or more transitions."""

    tail: int
    head: int
    lines: tuple[Line, ...] = ()
    kind: TransitionKind = "event"
    note: str = ""
    """The full text of its transitions, shown when the reader points at it."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """The whole drawing without coordinates. States come first, in declared order."""

    title: str
    version: int
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    remarks: tuple[str, ...]
    """Lines of the legend: the states of "any", and events handled everywhere without leaving."""


def label_size(lines: tuple[Line, ...]) -> Size:
    """Return the size of a label."""
    return _padded(lines, _LABEL_PADDING)


def sketch(description: MachineDescription, *, visits: Mapping[str, int] | None = None) -> Sketch:
    """Turn a description into boxes and arrows."""
    gathered = gather(description)
    between: dict[tuple[str, str], list[TransitionDescription]] = {}
    internal: dict[str, list[TransitionDescription]] = {}
    for transition in gathered.single:
        if transition.internal:
            internal.setdefault(transition.source, []).append(transition)
        else:
            between.setdefault((transition.source, transition.target), []).append(transition)

    place = {state.name: index for index, state in enumerate(description.states)}
    nodes = [
        _state_node(
            state,
            inside=internal.get(state.name, []),
            around=between.pop((state.name, state.name), []),
            visits=None if visits is None else visits.get(state.name, 0),
        )
        for state in description.states
    ]
    arrows = [_arrow(place[tail], place[head], transitions) for (tail, head), transitions in between.items()]
    remarks: list[str] = []
    for state in description.states:
        if state.initial:
            arrows.append(Arrow(tail=len(nodes), head=place[state.name]))
            nodes.append(Node(name="", look="start", lines=()))
    for group in gathered.catch_alls:
        if group.target is None:
            remarks.append(_stays(group, description))
        else:
            pills = sum(node.look == "any" for node in nodes)
            name = f"any {pills + 1}" if pills else "any"
            arrows.append(_arrow(len(nodes), place[group.target], list(group.transitions)))
            nodes.append(Node(name=name, look="any", lines=(Line((Span(name, "pill"),)),)))
            remarks.append(f"{name}: {visible(sources_in_words(group.sources, description))}")
    return Sketch(
        title=visible(description.name),
        version=description.version,
        nodes=tuple(nodes),
        arrows=tuple(arrows),
        remarks=tuple(remarks),
    )


def _state_node(
    state: StateDescription,
    *,
    inside: list[TransitionDescription],
    around: list[TransitionDescription],
    visits: int | None,
) -> Node:
    lines = [Line((Span(visible(state.name), "name"),))]
    step = step_words(state)
    if step is not None:
        lines.append(Line((Span(step, "detail"),), icon="step"))
    lines += [Line((Span(timer, "detail"),), icon="timer") for timer in timer_words(state)]
    if state.unwinds_to is not None:
        lines.append(Line((Span(f"unwinds to {visible(state.unwinds_to)}", "detail"),), icon="unwind"))
    lines += [Line(_label_spans(transition), icon="internal") for transition in inside]
    if visits is not None:
        lines.append(Line((Span("1 visit" if visits == 1 else f"{visits:,} visits", "visits"),)))
    return Node(
        name=visible(state.name),
        look=_look(state),
        lines=tuple(lines),
        loop=_label_lines(around),
        loop_kind=_kind(around),
        loop_note=_note(around),
        visits=visits,
    )


def _look(state: StateDescription) -> Look:
    if state.final:
        return "final"
    if state.unwinds_to is not None:
        return "unwinding"
    if state.resting:
        return "resting"
    return "plain" if state.step is None else "step"


def _arrow(tail: int, head: int, transitions: list[TransitionDescription]) -> Arrow:
    return Arrow(
        tail=tail, head=head, lines=_label_lines(transitions), kind=_kind(transitions), note=_note(transitions)
    )


def _kind(transitions: list[TransitionDescription]) -> TransitionKind:
    """Return the kind of a merged arrow: ordinary as soon as one ordinary event takes it."""
    kinds: set[TransitionKind] = {transition.kind for transition in transitions}
    if not kinds or "event" in kinds:
        return "event"
    return "failed" if "failed" in kinds else "unwound"


def _label_lines(transitions: list[TransitionDescription]) -> tuple[Line, ...]:
    lines: list[Line] = []
    for transition in transitions:
        line = Line(_label_spans(transition))
        if line.width <= _LABEL_WIDTH_MAX:
            lines.append(line)
        else:
            lines += [Line((span,)) for span in line.spans]
    return tuple(lines)


def _label_spans(transition: TransitionDescription) -> tuple[Span, ...]:
    event = Span(visible(transition.event), transition.kind)
    guards = () if transition.guard is None else (Span(guard(transition), "guard"),)
    return (event, *guards, *([Span(SETTLES, "guard")] if transition.settle is True else []))


def _note(transitions: list[TransitionDescription]) -> str:
    return "; ".join(_full_text(transition) for transition in transitions)


def _full_text(transition: TransitionDescription) -> str:
    text = f"{visible(transition.source)} → {visible(transition.target)}: {trigger(transition)}"
    if transition.action is not None:
        text += f" / {visible(transition.action)}"
    if transition.guard_reason is not None:
        text += f" ({visible(transition.guard_reason)})"
    return text


def _stays(group: CatchAll, description: MachineDescription) -> str:
    events = ", ".join(trigger(transition) for transition in group.transitions)
    return f"{events}: handled without leaving, in {visible(sources_in_words(group.sources, description))}"


def _padded(lines: tuple[Line, ...], padding: tuple[float, float]) -> Size:
    across, down = padding
    return Size(
        max(line.width for line in lines) + 2 * across,
        sum(line.height for line in lines) + 2 * down,
    )
