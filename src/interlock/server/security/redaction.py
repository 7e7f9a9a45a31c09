"""Keeping secrets out of everything that is shown: texts, values, log records.

A secret is masked by its form (an API key, a webhook secret, a bearer token, a password in an address) or by the name
that stands before it. Masking too much costs a reader a word; masking too little costs a key. `Secret` is for what we
hold ourselves: it shows itself as three stars, and only `reveal` gives it away.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

MASK: Final = "***"
DEPTH_MAX = 40
"""Deeper values are masked whole; payloads are refused long before."""

_TELLING = r"passw(?:or)?d|secret|credential|token|authorization|cookie|signature|(?:api|access|private)[_-]?key"
"""A name with one of these in it is the name of a secret."""

# Every repetition below has a bound: a text that somebody made for it must not keep us busy.
_NAMES = rf"[a-z_-]{{0,40}}(?:{_TELLING})[a-z_-]{{0,40}}|pwd|sas|sig"
_SECRET_NAME: Final = re.compile(rf"(?i).*(?:{_TELLING}).*|pwd|sas|sig", re.DOTALL)
_FORMS: Final = (
    # An API key keeps its id, which is no secret and tells a reader which one it was.
    (re.compile(r"(ilk_[a-z2-7]{16})_[A-Za-z0-9_-]+"), rf"\1_{MASK}"),
    (re.compile(r"ilk_(?![a-z2-7]{16}_\*\*\*)[A-Za-z0-9_-]+"), f"ilk_{MASK}"),
    (re.compile(r"whsec_[A-Za-z0-9+/=_-]+"), f"whsec_{MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)(?!\*\*\*)[^\s\"',;]+"), rf"\1\2{MASK}"),
    # A password may hold a slash, a colon and an at sign of its own, so everything up to the last one is masked.
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/@?]{0,200}):[^\s\"'<>]{0,2000}@"), rf"\1:{MASK}@"),
    (re.compile(rf"(?i)((?:^|[?&\s,;{{(])[\"']?(?:{_NAMES})[\"']?\s*[=:]\s*)(?!bearer|basic|\*\*\*)"
                r"(\"[^\"]*\"|'[^']*'|[^\s&,;)}\"']+)"), rf"\1{MASK}"),
)  # fmt: skip


class Secret:
    """A text that nobody sees by accident: not in a log, not in an error, not in a debugger's list of variables."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, format_spec: str) -> str:
        return format(MASK, format_spec)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled: it would leave the process in clear text.")


def redacted_text(text: str) -> str:
    """The text with everything masked that looks like a secret."""
    for form, shown in _FORMS:
        text = form.sub(shown, text)
    return text


def redacted_value(value: object, depth: int = 0) -> object:
    """A JSON value with secrets masked: by the name of the field, and inside every text."""
    if depth > DEPTH_MAX:
        return MASK
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return {
            redacted_text(str(name)): MASK
            if _SECRET_NAME.fullmatch(str(name)) and each is not None
            else redacted_value(each, depth + 1)
            for name, each in fields.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [redacted_value(each, depth + 1) for each in cast("Sequence[object]", value)]
    return MASK if isinstance(value, bytes | bytearray | memoryview | Secret) else value


class Redacting(logging.Filter):
    """Masks secrets in every record that passes, its exception included. Put it on the handlers of a server."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask, and let it pass."""
        record.msg, record.args = redacted_text(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            # A formatter shows this text instead of formatting the exception itself.
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = redacted_text(record.exc_text) if record.exc_text else record.exc_text
        record.stack_info = redacted_text(record.stack_info) if record.stack_info else record.stack_info
        return True
