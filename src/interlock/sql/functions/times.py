"""Dates, times, moments and intervals as PostgreSQL computes with them, in a session whose time zone is UTC.

A date is a number of days since 1970, a time of day one of microseconds, a timestamp or timestamptz one of microseconds
since 1970: in UTC both are the same number. An interval keeps months, days and microseconds apart, because a month
has no length of its own; it is the text "months days microseconds". Adding one goes by
months first, where the day is cut to the month's last, then by days, then by microseconds. Multiplication is in floats
with the very roundings of PostgreSQL's `interval_mul`.

Sections: reading, arithmetic, parts of a moment, dates and times of day, functions, entries.
"""

import math
import re
from calendar import monthrange
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from interlock.sql.registry import Body, Entry, built, cast, function, internal, operator, swapped, written
from interlock.sql.scope import Term, call
from interlock.sql.stored_values import EPOCH, MICROSECOND, TIME_MAX, TIME_MIN, StoredValue, numeric_scaled
from interlock.sql.types import INTEGER_RANGE, InvalidValue, Type, refuse

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
_DAYS_PER_MONTH: Final = 30
_MONTHS_PER_YEAR: Final = 12
_SECONDS_PER_DAY: Final = 86_400
_POSTGRES_EPOCH_S: Final = 946_684_800  # 2000-01-01, from which PostgreSQL counts.
_INT4_MAX: Final = 2**31 - 1
_INT8_MAX: Final = 2**63 - 1


class Interval(NamedTuple):
    """A span of time in PostgreSQL's three parts."""

    months: int = 0
    days: int = 0
    micros: int = 0

    @property
    def stored(self) -> str:
        """The interval as it travels through SQLite."""
        limits = ((self.months, _INT4_MAX), (self.days, _INT4_MAX), (self.micros, _INT8_MAX))
        if any(not -limit - 1 <= part <= limit for part, limit in limits):
            raise InvalidValue("interval out of range.", fix="Use a shorter one.")
        return f"{self.months} {self.days} {self.micros}"


def stored_interval(text: str) -> Interval:
    """An interval from its stored form."""
    return Interval(*map(int, text.split()))


# --- Reading ---------------------------------------------------------------------------------------------------------

_UNITS: Final[dict[str, Interval]] = {
    "microsecond": Interval(micros=1),
    "millisecond": Interval(micros=1000),
    "second": Interval(micros=SECOND_US),
    "minute": Interval(micros=MINUTE_US),
    "hour": Interval(micros=HOUR_US),
    "day": Interval(days=1),
    "week": Interval(days=7),
    "month": Interval(months=1),
    "year": Interval(months=_MONTHS_PER_YEAR),
}
_SHORT: Final = {
    **dict.fromkeys(("s", "sec", "secs"), "second"),
    **dict.fromkeys(("m", "min", "mins"), "minute"),
    **dict.fromkeys(("h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("y", "yr", "yrs"), "year"),
    **dict.fromkeys(("mon", "mons"), "month"),
    **dict.fromkeys(("ms", "msec", "msecs"), "millisecond"),
    **dict.fromkeys(("us", "usec", "usecs"), "microsecond"),
    "d": "day",
    "w": "week",
}
_PART: Final = re.compile(r"\s*([+-]?)(\d{1,9})(?:\.(\d{1,15}))?\s*(?:([a-z]+)(?=\s|$)|([dhmsy])(?=\d))", re.ASCII)
_CLOCK: Final = re.compile(r"\s*([+-]?)(\d{1,6}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?\s*$", re.ASCII)
_COUNT: Final = r"(?:(-?\d{1,9})%s)?"
_ISO: Final = re.compile(
    "P(?=.)"
    + "".join(_COUNT % letter for letter in "YMWD")
    + r"(?:T(?=.)"
    + "".join(_COUNT % letter for letter in "HM")
    + r"(?:(-?\d{1,9}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)


def read_interval(text: str) -> str:
    """An interval as it is written, '1 day 02:30:00', '90 seconds' or 'P1DT2H', in its stored form."""
    iso = _ISO.fullmatch(text)
    if iso is not None:
        return _read_iso(iso)
    rest, total, units = text.strip().lower(), Interval(), set[str]()
    if not rest:
        raise ValueError(text)
    while rest:
        clock = _CLOCK.fullmatch(rest)
        if clock is not None:
            if units & {"hour", "minute", "second", "millisecond", "microsecond"}:
                raise ValueError(text)
            total = _sum(total, Interval(micros=_clock(clock)))
            break
        part = _PART.match(rest)
        if part is None:
            raise ValueError(text)
        sign, number, digits, word = part[1], part[2], part[3], part[4] or part[5]
        unit = _SHORT.get(word) or (word if len(word) < _WORD_MIN else word.removesuffix("s"))
        if unit not in _UNITS:
            raise ValueError(text)
        fraction = float(f"0.{digits}") if digits else 0.0
        # A fraction of a second is its milliseconds and microseconds, too.
        parts = {"second", "millisecond", "microsecond"} if fraction and unit == "second" else {unit}
        if parts & units:
            raise ValueError(text)
        units |= parts
        direction = -1 if sign == "-" else 1
        total = _sum(total, _UNITS[unit], direction * int(number))
        total = _sum(total, _fraction(unit, direction * fraction))
        rest = rest[part.end() :].strip()
    return total.stored


_WORD_MIN: Final = 4  # The shortest unit that is written out has three letters: day.


def _fraction(unit: str, fraction: float) -> Interval:
    """Return a fraction of a unit: of a year in months, of months and weeks in days and time, of others in time."""
    days, scale = 0, _UNITS[unit].micros
    if unit == "year":
        return Interval(months=round(fraction * _MONTHS_PER_YEAR))
    if unit in {"month", "week", "day"}:
        fraction *= {"month": _DAYS_PER_MONTH, "week": 7}.get(unit, 1)
        days, scale = math.trunc(fraction), DAY_US
        fraction -= days
    fraction *= scale
    micros = math.trunc(fraction)
    rest = fraction - micros
    micros += (rest > 0.5) - (rest < -0.5)  # noqa: PLR2004 -- the nearest microsecond
    return Interval(days=days, micros=micros)


def _read_iso(matched: re.Match[str]) -> str:
    *counts, seconds = matched.groups()
    total = Interval()
    for unit, count in zip(("year", "month", "week", "day", "hour", "minute"), counts, strict=True):
        total = _sum(total, _UNITS[unit], int(count or 0))
    whole = math.trunc(float(seconds or 0))
    total = _sum(total, _UNITS["second"], whole)
    return _sum(total, _fraction("second", float(seconds or 0) - whole)).stored


def _clock(matched: re.Match[str]) -> int:
    sign, hours, minutes, seconds, fraction = matched.groups()
    micros = int(hours) * HOUR_US + clock_us("0", minutes, seconds or "0", fraction or "")
    return -micros if sign == "-" else micros


def _sum(left: Interval, right: Interval, times: int = 1) -> Interval:
    return Interval(*(one + times * other for one, other in zip(left, right, strict=True)))


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def _moment(stored: int) -> datetime:
    return EPOCH + timedelta(microseconds=stored)


def _stored(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def _kept(stored: int) -> int:
    if not TIME_MIN <= stored <= TIME_MAX:
        raise refuse("a moment outside of the years 1 to 9999.", fix="Use a shorter interval.")
    return stored


def add(moment: int, interval: str, sign: int = 1) -> int:
    """Return the moment that much later, or earlier."""
    months, days, micros = stored_interval(interval)
    if months:
        at = _moment(moment)
        year, month = divmod(at.year * _MONTHS_PER_YEAR + at.month - 1 + sign * months, _MONTHS_PER_YEAR)
        if not MINYEAR <= year <= MAXYEAR:
            raise refuse("a moment outside of the years 1 to 9999.", fix="Use a shorter interval.")
        moment = _stored(at.replace(year=year, month=month + 1, day=min(at.day, monthrange(year, month + 1)[1])))
    return _kept(moment + sign * (days * DAY_US + micros))


def subtract(moment: int, interval: str) -> int:
    """Return the moment that much earlier."""
    return add(moment, interval, -1)


def difference(left: int, right: int) -> str:
    """Return the time between two moments: whole days, and the rest."""
    return Interval(0, *cut(left - right, DAY_US)).stored


def plus(left: str, right: str, sign: int = 1) -> str:
    """Return the sum of two intervals, part by part."""
    return _sum(stored_interval(left), stored_interval(right), sign).stored


def _negate(interval: str) -> str:
    return _sum(Interval(), stored_interval(interval), -1).stored


def multiply(interval: str, factor: float) -> str:
    """Return the interval multiplied by a number."""
    return _scaled(interval, lambda part: part * factor)


def divide(interval: str, divisor: float) -> str:
    """Return the interval divided by a number."""
    if divisor == 0:
        raise InvalidValue("division by zero.", fix="Test the divisor first.")
    return _scaled(interval, lambda part: part / divisor)


def _scaled(interval: str, scale: Callable[[int], float]) -> str:
    """PostgreSQL's interval_mul and interval_div: what is left of a month goes to its days, of a day to its seconds."""
    months, days, micros = stored_interval(interval)
    if not all(math.isfinite(scale(part)) for part in (months, days, micros)):
        raise InvalidValue("interval out of range.", fix="Use a smaller factor.")
    result_months, result_days = math.trunc(scale(months)), math.trunc(scale(days))
    month_rest = _rounded((scale(months) - result_months) * _DAYS_PER_MONTH)
    second_rest = (scale(days) - result_days + month_rest - math.trunc(month_rest)) * _SECONDS_PER_DAY
    second_rest = _rounded(second_rest)
    if abs(second_rest) >= _SECONDS_PER_DAY:
        carried = math.trunc(second_rest / _SECONDS_PER_DAY)
        result_days += carried
        second_rest -= carried * _SECONDS_PER_DAY
    result_days += math.trunc(month_rest)
    return Interval(result_months, result_days, round(scale(micros) + second_rest * SECOND_US)).stored


def _rounded(value: float) -> float:
    return round(value * SECOND_US) / SECOND_US


def cut(value: int, unit: int) -> tuple[int, int]:
    """Return a number divided by a unit, towards zero, and the rest."""
    whole = abs(value) // unit * (-1 if value < 0 else 1)
    return whole, value - whole * unit


def _length(interval: str) -> int:
    """Return what intervals are compared by: a month is thirty days, a day is 24 hours."""
    months, days, micros = stored_interval(interval)
    return (months * _DAYS_PER_MONTH + days) * DAY_US + micros


def interval_key(interval: str) -> int:
    """Return the key for comparing intervals, as bigint."""
    length = _length(interval)
    if abs(length) > _INT8_MAX:
        raise refuse("a comparison of intervals of many thousand years.", fix="Use shorter ones.")
    return length


def compare_intervals(left: str, right: str) -> int:
    """Return the order of two intervals: the collation of interval columns."""
    first, second = _length(left), _length(right)
    return (first > second) - (first < second)


# --- Parts of a moment -----------------------------------------------------------------------------------------------


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


_TRUNCATED: Final[dict[str, Callable[[datetime], datetime]]] = {
    "microseconds": lambda at: at,
    "milliseconds": lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000),
    "second": lambda at: at.replace(microsecond=0),
    "minute": lambda at: at.replace(second=0, microsecond=0),
    "hour": lambda at: at.replace(minute=0, second=0, microsecond=0),
    "day": _midnight,
    "week": lambda at: _midnight(at) - timedelta(days=at.weekday()),
    "month": lambda at: _midnight(at).replace(day=1),
    "quarter": lambda at: _midnight(at).replace(month=(at.month - 1) // 3 * 3 + 1, day=1),
    "year": lambda at: _midnight(at).replace(month=1, day=1),
    "century": lambda at: _midnight(at).replace(year=(at.year - 1) // 100 * 100 + 1, month=1, day=1),
    "millennium": lambda at: _midnight(at).replace(year=(at.year - 1) // 1000 * 1000 + 1, month=1, day=1),
}


def truncate(field: str, moment: int) -> int:
    """date_trunc: the beginning of the minute, the day, … that the moment is in."""
    begin = _TRUNCATED.get(field.lower())
    if begin is None:
        raise refuse(f"date_trunc({field[:20]!r}, …).", fix=f"Use one of {', '.join(_TRUNCATED)}.")
    try:
        return _kept(_stored(begin(_moment(moment))))
    except OverflowError as error:
        raise refuse("a moment outside of the years 1 to 9999.") from error


_PARTS: Final[dict[str, Callable[[datetime], str]]] = {
    "microseconds": lambda at: str(at.second * SECOND_US + at.microsecond),
    "milliseconds": lambda at: numeric_scaled(at.second * SECOND_US + at.microsecond, 3),
    "second": lambda at: numeric_scaled(at.second * SECOND_US + at.microsecond, 6),
    "minute": lambda at: str(at.minute),
    "hour": lambda at: str(at.hour),
    "day": lambda at: str(at.day),
    "dow": lambda at: str(at.isoweekday() % 7),
    "isodow": lambda at: str(at.isoweekday()),
    "doy": lambda at: str(at.timetuple().tm_yday),
    "week": lambda at: str(at.isocalendar().week),
    "isoyear": lambda at: str(at.isocalendar().year),
    "month": lambda at: str(at.month),
    "quarter": lambda at: str((at.month + 2) // 3),
    "year": lambda at: str(at.year),
    "decade": lambda at: str(at.year // 10),
    "century": lambda at: str((at.year + 99) // 100),
    "millennium": lambda at: str((at.year + 999) // 1000),
    "epoch": lambda at: numeric_scaled(_stored(at), 6),
}
_CLOCK_PARTS: Final = frozenset({"microseconds", "milliseconds", "second", "minute", "hour", "epoch"})
_SAME: Final = {f"{unit}s": unit for unit in ("second", "minute", "hour", "day", "week", "month", "year")} | {
    "microsecond": "microseconds",
    "millisecond": "milliseconds",
}
"""Fields that PostgreSQL takes in the singular and in the plural."""


def _field(name: str, known: Collection[str], kind: str) -> str:
    field = _SAME.get(name.lower(), name.lower())
    if field not in known:
        raise refuse(f"extract({name[:20]} FROM {kind}).", fix=f"Use one of {', '.join(sorted(known))}.")
    return field


def _part(field: str, moment: int) -> str:
    """extract() of a moment, as a numeric is stored."""
    return _PARTS[_field(field, _PARTS, "timestamp")](_moment(moment))


def _date_part(field: str, days: int) -> str:
    """extract() of a date, as a numeric is stored: it has no time of day."""
    name = _field(field, _PARTS, "date")
    if name in _CLOCK_PARTS - {"epoch"}:
        raise InvalidValue(f"unit {name!r} is not supported for type date.", fix="Cast it to timestamp.")
    return _PARTS[name](_moment(days * DAY_US)).partition(".")[0]


def _clock_part(field: str, clock: int) -> str:
    """extract() of a time of day, as a numeric is stored."""
    name = _field(field, _CLOCK_PARTS, "time")
    return numeric_scaled(clock, 6) if name == "epoch" else _PARTS[name](_moment(clock))


def _interval_part(field: str, interval: str) -> str:
    """extract() of an interval, as a numeric is stored; all parts are cut towards zero."""
    months, days, micros = stored_interval(interval)
    years, months = cut(months, _MONTHS_PER_YEAR)
    hours, rest = cut(micros, HOUR_US)
    minutes, seconds = cut(rest, MINUTE_US)
    # A year is 365.25 days here, though it is twelve months of thirty days in a comparison.
    quarters = 1461 * years + 4 * _DAYS_PER_MONTH * months + 4 * days
    parts = {
        "epoch": numeric_scaled(quarters * (DAY_US // 4) + micros, 6),
        "second": numeric_scaled(seconds, 6),
        "year": str(years),
        "month": str(months),
        "day": str(days),
        "hour": str(hours),
        "minute": str(minutes),
    }
    return parts[_field(field, parts, "interval")]


def _from_epoch(seconds: float) -> int:
    """to_timestamp: a moment from seconds since 1970, rounded in floats as PostgreSQL rounds."""
    return _kept(round((seconds - _POSTGRES_EPOCH_S) * SECOND_US) + _POSTGRES_EPOCH_S * SECOND_US)


# --- Dates and times of day ------------------------------------------------------------------------------------------

_EPOCH_LOCAL: Final = EPOCH.replace(tzinfo=None)
_EPOCH_DATE: Final = EPOCH.date()
_DAY_MIN: Final = (date.min - _EPOCH_DATE).days
_DAY_MAX: Final = (date.max - _EPOCH_DATE).days


def days_of(day: date) -> int:
    """Return a date as it is stored."""
    return (day - _EPOCH_DATE).days


def clock_us(hours: str, minutes: str, seconds: str, fraction: str) -> int:
    """Return a time of day as it is stored. Further digits of a second are rounded, as a float rounds them."""
    if int(hours) > 23 or int(minutes) > 59 or int(seconds) > 59:  # noqa: PLR2004 -- the last hour, minute, second
        raise ValueError(hours, minutes, seconds)
    micros = round(float(f"0.{fraction}") * SECOND_US) if fraction else 0
    return int(hours) * HOUR_US + int(minutes) * MINUTE_US + int(seconds) * SECOND_US + micros


def _kept_day(days: int) -> int:
    if not _DAY_MIN <= days <= _DAY_MAX:
        raise refuse("a date outside of the years 1 to 9999.", fix="Use a smaller number of days.")
    return days


def _date_add(days: int, count: int) -> int:
    return _kept_day(days + count)


def _clock_add(clock: int, interval: str, sign: int = 1) -> int:
    """Return the time of day that much later: months and days do not count, and midnight is passed."""
    return (clock + sign * stored_interval(interval).micros) % DAY_US


def _date_text(days: int) -> str:
    return (_EPOCH_DATE + timedelta(days=days)).isoformat()


def _clock_text(micros: int) -> str:
    """Return a time of day, or more hours, as PostgreSQL writes it: no zeros at the end of a fraction."""
    hours, rest = divmod(micros, HOUR_US)
    minutes, rest = divmod(rest, MINUTE_US)
    seconds, fraction = divmod(rest, SECOND_US)
    decimals = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{hours:02}:{minutes:02}:{seconds:02}{decimals}"


def timestamp_text(moment: int, between: str = " ") -> str:
    """Return a timestamp as PostgreSQL writes it."""
    text = (_EPOCH_LOCAL + timedelta(microseconds=moment)).isoformat(between)
    return text.rstrip("0") if "." in text else text


def moment_text(moment: int, between: str = " ", minutes: str = "") -> str:
    """Return a moment as PostgreSQL writes it in UTC."""
    return f"{timestamp_text(moment, between)}+00{minutes}"


def _interval_text(interval: str) -> str:
    """Return an interval as PostgreSQL writes it: 1 year 2 mons -3 days 04:05:06."""
    months, days, micros = stored_interval(interval)
    years, months = cut(months, _MONTHS_PER_YEAR)
    parts: list[str] = []
    was_negative = False
    for value, word in ((years, "year"), (months, "mon"), (days, "day")):
        if value:
            sign = "+" if was_negative and value > 0 else ""
            parts.append(f"{sign}{value} {word}{'' if value == 1 else 's'}")
            was_negative = value < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if was_negative else ""
        parts.append(sign + _clock_text(abs(micros)))
    return " ".join(parts)


def _round_us(micros: int, digits: int) -> int:
    """Return microseconds rounded to this many digits of a second, half away from zero."""
    unit: int = 10 ** (6 - digits)
    return (abs(micros) + unit // 2) // unit * unit * (-1 if micros < 0 else 1)


def _round_time(moment: int, digits: int) -> int:
    """Return a moment rounded to this many digits of a second. PostgreSQL rounds half away from the year 2000."""
    zero = _POSTGRES_EPOCH_S * SECOND_US
    return zero + _round_us(moment - zero, digits)


def _round_clock(clock: int, digits: int) -> int:
    """Return a time of day rounded to this many digits of a second. PostgreSQL has 24:00:00; a lane has not."""
    rounded = _round_us(clock, digits)
    if rounded >= DAY_US:
        raise refuse("a time of day that is rounded to 24:00:00.", fix="Leave the precision out.")
    return rounded


def moment_of_day(days: int) -> int:
    """Return the beginning of a date."""
    return _kept(days * DAY_US)


def day_of(moment: int) -> int:
    """Return the date of a moment."""
    return moment // DAY_US


def _clock_of_interval(interval: str) -> int:
    """Return the time of day that an interval is after midnight."""
    return stored_interval(interval).micros % DAY_US


# --- Functions -------------------------------------------------------------------------------------------------------


def _age(left: int, right: int) -> str:
    """Return the difference in years, months, days and the rest."""
    if left < right:
        return _negate(_age(right, left))
    later, earlier = _moment(left), _moment(right)
    months = (later.year - earlier.year) * _MONTHS_PER_YEAR + later.month - earlier.month
    days = later.day - earlier.day
    micros = left % DAY_US - right % DAY_US
    if micros < 0:
        micros += DAY_US
        days -= 1
    if days < 0:
        # PostgreSQL borrows the days of the earlier moment's month.
        days += monthrange(earlier.year, earlier.month)[1]
        months -= 1
    return Interval(months, days, micros).stored


def _truncate_interval(field: str, interval: str) -> str:
    """Return an interval cut off below a field: date_trunc()."""
    months, days, micros = stored_interval(interval)
    name = _SAME.get(field.lower(), field.lower())
    if name == "year":
        return Interval(months - cut(months, _MONTHS_PER_YEAR)[1]).stored
    if name == "month":
        return Interval(months).stored
    unit = _CLOCK_UNITS.get(name)
    if unit is None:
        raise refuse(f"date_trunc({field[:20]!r}, interval).", fix="Use year, month, day, hour, minute or second.")
    return Interval(months, days, micros - cut(micros, unit)[1] if unit else 0).stored


_CLOCK_UNITS: Final = {
    "day": 0, "hour": HOUR_US, "minute": MINUTE_US, "second": SECOND_US, "milliseconds": 1000, "microseconds": 1,
}  # fmt: skip


_ABBREVIATED: Final = {"CET": 1, "MET": 1, "EET": 2, "WET": 0, "EST": -5, "MST": -7, "HST": -10}
"""Names of IANA zones that PostgreSQL reads as abbreviations: hours ahead of UTC, at all times."""
_OFFSET: Final = re.compile(r"(?:[A-Za-z]{3,})?([+-])(\d|0\d|1[0-5])(?::([0-5]\d))?", re.ASCII)
"""An offset by POSIX's rule, where + is west of Greenwich: UTC+3, -05:30."""


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name in any case, an abbreviation or an offset."""
    if name.upper() in _ABBREVIATED:
        return timezone(timedelta(hours=_ABBREVIATED[name.upper()]))
    if offset := _OFFSET.fullmatch(name):
        sign, hours, minutes = offset.groups()
        west = timedelta(hours=int(hours), minutes=int(minutes or 0))
        return timezone(west if sign == "-" else -west)
    # Files beside the zones, such as localtime, have small letters.
    known = [zone for zone in available_timezones() if zone.lower() == name.lower() and zone[0].isupper()]
    if not known:
        raise refuse(
            f"the time zone {name[:40]!r}.",
            why="A lane knows the names of the IANA database, such as Europe/Berlin.",
            fix="Use such a name, or UTC.",
        )
    return ZoneInfo(known[0])


def _at_zone(zone: str, moment: int) -> int:
    """Return the timestamp that a clock in that zone shows: timestamptz AT TIME ZONE zone."""
    return _kept(_stored(_moment(moment).astimezone(_zone(zone)).replace(tzinfo=UTC)))


def _from_zone(zone: str, moment: int) -> int:
    """Return the moment at which a clock in that zone shows the timestamp: timestamp AT TIME ZONE zone.

    In an hour that exists twice it is the standard time, the later one, and a time that does not exist is taken as
    standard time, too, as PostgreSQL does.
    """
    local = _moment(moment).replace(tzinfo=_zone(zone))
    offset = min(local.replace(fold=fold).utcoffset() or timedelta(0) for fold in (0, 1))
    return _kept(moment - offset // MICROSECOND)


def make_date(year: int, month: int, day: int) -> int:
    """Return the date of a year, month and day."""
    if not 1 <= year <= MAXYEAR:
        raise refuse(f"the year {year}.", fix="Use years from 1 to 9999.")
    try:
        return days_of(date(year, month, day))
    except ValueError as error:
        raise InvalidValue(f"date field value out of range: {year}-{month}-{day}.", fix="Use a real date.") from error


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: float) -> int:
    """Return the timestamp of its parts."""
    return _kept(make_date(year, month, day) * DAY_US + _checked_clock(hour, minute, seconds))


def make_time(hour: int, minute: int, seconds: float) -> int:
    """Return the time of day of its parts."""
    clock = _checked_clock(hour, minute, seconds)
    if clock == DAY_US:
        raise refuse("the time 24:00.", fix="Use a time before midnight.")
    return clock


def _checked_clock(hour: int, minute: int, seconds: float) -> int:
    total = hour * HOUR_US + minute * MINUTE_US + round(seconds * SECOND_US)
    # As for PostgreSQL, a minute may have a second 60, and a day may end at 24:00.
    if not (0 <= hour <= 24 and 0 <= minute <= 59 and 0 <= seconds <= 60 and total <= DAY_US):  # noqa: PLR2004
        raise InvalidValue(f"time field value out of range: {hour}:{minute}:{seconds}.", fix="Use a real time.")
    return total


def _level(high: int, low: int, unit: int) -> tuple[int, int]:
    """Return two parts with one sign."""
    if high > 0 > low:
        return high - 1, low + unit
    return (high + 1, low - unit) if high < 0 < low else (high, low)


def _justify_hours(interval: str) -> str:
    """Return the interval with each 24 hours as a day."""
    months, days, micros = stored_interval(interval)
    carried, micros = cut(micros, DAY_US)
    return Interval(months, *_level(days + carried, micros, DAY_US)).stored


def _justify_days(interval: str) -> str:
    """Return the interval with each 30 days as a month."""
    months, days, micros = stored_interval(interval)
    carried, days = cut(days, _DAYS_PER_MONTH)
    return Interval(*_level(months + carried, days, _DAYS_PER_MONTH), micros).stored


def _justify_interval(interval: str) -> str:
    """Return the interval with each 24 hours as a day and each 30 days as a month, all with one sign."""
    months, days, micros = stored_interval(interval)
    carried, micros = cut(micros, DAY_US)
    carried, days = cut(days + carried, _DAYS_PER_MONTH)
    months, rest = _level(months + carried, days * DAY_US + micros, _DAYS_PER_MONTH * DAY_US)
    return Interval(months, *cut(rest, DAY_US)).stored


def _make_interval(*parts: float) -> str:
    """Return the interval of years, months, weeks, days, hours, minutes and seconds."""
    years, months, weeks, days, hours, minutes, seconds = (*parts, *(0.0,) * (7 - len(parts)))
    micros = int(hours) * HOUR_US + int(minutes) * MINUTE_US + round(seconds * SECOND_US)
    return Interval(int(years) * _MONTHS_PER_YEAR + int(months), int(weeks) * 7 + int(days), micros).stored


def _bin_of(stride: str, moment: int, origin: int) -> int:
    """date_bin: the beginning of the stride that the moment is in, counted from the origin."""
    months, days, micros = stored_interval(stride)
    if months:
        raise InvalidValue("date_bin() by months or years.", fix="Use days and times, or date_trunc().")
    step = days * DAY_US + micros
    if abs(step) > INTEGER_RANGE["int8"][1]:
        raise InvalidValue("interval out of range.", fix="Use a shorter one.")
    if step <= 0:
        raise InvalidValue("date_bin() by a stride that is not greater than zero.", fix="Use a longer one.")
    return _kept(origin + (moment - origin) // step * step)


def _truncate_at(field: str, moment: int, zone: str) -> int:
    """date_trunc in a time zone: days and longer units begin at its midnight, shorter ones keep the moment's offset."""
    local = _at_zone(zone, moment)
    begun = truncate(field, local)
    return moment - (local - begun) if field.lower() in _CLOCK_PARTS else _from_zone(zone, begun)


# --- Entries ---------------------------------------------------------------------------------------------------------


def _age_today(terms: Sequence[Term], kind: Type) -> Term:
    return call("interlock_age_of", kind, *terms, extra="interlock_now()")


def _day_and_clock(days: int, clock: int) -> int:
    return days * DAY_US + clock


def _day_plus(days: int, interval: str) -> int:
    return add(days * DAY_US, interval)


def _day_part(field: str, days: int) -> str:
    return _part(field, days * DAY_US)


def _is_finite(_: StoredValue) -> int:
    return 1


def _as_float(
    body: Callable[..., str], epoch: Callable[[Any], float] | None = None
) -> Callable[[str, StoredValue], float]:
    """Return date_part(), which computes in floats what extract() computes exactly."""

    def called(field: str, value: StoredValue) -> float:
        text, name = body(field, value), _SAME.get(field.lower(), field.lower())
        if name == "epoch" and epoch is not None:
            return epoch(value)
        if name in {"second", "milliseconds"}:
            seconds, micros = cut(int(text.replace(".", "")), SECOND_US)
            return seconds + micros / SECOND_US if name == "second" else seconds * 1000.0 + micros / 1000.0
        return float(text)

    return called


def _moment_epoch(moment: int) -> float:
    return float(moment) / SECOND_US  # Rounded twice: a quotient of two int would be rounded once.


def _interval_epoch(interval: str) -> float:
    months, days, micros = stored_interval(interval)
    years, months = cut(months, _MONTHS_PER_YEAR)
    total = micros / SECOND_US + 365.25 * _SECONDS_PER_DAY * years
    return total + float(_DAYS_PER_MONTH * _SECONDS_PER_DAY) * months + float(_SECONDS_PER_DAY) * days


def _moment_entries(name: str) -> tuple[Entry, ...]:
    """Declare what timestamp and timestamptz have in common: both are the same number in UTC."""
    return (
        operator("+", f"{name}, interval", name, add, sqlite="time_add"),
        operator("+", f"interval, {name}", name, swapped(add), sqlite="interval_time_add"),
        operator("-", f"{name}, interval", name, subtract, sqlite="time_subtract"),
        operator("-", f"{name}, {name}", "interval", difference, sqlite="time_difference"),
        function("extract", f"text, {name}", "numeric", _part, sqlite="time_part"),
        function("date_part", f"text, {name}", "float8", _as_float(_part, _moment_epoch), sqlite="float_time_part"),
        function("date_trunc", f"text, {name}", name, truncate, sqlite="time_truncate"),
        function("age", f"{name}, {name}", "interval", _age),
        built("function", "age", name, "interval", _age_today),
        function("isfinite", name, "bool", _is_finite, sqlite="is_finite"),
        cast(name, "date", day_of, sqlite="day_of"),
        cast(name, "time", lambda moment: moment % DAY_US, sqlite="clock_of"),
        cast("date", name, moment_of_day, sqlite="moment_of_day"),
    )


def _texts(name: str, body: Callable[..., str], sqlite: str) -> tuple[Entry, ...]:
    return tuple(cast(name, target, body, sqlite=sqlite) for target in ("text", "varchar"))


def _overlaps(start: int | None, end: int | None, other: int | None, other_end: int | None) -> bool | None:
    """Return whether two periods overlap, by PostgreSQL's rules for NULLs; each begins with its lesser end."""
    first, second = _period(start, end), _period(other, other_end)
    if first is None or second is None:
        return None
    (start, end), (other, other_end) = sorted((first, second), key=lambda period: period[0])
    if start == other:
        return None if end is None or other_end is None else True
    if end is None:
        return None
    if other < end:
        return True
    return None if other_end is None else False


def _period(start: int | None, end: int | None) -> tuple[int, int | None] | None:
    if start is None or end is None:
        known = end if start is None else start
        return None if known is None else (known, None)
    return min(start, end), max(start, end)


def _overlaps_for(plus: Callable[[int, str], int], places: tuple[int, ...]) -> Body:
    """Return OVERLAPS where the ends at these places are intervals."""

    def called(*values: Any) -> bool | None:  # noqa: ANN401 -- stored values of several types
        ends = list(values)
        for place in places:
            start, interval = values[place - 1], values[place]
            ends[place] = None if start is None or interval is None else plus(start, interval)
        return _overlaps(*ends)

    return called


def _overlap_entries(names: Sequence[str], plus: Callable[[int, str], int], sqlite: str) -> Iterator[Entry]:
    for places in ((), (1,), (3,), (1, 3)):
        body = _overlaps_for(plus, places)
        for name in names:
            takes = ", ".join("interval" if place in places else name for place in range(4))
            named = f"{sqlite}_overlaps{''.join(map(str, places))}"
            yield function("overlaps", takes, "bool", body, sqlite=named, null=True)


ENTRIES: Final[tuple[Entry, ...]] = (
    *_overlap_entries(("timestamp", "timestamptz"), add, "time"),
    *_overlap_entries(("time",), _clock_add, "clock"),
    *_moment_entries("timestamp"),
    *_moment_entries("timestamptz"),
    written("cast", "", "timestamp", "timestamptz", "{0}"),
    written("cast", "", "timestamptz", "timestamp", "{0}"),
    function("to_timestamp", "float8", "timestamptz", _from_epoch, sqlite="time_from_epoch"),
    internal("round_time", "timestamp, int4", "timestamp", _round_time),
    internal("round_clock", "time, int4", "time", _round_clock),
    operator("+", "date, int4", "date", _date_add, sqlite="date_add"),
    operator("+", "int4, date", "date", _date_add, sqlite="date_add"),
    operator("-", "date, int4", "date", lambda days, count: _kept_day(days - count), sqlite="date_subtract"),
    operator("-", "date, date", "int4", int.__sub__, sqlite="date_difference"),
    operator("+", "date, interval", "timestamp", _day_plus, sqlite="date_add_interval"),
    operator("+", "interval, date", "timestamp", swapped(_day_plus), sqlite="interval_add_date"),
    operator(
        "-",
        "date, interval",
        "timestamp",
        lambda days, interval: add(days * DAY_US, interval, -1),
        sqlite="date_less_interval",
    ),
    operator("+", "date, time", "timestamp", _day_and_clock, sqlite="date_add_time"),
    operator("+", "time, date", "timestamp", swapped(_day_and_clock), sqlite="time_add_date"),
    operator("+", "time, interval", "time", _clock_add, sqlite="clock_add"),
    operator("+", "interval, time", "time", swapped(_clock_add), sqlite="interval_clock_add"),
    operator(
        "-", "time, interval", "time", lambda clock, interval: _clock_add(clock, interval, -1), sqlite="clock_subtract"
    ),
    operator(
        "-",
        "time, time",
        "interval",
        lambda left, right: Interval(micros=left - right).stored,
        sqlite="clock_difference",
    ),
    operator("+", "interval, interval", "interval", plus, sqlite="interval_add"),
    operator(
        "-", "interval, interval", "interval", lambda left, right: plus(left, right, -1), sqlite="interval_subtract"
    ),
    operator("-", "interval", "interval", _negate, sqlite="interval_negate"),
    operator("*", "interval, float8", "interval", multiply, sqlite="interval_multiply"),
    operator("*", "float8, interval", "interval", swapped(multiply), sqlite="multiply_interval"),
    operator("/", "interval, float8", "interval", divide, sqlite="interval_divide"),
    internal("interval_key", "interval", "int8", interval_key),
    function("extract", "text, interval", "numeric", _interval_part, sqlite="interval_part"),
    function("extract", "text, date", "numeric", _date_part, sqlite="date_part"),
    function("extract", "text, time", "numeric", _clock_part, sqlite="clock_part"),
    function(
        "date_part",
        "text, interval",
        "float8",
        _as_float(_interval_part, _interval_epoch),
        sqlite="float_interval_part",
    ),
    function(
        "date_part",
        "text, date",
        "float8",
        _as_float(_day_part, lambda days: _moment_epoch(days * DAY_US)),
        sqlite="float_date_part",
    ),
    function("date_part", "text, time", "float8", _as_float(_clock_part), sqlite="float_clock_part"),
    function("date_trunc", "text, interval", "interval", _truncate_interval, sqlite="interval_truncate"),
    function("date_trunc", "text, timestamptz, text", "timestamptz", _truncate_at, sqlite="truncate_at"),
    function("timezone", "text, timestamptz", "timestamp", _at_zone, sqlite="at_zone"),
    function("timezone", "text, timestamp", "timestamptz", _from_zone, sqlite="from_zone"),
    function("make_date", "int4, int4, int4", "date", make_date),
    function("make_time", "int4, int4, float8", "time", make_time),
    function("make_timestamp", "int4, int4, int4, int4, int4, float8", "timestamp", _make_timestamp),
    function(
        "make_timestamptz",
        "int4, int4, int4, int4, int4, float8",
        "timestamptz",
        _make_timestamp,
        sqlite="make_timestamp",
    ),
    function("justify_hours", "interval", "interval", _justify_hours),
    function("justify_days", "interval", "interval", _justify_days),
    function("justify_interval", "interval", "interval", _justify_interval),
    function(
        "interlock age_of",
        "timestamp, timestamp",
        "interval",
        lambda moment, now: _age(truncate("day", now), moment),
        sqlite="age_of",
    ),
    *(function("isfinite", name, "bool", _is_finite, sqlite="is_finite") for name in ("date", "interval")),
    *(
        function("make_interval", ", ".join([*["int4"] * min(count, 6), "float8"][:count]), "interval", _make_interval)
        for count in range(8)
    ),
    *(function("date_bin", f"interval, {name}, {name}", name, _bin_of) for name in ("timestamp", "timestamptz")),
    cast("interval", "time", _clock_of_interval),
    cast("time", "interval", lambda clock: Interval(micros=clock).stored),
    *_texts("date", _date_text, "date_to_text"),
    *_texts("time", _clock_text, "time_to_text"),
    *_texts("timestamp", timestamp_text, "timestamp_to_text"),
    *_texts("timestamptz", moment_text, "timestamptz_to_text"),
    *_texts("interval", _interval_text, "interval_to_text"),
)
