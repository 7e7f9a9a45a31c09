"""Mask secrets in everything that is shown or stored: texts, tracebacks, values, log records.

A secret is masked by its form (an API key, a webhook secret, a bearer token, a password in an address) or by the name
that stands before it. Masking too much costs a reader a word; masking too little costs a key. `Secret` is for what we
hold ourselves: it shows itself as three stars, and only `reveal` gives it away.

Every pattern takes a time that grows with the length of the text and not faster: a step chooses the text of its errors.
"""

import logging
import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Final, cast

MASK: Final = "***"
DEPTH_MAX = 40
"""Deeper values are masked whole; payloads are refused long before."""

BOUND_FACTOR = 8
"""How many times its limit of a text is read for secrets before the text is cut: one at the cut is still recognised."""

TEXT_CHARACTERS_MAX = 100_000
"""The length of a message or an exception in a log record."""

TRACEBACK_CHARACTERS_MAX = 8_000
"""The length of a traceback that is stored. The end is kept: it has the line that raised."""

MESSAGE_CHARACTERS_MAX = 2_000
"""The length of one exception's text in a traceback that is stored."""

FRAMES_MAX = 20
CAUSES_MAX = 5

_NAMED = (
    r"pass(?:w(?:or)?d|phrase)|secret|credential|token|authorization|cookie|signature|(?:api|access|private)[_-]?key"
)
"""A name with one of these in it is the name of a secret."""

# Every repetition below has a bound or consumes what it has read, so that no text is read twice.
_NAMES = rf"[a-z0-9_-]{{0,40}}(?:{_NAMED})[a-z0-9_-]{{0,40}}|pwd|sas|sig"
_SECRET_NAME: Final = re.compile(rf"(?i).*(?:{_NAMED}).*|pwd|sas|sig", re.DOTALL)
_ADDRESS: Final = re.compile(r"(://[^\s:/@?]{0,200}):([^\s\"'<>]*)")
_CONTROL: Final = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that end a line, move the cursor of a terminal, or cannot be written as UTF-8."""
_FORMS: Final = (
    # An API key keeps its id, which is not a secret and identifies it for a reader.
    (re.compile(r"(ilk_[a-z2-7]{16})_[A-Za-z0-9_-]+"), rf"\1_{MASK}"),
    (re.compile(r"ilk_(?![a-z2-7]{16}_\*\*\*)[A-Za-z0-9_-]+"), f"ilk_{MASK}"),
    (re.compile(r"whsec_[A-Za-z0-9+/=_-]+"), f"whsec_{MASK}"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)(?!\*\*\*)[^\s\"',;]+"), rf"\1\2{MASK}"),
    # Schemes of other names, and cookies, are of several words: everything up to the end of the line.
    (re.compile(r"(?i)(\b(?:authorization|cookie):\s*)(?!(?:bearer|basic)\s|[\s\"'*\\])[^\r\n]+"), rf"\1{MASK}"),
    # A value in quotes may hold quotes of its own after a backslash; or the quotes themselves, in a text in a text.
    (re.compile(rf"(?i)((?<![a-z0-9_-])(?:{_NAMES})\\*[\"']?\s*[=:]\s*)(?!(?:bearer|basic)\s|\*\*\*)"
                r"(?:b?\"[^\"\\]*(?:\\.[^\"\\]*)*\"|b?'[^'\\]*(?:\\.[^'\\]*)*'|\\+\"[^\"]*\"|[^\s&,;)}\"']+)"),
     rf"\1{MASK}"),
)  # fmt: skip


class Secret:
    """A text that is never shown by accident: not in a log, not in an error, not in a debugger's list of variables."""

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
    """Return the text with everything masked that looks like a secret."""
    text = _ADDRESS.sub(_shown_address, text) if "://" in text else text
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return text


def _shown_address(found: re.Match[str]) -> str:
    # A password may hold a slash, a colon and an at sign of its own: mask everything up to the last at sign.
    before, mark, host = found[2].rpartition("@")
    return f"{found[1]}:{MASK}@{host}" if before or mark else found[0]


def bounded_text(text: str, characters_max: int) -> str:
    """Return at most that much of the text, with secrets masked, also one that stands at the cut."""
    masked = redacted_text(text[: characters_max * BOUND_FACTOR])
    return masked if len(masked) <= characters_max else masked[: characters_max - 1] + "…"


def storable_text(text: str) -> str:
    """Return the text without what a store or JSON cannot take: NUL, half of a surrogate."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def error_text(error: BaseException) -> str:
    """Return the text of an exception, also of one whose text cannot be read."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 -- user code; what is reported here is the exception itself.
        return "(its text cannot be read)"


def bounded_traceback(error: BaseException) -> str:
    """Return the traceback of an exception and of its causes as it may be stored: bounded, with secrets masked."""
    parts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(parts) < CAUSES_MAX:
        frames = "".join(traceback.format_tb(link.__traceback__, limit=-FRAMES_MAX))
        message = bounded_text(error_text(link), MESSAGE_CHARACTERS_MAX)
        parts.append(f"Traceback (most recent call last):\n{redacted_text(frames)}{type(link).__name__}: {message}")
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    text = "\n\nThe exception above led to this one:\n\n".join(reversed(parts))
    text = text if len(text) <= TRACEBACK_CHARACTERS_MAX else "…" + text[1 - TRACEBACK_CHARACTERS_MAX :]
    return storable_text(text)


def redacted_value(value: object, depth: int = 0) -> object:
    """Return a JSON value with secrets masked: by the name of the field, and inside every text."""
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
    """Mask secrets in every record that passes, its exception included, and indent every line but the first.

    A text with a line break in it could otherwise forge the next line of the log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place, once, and let it pass."""
        if getattr(record, "interlock_masked", False):
            return True
        record.interlock_masked = True
        message, exception = record_texts(record)
        record.msg, record.args = _indented(message), ()
        record.exc_text = _indented(exception) or None  # A formatter shows it instead of the exception itself.
        record.stack_info = _indented(redacted_text(record.stack_info)) if record.stack_info else record.stack_info
        return True


def record_texts(record: logging.LogRecord) -> tuple[str, str]:
    """Return the message and the exception of a log record: bounded, with secrets masked; empty without one."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 -- arguments that do not fit the text: shown as they are.
        message = f"{_readable(record.msg)} {_readable(record.args)}"
    exception = record.exc_text or ""
    if record.exc_info and record.exc_info[1] is not None and not exception:
        try:
            exception = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
        except Exception:  # noqa: BLE001 -- an exception whose text cannot be read still has a place.
            exception = bounded_traceback(record.exc_info[1])
    return bounded_text(message, TEXT_CHARACTERS_MAX), bounded_text(exception, TEXT_CHARACTERS_MAX)


def _readable(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 -- whatever it raises, the line is written.
        return f"<{type(value).__name__}>"


def _indented(text: str) -> str:
    lines = text.split("\n")
    return "\n  ".join(line if line.isprintable() else _CONTROL.sub(_escaped, line) for line in lines)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def logger_of(name: str) -> logging.Logger:
    """Return the logger of that name, which masks secrets whatever handlers and formatters a program has."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, Redacting) for each in logger.filters):
        logger.addFilter(Redacting())
    return logger
