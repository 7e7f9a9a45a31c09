"""Estimate the width of a text without a font.

An SVG is drawn with the font of the reader's system, so its boxes must fit the text in any of them. The
widths below are those of DejaVu Sans, the widest of the usual system fonts; in every other one the text is a
little narrower than its box. The invariant is that an estimate is never zero for a text that can be seen.

The odd choice is to ignore kerning, ligatures and combining marks: each of them only makes a text narrower than
estimated here.
"""

import unicodedata

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
