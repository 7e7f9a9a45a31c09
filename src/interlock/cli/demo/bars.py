"""Bars for the terminal, from cold to hot."""

import math

from rich.text import Text

WIDTH = 32
_STYLES = ("bright_black", "blue", "cyan", "green", "yellow", "red")


def bar(count: int, most: int, *, width: int = WIDTH) -> Text:
    """Draw a bar for one count. Its length is proportional; its colour follows the square root, to show rare states."""
    if count <= 0 or most <= 0:
        return Text("·", style=_STYLES[0])
    heat = math.sqrt(count / most)
    style = _STYLES[round(heat * (len(_STYLES) - 1))]
    return Text("█" * max(1, round(width * count / most)), style=style)
