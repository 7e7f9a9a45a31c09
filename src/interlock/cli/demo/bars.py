"""Bars for the terminal, from cold to hot."""

import math

from rich.text import Text

WIDTH = 32
_STYLES = ("bright_black", "blue", "cyan", "green", "yellow", "red")


def bar(count: int, most: int, *, width: int = WIDTH) -> Text:
    """A bar for one count. Its length is in proportion, its colour by the square root: rare states stay apart."""
    if count <= 0 or most <= 0:
        return Text("·", style=_STYLES[0])
    heat = math.sqrt(count / most)
    style = _STYLES[round(heat * (len(_STYLES) - 1))]
    return Text("█" * max(1, round(width * count / most)), style=style)
