"""to_char, to_date and to_timestamp: PostgreSQL's templates for dates, intervals and numbers.

A template is read as PostgreSQL's `parse_format` reads it: the longest of the patterns at a place, prefixes and
suffixes around it, and everything else as it stands. Patterns whose result depends on a locale (TM, L) or that are
rare are refused. Numbers are written by the steps of `NUM_processor`, whose blanks follow from its order of work.

Sections: templates, moments and intervals, moments from text, numbers, entries.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from interlock.sql.functions import decimals, times
from interlock.sql.registry import Entry, function
from interlock.sql.stored_values import EPOCH
from interlock.sql.types import INTEGER_RANGE, InvalidValue, refuse

# --- Templates -------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """One pattern of a template with its prefix and suffix, or one character (`pattern` is empty)."""

    pattern: str = ""
    text: str = ""
    is_filled: bool = True
    """Whether blanks and zeros pad it: FM takes them away."""
    ordinal: str = ""


_TIME_WORDS: Final = (
    "A.D. A.M. AD AM B.C. BC CC DAY DDD DD DY Day Dy D FF1 FF2 FF3 FF4 FF5 FF6 FX HH24 HH12 HH IDDD ID IW IYYY IYY IY "
    "I J MI MM MONTH MON MS Month Mon OF P.M. PM Q RM SSSSS SSSS SS TZH TZM TZ US WW W Y,YYY YYYY YYY YY Y"
)
_NUMBER_WORDS: Final = ", . 0 9 B C D EEEE E FM G L MI PL PR RN SG SP S TH V"


def _pattern_of(words: str, prefix: str, suffix: str) -> re.Pattern[str]:
    """Return the pattern of a piece: the longest word at its place, a text in quotes, or one character."""
    known = {*words.split(), *words.lower().split()}
    word = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    quoted = r'"((?:[^"\\]|\\.?)*)"?'
    return re.compile(rf'({prefix})(?:({word})({suffix})|{quoted}|(?:\\(?="))?(.))?', re.DOTALL)


_TIMES: Final = _pattern_of(_TIME_WORDS, "(?:FM|fm|TM|tm)?", "(?:TH|th|SP)?")
_NUMBERS: Final = _pattern_of(_NUMBER_WORDS, "", "")


@lru_cache(maxsize=256)
def _pieces(template: str, *, is_number: bool) -> tuple[Piece, ...]:
    """Return the patterns and characters of a template, as `parse_format` splits it."""
    pieces: list[Piece] = []
    for found in (_NUMBERS if is_number else _TIMES).finditer(template):
        prefix, word, suffix, quoted, letter = found.groups()
        if prefix in {"TM", "tm"} or suffix == "SP":
            raise refused(prefix or suffix)
        if word:
            pieces.append(Piece(word, "", not prefix, suffix))
        pieces += [Piece(text=each) for each in re.sub(r"\\(.)", r"\1", quoted or letter or "", flags=re.DOTALL)]
    return tuple(pieces)


def refused(pattern: str, what: str = "to_char()") -> Exception:
    """Return the refusal of a pattern."""
    return refuse(
        f"the pattern {pattern[:20]!r} of {what}.", why="A lane does not have it.", fix="Format the value in Python."
    )


# --- Moments and intervals -------------------------------------------------------------------------------------------

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAME_WIDTH: Final = 9
_HALF_DAY: Final = 12
_JULIAN: Final = 1_721_425  # The Julian day before day 1 of date.toordinal().


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the patterns write: years to microseconds, signed for an interval, which has no date."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    micros: int
    on: date | None = None
    zone: str = ""


def interval_to_char(interval: str, template: str) -> str | None:
    """to_char(interval, text)."""
    months, days, micros = times.stored_interval(interval)
    years, month = times.cut(months, 12)
    hours, rest = times.cut(micros, times.HOUR_US)
    minutes, rest = times.cut(rest, times.MINUTE_US)
    return _time_text(_Parts(years, month, days, hours, minutes, *times.cut(rest, times.SECOND_US)), template)


def _parts(moment: int, zone: str) -> _Parts:
    at = EPOCH + timedelta(microseconds=moment)
    return _Parts(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, at.date(), zone)


def _time_text(parts: _Parts, template: str) -> str | None:
    if not template:
        return None
    return "".join(
        _written(piece, parts) if piece.pattern else piece.text for piece in _pieces(template, is_number=False)
    )


def _written(piece: Piece, parts: _Parts) -> str:
    pattern = piece.pattern.upper()
    value: int | None = None
    width = 0
    if pattern in _CLOCK_NUMBERS:
        value, width = _CLOCK_NUMBERS[pattern](parts)
    elif parts.on is not None and pattern in _DATE_NUMBERS:
        width, take = _DATE_NUMBERS[pattern]
        value = take(parts.on)
    if value is not None:
        digits = f"{value:0{width + (value < 0)}d}" if piece.is_filled or pattern in _FRACTIONS else str(value)
        return digits + _ordinal(digits, piece.ordinal)
    if pattern in {"AM", "PM", "A.M.", "P.M."}:
        half = "PM" if math.fmod(parts.hour, 24) >= _HALF_DAY else "AM"
        return _cased(f"{half[0]}.M." if "." in piece.pattern else half, piece.pattern)
    if parts.on is None:
        raise _not_for_intervals(piece.pattern)
    return _named(piece, parts, parts.on)


_OF_DATES_ALONE: Final = frozenset({
    "RM", "CC", "Q", "W", "WW", "J", "IW", "IYYY", "IYY", "IY", "I", "DDD", "IDDD", "FX", "Y,YYY",
})  # fmt: skip
"""Patterns that PostgreSQL also has for intervals, and a lane has not."""


def _not_for_intervals(pattern: str) -> Exception:
    if pattern.upper() in _OF_DATES_ALONE:
        return refused(pattern, "to_char(interval, …)")
    return InvalidValue(
        f"the pattern {pattern!r} is not one for an interval.", fix="Use YYYY, MM, DD, HH24, MI, SS, MS or US."
    )


def _half(parts: _Parts) -> tuple[int, int]:
    hour = abs(parts.hour) % _HALF_DAY
    if hour == 0:
        return _HALF_DAY, 2 + (parts.hour < 0)
    return (-hour if parts.hour < 0 else hour), 2


def _fraction(digits: int) -> Callable[[_Parts], tuple[int, int]]:
    def cut(parts: _Parts) -> tuple[int, int]:
        value = times.cut(parts.micros, 10 ** (6 - digits))[0]
        return value, digits - (value < 0)  # The sign is one of the places here.

    return cut


def _seconds_of_day(parts: _Parts) -> tuple[int, int]:
    return parts.hour * 3600 + parts.minute * 60 + parts.second, 0


def _year_end(digits: int) -> Callable[[_Parts], tuple[int, int]]:
    def cut(parts: _Parts) -> tuple[int, int]:
        value = times.cut(parts.year, 10**digits)[1]
        return value, digits + (parts.year < 0 == value)

    return cut


_FRACTIONS: Final = {"MS": 3, "US": 6, **{f"FF{digits}": digits for digits in range(1, 7)}}
_CLOCK_NUMBERS: Final[dict[str, Callable[[_Parts], tuple[int, int]]]] = {
    "HH": _half,
    "HH12": _half,
    "HH24": lambda parts: (parts.hour, 2),
    "MI": lambda parts: (parts.minute, 2),
    "SS": lambda parts: (parts.second, 2),
    "SSSS": _seconds_of_day,
    "SSSSS": _seconds_of_day,
    **{pattern: _fraction(digits) for pattern, digits in _FRACTIONS.items()},
    "YYYY": lambda parts: (parts.year, 4),
    "YYY": _year_end(3),
    "YY": _year_end(2),
    "Y": lambda parts: (times.cut(parts.year, 10)[1], 1),
    "MM": lambda parts: (parts.month, 2),
    "DD": lambda parts: (parts.day, 2 - (parts.day < 0)),
}
"""Numbers of moments and intervals: the value and the number of its digits."""


def _day_of_year(on: date) -> int:
    return on.timetuple().tm_yday


_DATE_NUMBERS: Final[dict[str, tuple[int, Callable[[date], int]]]] = {
    "D": (1, lambda on: on.isoweekday() % 7 + 1),
    "ID": (1, lambda on: on.isoweekday()),
    "DDD": (3, _day_of_year),
    "IDDD": (3, lambda on: (on.isocalendar().week - 1) * 7 + on.isoweekday()),
    "Q": (1, lambda on: (on.month + 2) // 3),
    "W": (1, lambda on: (on.day - 1) // 7 + 1),
    "WW": (2, lambda on: (_day_of_year(on) - 1) // 7 + 1),
    "IW": (2, lambda on: on.isocalendar().week),
    "IYYY": (4, lambda on: on.isocalendar().year),
    "IYY": (3, lambda on: on.isocalendar().year % 1000),
    "IY": (2, lambda on: on.isocalendar().year % 100),
    "I": (1, lambda on: on.isocalendar().year % 10),
    "CC": (2, lambda on: (on.year - 1) // 100 + 1),
    "J": (1, lambda on: on.toordinal() + _JULIAN),
}
"""Numbers of dates: the number of digits and the value."""


def _named(piece: Piece, parts: _Parts, on: date) -> str:  # noqa: PLR0911 -- a case for each pattern
    """Return the patterns of a date that are not numbers."""
    match piece.pattern.upper():
        case "MONTH" | "DAY" as pattern:
            name = _MONTHS[on.month - 1] if pattern == "MONTH" else _DAYS[on.weekday()]
            return _cased(name.ljust(_NAME_WIDTH) if piece.is_filled else name, piece.pattern)
        case "MON":
            return _cased(_MONTHS[on.month - 1][:3], piece.pattern)
        case "DY":
            return _cased(_DAYS[on.weekday()][:3], piece.pattern)
        case "AD" | "BC":
            return _cased("AD", piece.pattern)
        case "A.D." | "B.C.":
            return _cased("A.D.", piece.pattern)
        case "TZ":
            return _cased(parts.zone, piece.pattern)
        case "TZH":
            return "+00"
        case "TZM":
            return "00"
        case "OF":
            return "+00" if piece.is_filled else "+0"
        case _:
            raise refused(piece.pattern)


def _cased(text: str, pattern: str) -> str:
    letters = pattern.replace(".", "")
    return text.upper() if letters.isupper() else text.lower() if letters.islower() else text


def _ordinal(digits: str, suffix: str) -> str:
    """Return the ending of an ordinal number: 1st, 2nd, 3rd, 4th, 11th."""
    if not suffix:
        return ""
    ending = "th" if digits[-2:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(digits[-1], "th")
    return ending.upper() if suffix == "TH" else ending


# --- Moments from text -----------------------------------------------------------------------------------------------
# PostgreSQL reads nearly everything: it skips blanks, takes other separators, and guesses years. A lane reads a text
# that has the form of its template, where nothing is guessed, and refuses every other one.

_READ: Final = {
    "YYYY": "[0-9]{4}", "MS": "[0-9]{3}", "US": "[0-9]{6}", "AM": "[AaPp][Mm]", "PM": "[AaPp][Mm]",
    **dict.fromkeys(("MM", "DD", "HH24", "HH12", "HH", "MI", "SS"), "[0-9]{2}"),
}  # fmt: skip
_MONTH_NAMES: Final = {"MON": [name[:3].lower() for name in _MONTHS], "MONTH": [name.lower() for name in _MONTHS]}


@lru_cache(maxsize=256)
def _reader(template: str) -> re.Pattern[str]:
    """Return a regular expression whose groups have the names of patterns."""
    written = ""
    pieces = _pieces(template, is_number=False)
    for place, piece in enumerate(pieces):
        pattern = piece.pattern.upper()
        if not pattern:
            if piece.text.isalnum() and f'"{piece.text}' not in template:
                raise refused(piece.text, "to_timestamp()")
            written += re.escape(piece.text)
            continue
        names = _MONTH_NAMES.get(pattern)
        read = "|".join(names) if names else _READ.get(pattern)
        if read is None or piece.ordinal or not piece.is_filled or f"<{pattern}>" in written:
            raise refused(piece.pattern, "to_timestamp()")
        following = pieces[place + 1].text if place + 1 < len(pieces) else "-"
        if read == "[0-9]{2}" and following and not following.isalnum():
            read = "[0-9]{1,2}"  # Before a separator one digit is enough.
        written += f"(?P<{pattern}>{read})"
    return re.compile(written, re.IGNORECASE)


def text_to_moment(text: str, template: str) -> int:
    """to_timestamp() of a text."""
    reader = _reader(template)
    found = reader.fullmatch(text)
    fields = {} if found is None else found.groupdict()
    if "YYYY" not in fields or {"AM", "PM"} <= set(fields) or len({"HH", "HH12", "HH24"} & set(fields)) > 1:
        raise refuse(
            f"the text {text[:40]!r} by the template {template[:40]!r}.",
            why="PostgreSQL may read it; a lane reads a text that has the very form of its template, with a year.",
            fix="Write all digits and the same separators, or read it in Python.",
        )
    month = int(fields.get("MM", 1))
    for pattern, names in _MONTH_NAMES.items():
        if pattern in fields:
            month = names.index(fields[pattern].lower()) + 1
    minute, second = int(fields.get("MI", 0)), int(fields.get("SS", 0))
    clock = times.make_time(_hour(fields), minute, second)
    clock += int(fields.get("MS", 0)) * 1000 + int(fields.get("US", 0))
    return times.moment_of_day(times.make_date(int(fields["YYYY"]), month, int(fields.get("DD", 1)))) + clock


def _hour(fields: dict[str, str]) -> int:
    half = fields.get("AM", fields.get("PM"))
    if "HH24" in fields and half is None:
        return int(fields["HH24"])
    if "HH24" in fields:
        raise refuse("HH24 with AM or PM.", fix="Use HH12.")
    hour = int(fields.get("HH12", fields.get("HH", "12")))
    if not 1 <= hour <= _HALF_DAY:
        raise InvalidValue(f"hour {hour} is invalid for the 12-hour clock.", fix="Use HH24.")
    is_late = half is not None and half.lower() == "pm"
    return hour % _HALF_DAY + (_HALF_DAY if is_late else 0) if half or hour == _HALF_DAY else hour


# --- Numbers ---------------------------------------------------------------------------------------------------------

_DOUBLE_DIGITS: Final = 15


@dataclass(slots=True)
class _NumberTemplate:
    """What a template says about a number: PostgreSQL's NUMDesc."""

    pre: int = 0
    post: int = 0
    zero_start: int = 0
    zero_end: int = 0
    multiplied: int = 0
    signs_before: int = 0
    sign_place: str = ""
    """Where S stands: before or after the digits."""
    flags: set[str] = field(default_factory=set[str])

    def take(self, pattern: str) -> None:
        """Count one pattern, as `NUMDesc_prepare` does."""
        match pattern:
            case "9" | "0":
                self._take_digit(pattern)
            case "." | "D":
                if "." in self.flags or "V" in self.flags:
                    raise _wrong_template("a second decimal point, or one beside V")
                self.flags.add(".")
            case "FM":
                self.flags.add("FM")
            case "S":
                self._take_sign()
            case "MI" | "PL" | "SG":
                if "S" in self.flags:
                    raise _wrong_template(f"S together with {pattern}")
                self.flags.update({"MI", "PL"} if pattern == "SG" else {pattern})
            case "V":
                if "." in self.flags:
                    raise _wrong_template("V together with a decimal point")
                self.flags.add("V")
            case "," | "G":
                pass
            case _:
                raise refused(pattern)

    def _take_digit(self, pattern: str) -> None:
        if pattern == "9" and "V" in self.flags:
            self.multiplied += 1
            return
        if pattern == "0" and not self.flags & {"0", "."}:
            self.flags.add("0")
            self.zero_start = self.pre + 1
        if "." in self.flags:
            self.post += 1
        else:
            self.pre += 1
        if pattern == "0":
            self.zero_end = self.pre + self.post

    def _take_sign(self) -> None:
        if self.flags & {"S", "MI", "PL"}:
            raise _wrong_template("S twice, or together with MI, PL or SG")
        if "." in self.flags:
            self.sign_place = "after"
        else:
            self.sign_place, self.signs_before = "before", self.pre
        self.flags.add("S")


def _wrong_template(what: str) -> Exception:
    return InvalidValue(f"the template of a number has {what}.", fix="Write a template such as '999G990D00'.")


def _described(template: str) -> tuple[tuple[Piece, ...], _NumberTemplate]:
    pieces = _pieces(template, is_number=True)
    described = _NumberTemplate()
    for piece in pieces:
        if piece.pattern:
            described.take(piece.pattern.upper())
    if "0" in described.flags and "V" in described.flags:
        raise refused("V together with 0")
    return pieces, described


def numeric_to_char(value: str, template: str) -> str:
    """to_char(numeric, text)."""
    if not template:
        return ""
    pieces, described = _described(template)
    number = Decimal(value)
    if "V" in described.flags:
        number = number.scaleb(described.multiplied, decimals.EXACT)
        described.pre += described.multiplied
    rounded = decimals.rounded(number, described.post)
    return _number_text(pieces, described, f"{rounded:f}" if rounded else f"{abs(rounded):f}")


def _integer_to_char(low: int, high: int) -> Callable[[int, str], str]:
    def called(value: int, template: str) -> str:
        if template:
            _, described = _described(template)
            if "V" in described.flags and not low <= value * 10**described.multiplied <= high:
                raise refused("V", "to_char() of a number that leaves its type")
        return numeric_to_char(str(value), template)

    return called


def float_to_char(value: float, template: str) -> str:
    """to_char(double precision, text): fifteen digits at most."""
    if not template:
        return ""
    pieces, described = _described(template)
    if "V" in described.flags:
        raise refused("V", "to_char(double precision, …)")
    whole = len(f"{abs(value):.0f}")
    described.post = max(0, min(described.post, _DOUBLE_DIGITS - whole))
    return _number_text(pieces, described, f"{value:.{described.post}f}")


def _number_text(pieces: Sequence[Piece], described: _NumberTemplate, number: str) -> str:
    sign = "-" if number.startswith("-") else "+"
    number = number.lstrip("-")
    before = len(number.partition(".")[0])
    blanks = max(0, described.pre - before)
    if before > described.pre:
        number = "#" * described.pre + "." + "#" * described.post
    return _NumberWriter(described, number, sign, blanks).write(pieces)


class _NumberWriter:
    """PostgreSQL's NUM_processor, for to_char: it goes through the template and the digits in step."""

    def __init__(self, described: _NumberTemplate, number: str, sign: str, blanks: int) -> None:
        self.number, self.sign, self.blanks = number, sign, blanks
        self.flags, self.post = described.flags, described.post
        self.is_compact = "FM" in described.flags
        self.zero_start = max(0, described.zero_start - 1)
        self.sign_place = described.sign_place
        if described.flags & {"PL", "MI"}:
            self.is_signed = "MI" in described.flags
        else:
            self.is_signed = sign == "+" and self.is_compact and "S" not in described.flags
            if self.sign_place == "before" and described.pre == described.signs_before:
                self.sign_place = "after"
        self.count = described.post + described.pre - 1 + (not self.is_signed and blanks == 0)
        self.last: int | None = None
        if self.is_compact and "." in self.flags:
            self.last = self._last_relevant(described.zero_end)
        self.position = self.at = 0
        self.is_inside = False
        self.out: list[str] = []

    def _last_relevant(self, zero_end: int) -> int | None:
        """Return the place of the last digit after the point that is not zero, or that a 0 wants."""
        point = self.number.find(".")
        if point < 0:
            return None
        last = max(point, len(self.number.rstrip("0")) - 1)
        if zero_end > self.blanks:
            last = max(last, min(len(self.number) - 1, zero_end - self.blanks))
        return last

    def write(self, pieces: Sequence[Piece]) -> str:
        """Return the number in its template."""
        for piece in pieces:
            match piece.pattern.upper():
                case "":
                    self.out.append(piece.text)
                case "9" | "0" | "." | "D" as pattern:
                    self._write_place(pattern)
                case "," | "G":
                    if self.is_inside:
                        self.out.append(",")
                    elif not self.is_compact:
                        self.out.append(" ")
                case "MI" | "PL" as pattern:
                    wanted = "-" if pattern == "MI" else "+"
                    if self.sign == wanted:
                        self.out.append(wanted)
                    elif not self.is_compact:
                        self.out.append(" ")
                case "SG":
                    self.out.append(self.sign)
                case _:
                    pass
        # PostgreSQL's text ends where the digits did.
        return "".join(self.out).partition("\0")[0]

    def _is_blank_zero(self) -> bool:
        """Return whether the zero before the point is left out: 0.1 in 9.9 is .1."""
        return "0" not in self.flags and self.at == 0 and self.number[:1] == "0" and self.post != 0

    def _ends_at_point(self) -> bool:
        return self.last is not None and self.number[self.last] == "."

    def _write_place(self, pattern: str) -> None:
        self.is_inside = False
        has_zeros = "0" in self.flags
        self._write_sign(has_zeros=has_zeros)
        if self.position < self.blanks and (self.zero_start > self.position or not has_zeros):
            if not self.is_compact:
                self.out.append(" ")
        elif has_zeros and self.position < self.blanks:
            self.out.append("0")
            self.is_inside = True
        else:
            self._write_digit(pattern)
        end = self.count + (self.blanks > 0) + ("." in self.flags)
        if self.last is not None and self.last == self.at:
            end = self.position
        if self.position + 1 == end and self.sign_place == "after":
            self.out.append(self.sign)
        self.position += 1

    def _write_sign(self, *, has_zeros: bool) -> None:
        if self.is_signed or not (self.position >= self.blanks or (has_zeros and self.zero_start == self.position)):
            return
        if self._is_blank_zero() and not self._ends_at_point():
            return
        if "S" in self.flags:
            if self.sign_place == "before":
                self.out.append(self.sign)
                self.is_signed = True
            return
        if self.sign == "-" or not self.is_compact:
            self.out.append("-" if self.sign == "-" else " ")
        self.is_signed = True

    def _write_digit(self, pattern: str) -> None:
        digit = self.number[self.at : self.at + 1] or "\0"
        if digit == ".":
            self.out.append(".")
        elif self.last is not None and self.at > self.last and pattern != "0":
            pass
        elif self._is_blank_zero():
            if not self.is_compact:
                self.out.append(" ")
            elif self._ends_at_point():
                self.out.append("0")
        else:
            self.out.append(digit)
            self.is_inside = True
        if digit != "\0":
            self.at += 1


# --- Entries ---------------------------------------------------------------------------------------------------------

ENTRIES: Final[tuple[Entry, ...]] = (
    function("to_timestamp", "text, text", "timestamptz", text_to_moment, sqlite="text_to_moment"),
    function(
        "to_date",
        "text, text",
        "date",
        lambda text, template: times.day_of(text_to_moment(text, template)),
        sqlite="text_to_date",
    ),
    function(
        "to_char",
        "timestamp, text",
        "text",
        lambda moment, template: _time_text(_parts(moment, ""), template),
        sqlite="timestamp_to_char",
    ),
    function(
        "to_char",
        "timestamptz, text",
        "text",
        lambda moment, template: _time_text(_parts(moment, "UTC"), template),
        sqlite="timestamptz_to_char",
    ),
    function("to_char", "interval, text", "text", interval_to_char, sqlite="interval_to_char"),
    function("to_char", "numeric, text", "text", numeric_to_char, sqlite="numeric_to_char"),
    function("to_char", "float8, text", "text", float_to_char, sqlite="float8_to_char"),
    *(
        function("to_char", f"{name}, text", "text", _integer_to_char(*INTEGER_RANGE[name]), sqlite=f"{name}_to_char")
        for name in ("int4", "int8")
    ),
)
