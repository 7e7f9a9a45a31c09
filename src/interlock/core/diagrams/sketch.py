"""Sketch of a machine: boxes and arrows with their lines of text, without coordinates.

It is the step between the description, with states and transitions, and the layout, which uses only sizes. Here
parallel arrows become one, catch-alls become a pill, self-targets become loops and internal transitions become lines
inside their box.

The invariant: every state and every transition of the description is in the sketch, exactly once. The odd
choice is that internal transitions are text and not arrows, as in UML: the state is neither left nor entered.
"""

import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from interlock.core.describe import MachineDescription, StateDescription, TransitionDescription, TransitionKind

# --- Texts that all diagrams share -----------------------------------------------------------------------------------
# A machine's names come from user code and may contain anything, so each format first makes them visible here and
# then escapes them for its own syntax. The invariant is that `visible` never returns a control character, a lone
# surrogate or a line break: one name is always one line, in every format.
#
# The odd choice is to show a control character as its Unicode picture (a newline as `␊`) instead of dropping it,
# because two names that differ only there must not look the same.

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_DELETE = 0x7F
SETTLES = "· settles"
"""The mark of a transition that settles: earlier runs are final."""
_PICTURES = 0x2400
# Control characters are shown by their pictures. XML allows neither the surrogates nor the last two of the plane.
_SHOWN_AS = {
    **{code: chr(_PICTURES + code) for code in range(ord(" "))},
    _DELETE: "\u2421",
    **dict.fromkeys((*range(_DELETE + 1, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"),
}


def visible(text: str) -> str:
    """Return the text on one line, with every character printable or harmless."""
    return text.translate(_SHOWN_AS)


def duration(seconds: float) -> str:
    """Return a duration as people write it: `250 ms`, `4 s`, `90 min`, `24 h`, `3 d`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g} ms"
    for size, unit in _UNITS:
        amount = seconds / size
        # One day is 24 h: below two days, people compare hours.
        if amount >= (2 if unit == "d" else 1) and amount.is_integer():
            return f"{amount:g} {unit}"
    return f"{seconds:g} s"


def trigger(transition: TransitionDescription) -> str:
    """Return the event with its guard, and whether it settles: `SUBMIT [has_items]`, `CHARGED · settles`."""
    suffix = f" {guard(transition)}" if transition.guard is not None else ""
    return visible(transition.event) + suffix + (f" {SETTLES}" if transition.settle is True else "")


def guard(transition: TransitionDescription) -> str:
    """Return the guard in brackets, or an empty text."""
    return f"[{visible(transition.guard)}]" if transition.guard is not None else ""


def step_words(state: StateDescription) -> str | None:
    """Return the step of a state with its timeout: `take_payment · 4 s`."""
    if state.step is None:
        return None
    return f"{visible(state.step.name)} · {duration(state.step.timeout_s)}"


def timer_words(state: StateDescription) -> tuple[str, ...]:
    """Return the timers of a state, one text each: `24 h → CANCEL`, `computed time → RENEW`."""
    return tuple(
        f"{'computed time' if timer.computed else duration(timer.after_s)} → {visible(timer.event)}"
        for timer in state.timers
    )


def fresh(wanted: str, taken: Collection[str]) -> str:
    """Return `wanted`, lengthened until it differs from all names already taken."""
    while wanted in taken:
        wanted += "_"
    return wanted


# --- Catch-all transitions -------------------------------------------------------------------------------------------
# A catch-all is described once per state it applies to. Drawn like that it would clutter the diagram, so transitions
# that differ only in their source become one arrow from "any" state, in all formats.
#
# The invariant: every transition of the description is either in `single` or in exactly one group. The odd choice is
# the threshold: a catch-all that applies to only one or two states is drawn as plain arrows, because a pill with a
# legend would then say less in more room.

SOURCES_MIN = 3


@dataclass(frozen=True, slots=True)
class CatchAll:
    """Catch-all transitions that leave the same states for the same target."""

    sources: tuple[str, ...]
    target: str | None
    """None when the transitions are internal: each workflow stays where it is."""
    transitions: tuple[TransitionDescription, ...]
    """One for each distinct event and guard."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """All the transitions of a machine, in declared order, each exactly once."""

    single: tuple[TransitionDescription, ...]
    catch_alls: tuple[CatchAll, ...]


def gather(description: MachineDescription) -> Gathered:
    """Separate the catch-alls worth gathering from the arrows drawn one by one."""
    alike: dict[tuple[str | bool | None, ...], list[TransitionDescription]] = {}
    for transition in description.transitions:
        if transition.catch_all:
            alike.setdefault(_likeness(transition), []).append(transition)
    gathered = {key for key, members in alike.items() if len(members) >= SOURCES_MIN}
    single = tuple(
        transition
        for transition in description.transitions
        if not (transition.catch_all and _likeness(transition) in gathered)
    )
    return Gathered(single=single, catch_alls=_joined([members for key, members in alike.items() if key in gathered]))


def _likeness(transition: TransitionDescription) -> tuple[str | bool | None, ...]:
    target = None if transition.internal else transition.target
    settles = transition.settle is True
    return (target, transition.event, transition.guard, transition.kind, transition.action, settles)


def _joined(groups: list[list[TransitionDescription]]) -> tuple[CatchAll, ...]:
    """Merge groups with the same sources and the same target into one pill."""
    pills: dict[tuple[tuple[str, ...], str | None], list[TransitionDescription]] = {}
    for members in groups:
        sources = tuple(dict.fromkeys(member.source for member in members))
        target = None if members[0].internal else members[0].target
        pills.setdefault((sources, target), []).append(members[0])
    return tuple(
        CatchAll(sources=sources, target=target, transitions=tuple(transitions))
        for (sources, target), transitions in pills.items()
    )


def sources_in_words(sources: tuple[str, ...], description: MachineDescription) -> str:
    """Return the states of "any" as text, the shorter way: by the states it has or by those it lacks."""
    open_states = [state.name for state in description.states if not state.final]
    missing = [name for name in open_states if name not in sources]
    if set(sources) <= set(open_states) and len(missing) * 2 < len(sources):
        return "every state that is not final" + (f" except {', '.join(missing)}" if missing else "")
    return ", ".join(sources)


# --- Text widths, estimated without a font ---------------------------------------------------------------------------
# An SVG is drawn with the font of the reader's system, so its boxes must fit the text in any of them. The widths
# below are those of DejaVu Sans, the widest of the usual system fonts; in every other one the text is a little
# narrower than its box. The invariant is that an estimate is never zero for a text that can be seen.
#
# The odd choice is to ignore kerning, ligatures and combining marks: each of them only makes a text narrower than
# estimated here.

# Hundredths of the font size, for the characters from space to tilde.
_WIDTHS = (
    *(32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64),
    *(64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79),
    *(60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63),
    *(63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84),
)
_WIDTH_WIDE = 125
_WIDTH_OTHER = 85
_BOLD_FACTOR = 1.1


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper estimate of the width of one line of text."""
    hundredths = sum(_character_width(character) for character in text)
    return hundredths * size / 100 * (_BOLD_FACTOR if bold else 1.0)


def _character_width(character: str) -> int:
    index = ord(character) - ord(" ")
    if 0 <= index < len(_WIDTHS):
        return _WIDTHS[index]
    if unicodedata.east_asian_width(character) in "WF":
        return _WIDTH_WIDE
    return _WIDTH_OTHER


# --- Boxes and arrows ------------------------------------------------------------------------------------------------

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
class TextSpan:
    """A piece of a line, all in one style."""

    text: str
    role: Role

    @property
    def width(self) -> float:
        """An upper estimate of its width."""
        named = self.role == "name"
        return text_width(self.text, NAME_SIZE if named else TEXT_SIZE, bold=named or self.role in ("visits", "pill"))


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line of text, perhaps with a drawn icon in front."""

    spans: tuple[TextSpan, ...]
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


class Size(NamedTuple):
    """Width and height."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class SketchNode:
    """A box, a pill or the initial dot."""

    name: str
    look: Look
    lines: tuple[TextLine, ...]
    loop: tuple[TextLine, ...] = ()
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
class SketchArrow:
    """One arrow between two different nodes, for one or more transitions."""

    tail: int
    head: int
    lines: tuple[TextLine, ...] = ()
    kind: TransitionKind = "event"
    note: str = ""
    """The full text of its transitions, shown when the reader points at it."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """The whole drawing without coordinates. States come first, in declared order."""

    title: str
    version: int
    nodes: tuple[SketchNode, ...]
    arrows: tuple[SketchArrow, ...]
    remarks: tuple[str, ...]
    """Lines of the legend: the states of "any", and events handled everywhere without leaving."""


def label_size(lines: tuple[TextLine, ...]) -> Size:
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
            arrows.append(SketchArrow(tail=len(nodes), head=place[state.name]))
            nodes.append(SketchNode(name="", look="start", lines=()))
    for group in gathered.catch_alls:
        sources = visible(sources_in_words(group.sources, description))
        if group.target is None:
            events = ", ".join(trigger(transition) for transition in group.transitions)
            remarks.append(f"{events}: handled without leaving, in {sources}")
        else:
            pills = sum(node.look == "any" for node in nodes)
            name = f"any {pills + 1}" if pills else "any"
            arrows.append(_arrow(len(nodes), place[group.target], list(group.transitions)))
            nodes.append(SketchNode(name=name, look="any", lines=(TextLine((TextSpan(name, "pill"),)),)))
            remarks.append(f"{name}: {sources}")
    return Sketch(visible(description.name), description.version, tuple(nodes), tuple(arrows), tuple(remarks))


def _state_node(
    state: StateDescription,
    *,
    inside: list[TransitionDescription],
    around: list[TransitionDescription],
    visits: int | None,
) -> SketchNode:
    lines = [TextLine((TextSpan(visible(state.name), "name"),))]
    step = step_words(state)
    if step is not None:
        lines.append(TextLine((TextSpan(step, "detail"),), icon="step"))
    lines += [TextLine((TextSpan(timer, "detail"),), icon="timer") for timer in timer_words(state)]
    if state.unwinds_to is not None:
        lines.append(TextLine((TextSpan(f"unwinds to {visible(state.unwinds_to)}", "detail"),), icon="unwind"))
    lines += [TextLine(_label_spans(transition), icon="internal") for transition in inside]
    if visits is not None:
        lines.append(TextLine((TextSpan("1 visit" if visits == 1 else f"{visits:,} visits", "visits"),)))
    return SketchNode(
        name=visible(state.name),
        look=look_of(state),
        lines=tuple(lines),
        loop=_label_lines(around),
        loop_kind=_kind(around),
        loop_note=_note(around),
        visits=visits,
    )


def look_of(state: StateDescription) -> Look:
    """Return the look of the box of a state."""
    if state.final:
        return "final"
    if state.unwinds_to is not None:
        return "unwinding"
    if state.resting:
        return "resting"
    return "plain" if state.step is None else "step"


def _arrow(tail: int, head: int, transitions: list[TransitionDescription]) -> SketchArrow:
    return SketchArrow(tail, head, _label_lines(transitions), _kind(transitions), _note(transitions))


def _kind(transitions: list[TransitionDescription]) -> TransitionKind:
    """Return the kind of a merged arrow: ordinary as soon as one ordinary event takes it."""
    kinds: set[TransitionKind] = {transition.kind for transition in transitions}
    if not kinds or "event" in kinds:
        return "event"
    return "failed" if "failed" in kinds else "unwound"


def _label_lines(transitions: list[TransitionDescription]) -> tuple[TextLine, ...]:
    lines: list[TextLine] = []
    for transition in transitions:
        line = TextLine(_label_spans(transition))
        if line.width <= _LABEL_WIDTH_MAX:
            lines.append(line)
        else:
            lines += [TextLine((span,)) for span in line.spans]
    return tuple(lines)


def _label_spans(transition: TransitionDescription) -> tuple[TextSpan, ...]:
    event = TextSpan(visible(transition.event), "event" if transition.kind == "joined" else transition.kind)
    guards = () if transition.guard is None else (TextSpan(guard(transition), "guard"),)
    return (event, *guards, *([TextSpan(SETTLES, "guard")] if transition.settle is True else []))


def _note(transitions: list[TransitionDescription]) -> str:
    texts: list[str] = []
    for transition in transitions:
        action = "" if transition.action is None else f" / {visible(transition.action)}"
        reason = "" if transition.guard_reason is None else f" ({visible(transition.guard_reason)})"
        source, target = visible(transition.source), visible(transition.target)
        texts.append(f"{source} → {target}: {trigger(transition)}{action}{reason}")
    return "; ".join(texts)


def _padded(lines: tuple[TextLine, ...], padding: tuple[float, float]) -> Size:
    across, down = padding
    return Size(max(line.width for line in lines) + 2 * across, sum(line.height for line in lines) + 2 * down)
