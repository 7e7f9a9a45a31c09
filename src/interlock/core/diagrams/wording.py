"""Texts that all diagrams share: durations, guards, and names with visible characters only.

A machine's names come from user code and may contain anything, so each format first makes them visible here and
then escapes them for its own syntax. The invariant is that `visible` never returns a control character, a lone
surrogate or a line break: one name is always one line, in every format.

The odd choice is to show a control character as its Unicode picture (a newline as `␊`) instead of dropping it,
because two names that differ only there must not look the same.
"""

from collections.abc import Collection

from interlock.core.description import StateDescription, TransitionDescription

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_DELETE = 0x7F
SETTLES = "· settles"
"""The mark of a transition that settles: earlier runs are final."""
_PICTURES = 0x2400
# Control characters are shown by their pictures. XML allows neither the surrogates nor the last two of the plane.
_SHOWN_AS = {
    **{code: chr(_PICTURES + code) for code in range(ord(" "))},
    _DELETE: "\u2421",
    **dict.fromkeys(
        (*range(_DELETE + 1, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF),
        "\ufffd",
    ),
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
    """Return the timers of a state, one text each: `24 h → CANCEL`."""
    return tuple(f"{duration(timer.after_s)} → {visible(timer.event)}" for timer in state.timers)


def fresh(wanted: str, taken: Collection[str]) -> str:
    """Return `wanted`, lengthened until it differs from all names already taken."""
    while wanted in taken:
        wanted += "_"
    return wanted
