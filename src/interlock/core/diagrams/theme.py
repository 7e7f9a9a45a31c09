"""Colours of SVG diagrams, and their style sheet.

Every colour of an SVG is set by a class, so that the same drawing can be light, dark, or whichever the reader's
system prefers. The invariant: both palettes have the same fields, so nothing is ever drawn in a colour of the
other one, and each text colour is legible on its fill.

The odd choice is to write every rule out twice for `auto`, without CSS variables: several programs that show
SVG files know media queries and classes but not variables.
"""

from dataclasses import dataclass
from typing import Literal

Theme = Literal["auto", "light", "dark"]

_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'


@dataclass(frozen=True, slots=True)
class Paint:
    """Fill, outline and text of one kind of box."""

    fill: str
    stroke: str
    text: str
    soft: str
    """The text of its smaller lines."""


@dataclass(frozen=True, slots=True)
class Palette:
    """All the colours of one theme."""

    canvas: str
    border: str
    title: str
    muted: str
    label: str
    guard: str
    arrow: str
    failed: str
    unwound: str
    plain: Paint
    step: Paint
    resting: Paint
    unwinding: Paint
    final: Paint
    pill: Paint
    heat: tuple[Paint, ...]
    """From never visited to visited most."""


LIGHT = Palette(
    canvas="#ffffff",
    border="#e4e7ec",
    title="#101828",
    muted="#667085",
    label="#344054",
    guard="#667085",
    arrow="#7c8798",
    failed="#d92d4b",
    unwound="#b45309",
    plain=Paint("#f8f9fb", "#b6bfcc", "#101828", "#475467"),
    step=Paint("#eef2ff", "#a3b1f5", "#1e1b4b", "#4338ca"),
    resting=Paint("#e9f8f1", "#7cc9a5", "#053b2a", "#047857"),
    unwinding=Paint("#fff6e5", "#eab35a", "#4a2504", "#a34a07"),
    final=Paint("#eceff3", "#667085", "#101828", "#475467"),
    pill=Paint("#ffffff", "#98a2b3", "#475467", "#475467"),
    heat=(
        Paint("#f8f9fb", "#d0d5dd", "#667085", "#667085"),
        Paint("#e6f0fd", "#a9cbf5", "#0b2a4a", "#1f4e80"),
        Paint("#c5ddfa", "#7fb1ee", "#0b2a4a", "#1a4473"),
        Paint("#93c0f4", "#5797e2", "#071d36", "#0b2a4a"),
        Paint("#2766b8", "#235fae", "#ffffff", "#eaf3ff"),
        Paint("#174a8f", "#0f386f", "#ffffff", "#dbeafe"),
    ),
)

DARK = Palette(
    canvas="#0d1117",
    border="#262c36",
    title="#f0f3f6",
    muted="#8b949e",
    label="#c9d1d9",
    guard="#8b949e",
    arrow="#76818e",
    failed="#ff7b8e",
    unwound="#e3a14a",
    plain=Paint("#171c24", "#47505c", "#f0f3f6", "#a8b3bf"),
    step=Paint("#1b1f3b", "#5661b8", "#eceeff", "#a9b4ff"),
    resting=Paint("#0f2a20", "#2f7d5c", "#dcf7ea", "#6fd3a6"),
    unwinding=Paint("#2e210d", "#96691f", "#fdeccb", "#f0b95a"),
    final=Paint("#21262e", "#8b949e", "#f0f3f6", "#a8b3bf"),
    pill=Paint("#0d1117", "#6e7681", "#b1bac4", "#b1bac4"),
    heat=(
        Paint("#13181f", "#30363d", "#8b949e", "#8b949e"),
        Paint("#12233a", "#234873", "#d5e6fb", "#9cc4f5"),
        Paint("#163458", "#2d5f9c", "#e1eefc", "#aed0f9"),
        Paint("#1c4a80", "#3a77c2", "#f0f7ff", "#c9e0fb"),
        Paint("#2766b8", "#5f9de8", "#ffffff", "#eaf3ff"),
        Paint("#8ec0fa", "#bfdcfd", "#071d36", "#0b2a4a"),
    ),
)


def style_sheet(theme: Theme) -> str:
    """Return the rules for a theme. They apply only below an element of class `interlock-<theme>`."""
    scope = f".interlock-{theme}"
    rules = _rules(scope, _SHAPES) + _rules(scope, _colours(DARK if theme == "dark" else LIGHT))
    if theme == "auto":
        rules += f"@media (prefers-color-scheme:dark){{\n{_rules(scope, _colours(DARK))}}}\n"
    return rules


_SHAPES = {
    "text": f"font-family:{_FONT};font-size:11px;white-space:pre",
    ".title": "font-size:15px;font-weight:650",
    ".version": "font-size:11px;font-weight:400",
    ".name": "font-size:13px;font-weight:600",
    ".visits,.pill-name": "font-weight:600",
    ".guard": "font-style:italic",
    ".centred": "text-anchor:middle",
    ".line,.icon,.ring": "fill:none",
    ".line": "stroke-width:1.4;stroke-linecap:round",
    ".box": "stroke-width:1.3",
    ".ring": "stroke-width:1.3",
    ".icon": "stroke-width:1.3;stroke-linecap:round;stroke-linejoin:round",
    ".line.failed,.line.unwound": "stroke-dasharray:5 4",
    ".unwinding .box": "stroke-dasharray:5 3",
    ".any .box": "stroke-dasharray:2 3;stroke-linecap:round",
    ".cold": "opacity:.4",
}


def _colours(palette: Palette) -> dict[str, str]:
    rules = {
        ".canvas": f"fill:{palette.canvas};stroke:{palette.border}",
        ".gap": f"fill:{palette.canvas}",
        ".title": f"fill:{palette.title}",
        ".version,.remark": f"fill:{palette.muted}",
        ".dot": f"fill:{palette.label}",
        "text .event": f"fill:{palette.label}",
    }
    for kind, colour in (("event", palette.arrow), ("failed", palette.failed), ("unwound", palette.unwound)):
        rules[f".line.{kind}"] = f"stroke:{colour}"
        rules[f".tip.{kind}"] = f"fill:{colour}"
    rules["text .failed"] = f"fill:{palette.failed}"
    rules["text .unwound"] = f"fill:{palette.unwound}"
    looks = {
        "plain": palette.plain,
        "step": palette.step,
        "resting": palette.resting,
        "unwinding": palette.unwinding,
        "final": palette.final,
        "any": palette.pill,
        **{f"heat{level}": paint for level, paint in enumerate(palette.heat)},
    }
    for look, paint in looks.items():
        rules[f".{look} .box"] = f"fill:{paint.fill};stroke:{paint.stroke}"
        rules[f".{look} .ring,.{look} .icon"] = f"stroke:{paint.soft}" if look != "final" else f"stroke:{paint.stroke}"
        rules[f".{look} .name,.{look} .visits,.{look} .pill-name"] = f"fill:{paint.text}"
        rules[f".{look} .detail,.{look} .inside"] = f"fill:{paint.soft}"
    rules[".guard"] = f"fill:{palette.guard}"
    return rules


def _rules(scope: str, rules: dict[str, str]) -> str:
    """Return one line per rule, with every selector limited to the scope."""
    return "".join(
        ",".join(f"{scope} {selector}" for selector in selectors.split(",")) + f"{{{declarations}}}\n"
        for selectors, declarations in rules.items()
    )
