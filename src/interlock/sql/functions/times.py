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
from collections.abc import Callable, Collection, Sequence
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from interlock.errors import TransactionError
from interlock.sql.registry import Entry, built, cast, function, operator, swapped, written
from interlock.sql.scope import Term, call
from interlock.sql.types import INTEGER_RANGE, Type, refuse
from interlock.sql.values import EPOCH, MICROSECOND, TIME_MAX, TIME_MIN, StoredValue, numeric_scaled

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
        if abs(self.months) > _INT4_MAX or abs(self.days) > _INT4_MAX or abs(self.micros) > _INT8_MAX:
            raise TransactionError("interval out of range.", fix="Use a shorter one.")
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
            total = _sum(total, Interval(micros=_clock(clock)), 1)
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
        total = _sum(total, _fraction(unit, direction * fraction), 1)
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
    return _sum(total, _fraction("second", float(seconds or 0) - whole), 1).stored


def _clock(matched: re.Match[str]) -> int:
    sign, hours, minutes, seconds, fraction = matched.groups()
    if int(minutes) > 59 or int(seconds or 0) > 59:  # noqa: PLR2004 - the last minute of an hour, the last second
        raise ValueError(matched[0])
    micros = int(hours) * HOUR_US + int(minutes) * MINUTE_US + int(seconds or 0) * SECOND_US
    micros += int((fraction or "").ljust(6, "0"))
    return -micros if sign == "-" else micros


def _sum(left: Interval, right: Interval, times: int) -> Interval:
    return Interval(*(one + times * other for one, other in zip(left, right, strict=True)))


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def _moment(stored: int) -> datetime:
    return EPOCH + timedelta(microseconds=stored)


def _kept(stored: int) -> int:
    if not TIME_MIN <= stored <= TIME_MAX:
        raise refuse("a moment outside of the years 1 to 9999.", fix="Use a shorter interval.")
    return stored


def add(moment: int, interval: str, sign: int = 1) -> int:
    """The moment that much later, or earlier."""
    months, days, micros = stored_interval(interval)
    if months:
        at = _moment(moment)
        year, month = divmod(at.year * _MONTHS_PER_YEAR + at.month - 1 + sign * months, _MONTHS_PER_YEAR)
        if not MINYEAR <= year <= MAXYEAR:
            raise refuse("a moment outside of the years 1 to 9999.", fix="Use a shorter interval.")
        at = at.replace(day=1).replace(year=year, month=month + 1, day=min(at.day, _days_of(year, month + 1)))
        moment = (at - EPOCH) // MICROSECOND
    return _kept(moment + sign * (days * DAY_US + micros))


def _days_of(year: int, month: int) -> int:
    if month == _MONTHS_PER_YEAR:
        return 31
    return (datetime(year, month + 1, 1, tzinfo=UTC) - datetime(year, month, 1, tzinfo=UTC)).days


def subtract(moment: int, interval: str) -> int:
    """The moment that much earlier."""
    return add(moment, interval, -1)


def difference(left: int, right: int) -> str:
    """The time between two moments: whole days, and the rest."""
    micros = left - right
    days = abs(micros) // DAY_US * (-1 if micros < 0 else 1)
    return Interval(0, days, micros - days * DAY_US).stored


def plus(left: str, right: str) -> str:
    """The sum of two intervals, part by part."""
    return _sum(stored_interval(left), stored_interval(right), 1).stored


def minus(left: str, right: str) -> str:
    """The difference of two intervals, part by part."""
    return _sum(stored_interval(left), stored_interval(right), -1).stored


def negate(interval: str) -> str:
    """The interval with the other sign."""
    return _sum(Interval(), stored_interval(interval), -1).stored


def multiply(interval: str, factor: float) -> str:
    """Return the interval multiplied by a number."""
    return _scaled(interval, lambda part: part * factor)


def divide(interval: str, divisor: float) -> str:
    """Return the interval divided by a number."""
    if divisor == 0:
        raise TransactionError("division by zero.", fix="Test the divisor first.")
    return _scaled(interval, lambda part: part / divisor)


def _scaled(interval: str, scale: Callable[[int], float]) -> str:
    """PostgreSQL's interval_mul and interval_div: what is left of a month goes to its days, of a day to its seconds."""
    months, days, micros = stored_interval(interval)
    if not all(math.isfinite(scale(part)) for part in (months, days, micros)):
        raise TransactionError("interval out of range.", fix="Use a smaller factor.")
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


def interval_key(interval: str) -> int:
    """Return the key for comparing intervals: a month is thirty days, a day is 24 hours."""
    months, days, micros = stored_interval(interval)
    key = (months * _DAYS_PER_MONTH + days) * DAY_US + micros
    if abs(key) > _INT8_MAX:
        raise refuse("a comparison of intervals of many thousand years.", fix="Use shorter ones.")
    return key


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


def check_field(field: str) -> None:
    """Refuse what date_trunc() does not know here."""
    if field.lower() not in _TRUNCATED:
        raise refuse(f"date_trunc({field[:20]!r}, …).", fix=f"Use one of {', '.join(_TRUNCATED)}.")


def truncate(field: str, moment: int) -> int:
    """date_trunc: the beginning of the minute, the day, … that the moment is in."""
    check_field(field)
    try:
        return _kept((_TRUNCATED[field.lower()](_moment(moment)) - EPOCH) // MICROSECOND)
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
    "epoch": lambda at: numeric_scaled((at - EPOCH) // MICROSECOND, 6),
}
MOMENT_PARTS: Final = frozenset(_PARTS)
INTERVAL_PARTS: Final = frozenset({"epoch", "day", "hour", "minute", "second", "month", "year"})
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


def part(field: str, moment: int) -> str:
    """extract() of a moment, as a numeric is stored."""
    return _PARTS[_field(field, MOMENT_PARTS, "timestamp")](_moment(moment))


def date_part(field: str, days: int) -> str:
    """extract() of a date, as a numeric is stored: it has no time of day."""
    name = _field(field, MOMENT_PARTS, "date")
    if name in _CLOCK_PARTS - {"epoch"}:
        raise TransactionError(f"unit {name!r} is not supported for type date.", fix="Cast it to timestamp.")
    found = _PARTS[name](_moment(days * DAY_US))
    return found.partition(".")[0]


def clock_part(field: str, clock: int) -> str:
    """extract() of a time of day, as a numeric is stored."""
    name = _field(field, _CLOCK_PARTS, "time")
    return numeric_scaled(clock, 6) if name == "epoch" else _PARTS[name](_moment(clock))


def interval_part(field: str, interval: str) -> str:
    """extract() of an interval, as a numeric is stored; all parts are cut towards zero."""
    months, days, micros = stored_interval(interval)
    years, months = _cut(months, _MONTHS_PER_YEAR)
    hours, rest = _cut(micros, HOUR_US)
    minutes, seconds = _cut(rest, MINUTE_US)
    match _field(field, INTERVAL_PARTS, "interval"):
        case "epoch":
            # A year is 365.25 days here, though it is twelve months of thirty days in a comparison.
            quarters = 1461 * years + 4 * _DAYS_PER_MONTH * months + 4 * days
            return numeric_scaled(quarters * (DAY_US // 4) + micros, 6)
        case "second":
            return numeric_scaled(seconds, 6)
        case _:
            parts = {"year": years, "month": months, "day": days, "hour": hours, "minute": minutes}
            return str(parts[_field(field, INTERVAL_PARTS, "interval")])


def _cut(value: int, unit: int) -> tuple[int, int]:
    whole = abs(value) // unit * (-1 if value < 0 else 1)
    return whole, value - whole * unit


def from_epoch(seconds: float) -> int:
    """to_timestamp: a moment from seconds since 1970, rounded in floats as PostgreSQL rounds."""
    return _kept(round((seconds - _POSTGRES_EPOCH_S) * SECOND_US) + _POSTGRES_EPOCH_S * SECOND_US)


def moment_text(moment: int, between: str = " ", minutes: str = "") -> str:
    """A moment as PostgreSQL writes it in UTC: no zeros at the end of a fraction."""
    at = _moment(moment)
    fraction = f".{at.microsecond:06}".rstrip("0") if at.microsecond else ""
    return f"{at.year:04}-{at.month:02}-{at.day:02}{between}{at:%H:%M:%S}{fraction}+00{minutes}"


# --- Dates and times of day ------------------------------------------------------------------------------------------

_EPOCH_DATE: Final = date(1970, 1, 1)
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


def date_add(days: int, count: int) -> int:
    """Return the date that many days later."""
    return _kept_day(days + count)


def date_subtract(days: int, count: int) -> int:
    """Return the date that many days earlier."""
    return _kept_day(days - count)


def clock_add(clock: int, interval: str, sign: int = 1) -> int:
    """Return the time of day that much later: months and days do not count, and midnight is passed."""
    return (clock + sign * stored_interval(interval).micros) % DAY_US


def date_text(days: int) -> str:
    """Return a date as PostgreSQL writes it."""
    return (_EPOCH_DATE + timedelta(days=days)).isoformat()


def clock_text(clock: int) -> str:
    """Return a time of day as PostgreSQL writes it."""
    return _clock_text(clock)


def _clock_text(micros: int) -> str:
    hours, rest = divmod(micros, HOUR_US)
    minutes, rest = divmod(rest, MINUTE_US)
    seconds, fraction = divmod(rest, SECOND_US)
    decimals = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{hours:02}:{minutes:02}:{seconds:02}{decimals}"


def timestamp_text(moment: int, between: str = " ") -> str:
    """Return a timestamp as PostgreSQL writes it."""
    return moment_text(moment, between).removesuffix("+00")


def interval_text(interval: str) -> str:
    """Return an interval as PostgreSQL writes it: 1 year 2 mons -3 days 04:05:06."""
    months, days, micros = stored_interval(interval)
    years, months = _cut(months, _MONTHS_PER_YEAR)
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


def compare_intervals(left: str, right: str) -> int:
    """Return the order of two intervals: the collation of interval columns."""
    first, second = (
        (months * _DAYS_PER_MONTH + days) * DAY_US + micros
        for months, days, micros in (stored_interval(left), stored_interval(right))
    )
    return (first > second) - (first < second)


def round_time(moment: int, digits: int) -> int:
    """Return a moment or time of day rounded to this many digits of a second, half away from zero."""
    unit: int = 10 ** (6 - digits)
    half = unit // 2
    return (moment + half) // unit * unit if moment >= 0 else -((-moment + half) // unit * unit)


def round_clock(clock: int, digits: int) -> int:
    """Return a time of day rounded to this many digits of a second. PostgreSQL has 24:00:00; a lane has not."""
    rounded = round_time(clock, digits)
    if rounded >= DAY_US:
        raise refuse("a time of day that is rounded to 24:00:00.", fix="Leave the precision out.")
    return rounded


def moment_of_day(days: int) -> int:
    """Return the beginning of a date."""
    return _kept(days * DAY_US)


def day_of(moment: int) -> int:
    """Return the date of a moment."""
    return moment // DAY_US


def clock_of(moment: int) -> int:
    """Return the time of day of a moment."""
    return moment % DAY_US


def clock_of_interval(interval: str) -> int:
    """Return the time of day that an interval is after midnight."""
    return stored_interval(interval).micros % DAY_US


def interval_of_clock(clock: int) -> str:
    """Return the interval from midnight."""
    return Interval(micros=clock).stored


# --- Functions -------------------------------------------------------------------------------------------------------


def age(left: int, right: int) -> str:
    """Return the difference in years, months, days and the rest."""
    if left < right:
        return negate(age(right, left))
    later, earlier = _moment(left), _moment(right)
    months = (later.year - earlier.year) * _MONTHS_PER_YEAR + later.month - earlier.month
    days = later.day - earlier.day
    micros = clock_of(left) - clock_of(right)
    if micros < 0:
        micros += DAY_US
        days -= 1
    if days < 0:
        # PostgreSQL borrows the days of the earlier moment's month.
        days += _days_of(earlier.year, earlier.month)
        months -= 1
    return Interval(months, days, micros).stored


def truncate_interval(field: str, interval: str) -> str:
    """Return an interval cut off below a field: date_trunc()."""
    months, days, micros = stored_interval(interval)
    name = _SAME.get(field.lower(), field.lower())
    match name:
        case "year":
            return Interval(_cut(months, _MONTHS_PER_YEAR)[0] * _MONTHS_PER_YEAR).stored
        case "month":
            return Interval(months).stored
        case "day":
            return Interval(months, days).stored
        case "hour" | "minute" | "second" | "milliseconds" | "microseconds":
            unit = {"hour": HOUR_US, "minute": MINUTE_US, "second": SECOND_US, "milliseconds": 1000}.get(name, 1)
            return Interval(months, days, _cut(micros, unit)[0] * unit).stored
        case _:
            raise refuse(f"date_trunc({field[:20]!r}, interval).", fix="Use year, month, day, hour, minute or second.")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except Exception as error:
        raise refuse(
            f"the time zone {name[:40]!r}.",
            why="A lane knows the names of the IANA database, such as Europe/Berlin.",
            fix="Use such a name, or UTC.",
        ) from error


def at_zone(zone: str, moment: int) -> int:
    """Return the timestamp that a clock in that zone shows: timestamptz AT TIME ZONE zone."""
    local = _moment(moment).astimezone(_zone(zone)).replace(tzinfo=UTC)
    return _kept((local - EPOCH) // MICROSECOND)


def from_zone(zone: str, moment: int) -> int:
    """Return the moment at which a clock in that zone shows the timestamp: timestamp AT TIME ZONE zone.

    In an hour that exists twice it is the standard time, the later one, and a time that does not exist is taken as
    standard time, too, as PostgreSQL does.
    """
    local = _moment(moment).replace(tzinfo=_zone(zone))
    offsets = sorted(each for each in (local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()) if each)
    offset = offsets[0] if offsets else timedelta(0)
    return _kept(moment - offset // MICROSECOND)


def make_date(year: int, month: int, day: int) -> int:
    """Return the date of a year, month and day."""
    try:
        return days_of(date(year, month, day))
    except ValueError as error:
        raise TransactionError(
            f"date field value out of range: {year}-{month}-{day}.", fix="Use a real date."
        ) from error


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: float) -> int:
    """Return the timestamp of its parts."""
    return _kept(make_date(year, month, day) * DAY_US + _clock_of(hour, minute, seconds))


def make_time(hour: int, minute: int, seconds: float) -> int:
    """Return the time of day of its parts."""
    clock = _clock_of(hour, minute, seconds)
    if clock == DAY_US:
        raise refuse("the time 24:00.", fix="Use a time before midnight.")
    return clock


def _clock_of(hour: int, minute: int, seconds: float) -> int:
    total = hour * HOUR_US + minute * MINUTE_US + round(seconds * SECOND_US)
    # As for PostgreSQL, a minute may have a second 60, and a day may end at 24:00.
    if not (0 <= hour <= 24 and 0 <= minute <= 59 and 0 <= seconds <= 60 and total <= DAY_US):  # noqa: PLR2004
        raise TransactionError(f"time field value out of range: {hour}:{minute}:{seconds}.", fix="Use a real time.")
    return total


def justify_hours(interval: str) -> str:
    """Return the interval with each 24 hours as a day."""
    months, days, micros = stored_interval(interval)
    carried, micros = _cut(micros, DAY_US)
    days += carried
    if days > 0 > micros:
        days, micros = days - 1, micros + DAY_US
    elif days < 0 < micros:
        days, micros = days + 1, micros - DAY_US
    return Interval(months, days, micros).stored


def justify_days(interval: str) -> str:
    """Return the interval with each 30 days as a month."""
    months, days, micros = stored_interval(interval)
    carried, days = _cut(days, _DAYS_PER_MONTH)
    months += carried
    if months > 0 > days:
        months, days = months - 1, days + _DAYS_PER_MONTH
    elif months < 0 < days:
        months, days = months + 1, days - _DAYS_PER_MONTH
    return Interval(months, days, micros).stored


def justify_interval(interval: str) -> str:
    """Return the interval with each 24 hours as a day and each 30 days as a month, all with one sign."""
    months, days, micros = stored_interval(interval)
    carried, micros = _cut(micros, DAY_US)
    days += carried
    carried, days = _cut(days, _DAYS_PER_MONTH)
    months += carried
    if months > 0 and (days < 0 or (days == 0 and micros < 0)):
        months, days = months - 1, days + _DAYS_PER_MONTH
    elif months < 0 and (days > 0 or (days == 0 and micros > 0)):
        months, days = months + 1, days - _DAYS_PER_MONTH
    if days > 0 > micros:
        days, micros = days - 1, micros + DAY_US
    elif days < 0 < micros:
        days, micros = days + 1, micros - DAY_US
    return Interval(months, days, micros).stored


def make_interval(*parts: float) -> str:
    """Return the interval of years, months, weeks, days, hours, minutes and seconds."""
    values = [*parts, *[0] * (7 - len(parts))]
    years, months, weeks, days, hours, minutes = map(int, values[:6])
    seconds = values[6]
    micros = hours * HOUR_US + minutes * MINUTE_US + round(seconds * SECOND_US)
    return Interval(years * _MONTHS_PER_YEAR + months, weeks * 7 + days, micros).stored


def bin_of(stride: str, moment: int, origin: int) -> int:
    """date_bin: the beginning of the stride that the moment is in, counted from the origin."""
    months, days, micros = stored_interval(stride)
    if months:
        raise TransactionError("date_bin() by months or years.", fix="Use days and times, or date_trunc().")
    step = days * DAY_US + micros
    if abs(step) > INTEGER_RANGE["int8"][1]:
        raise TransactionError("interval out of range.", fix="Use a shorter one.")
    if step <= 0:
        raise TransactionError("date_bin() by a stride that is not greater than zero.", fix="Use a longer one.")
    return _kept(origin + (moment - origin) // step * step)


def truncate_at(field: str, moment: int, zone: str) -> int:
    """date_trunc in a time zone: days and longer units begin at its midnight, shorter ones keep the moment's offset."""
    local = at_zone(zone, moment)
    begun = truncate(field, local)
    return moment - (local - begun) if field.lower() in _CLOCK_PARTS else from_zone(zone, begun)


# --- Entries ---------------------------------------------------------------------------------------------------------


def _age_today(terms: Sequence[Term], kind: Type) -> Term:
    return call("interlock_age_of", kind, *terms, extra="interlock_now()")


def _age_of(moment: int, now: int) -> str:
    return age(truncate("day", now), moment)


def _days_between(left: int, right: int) -> int:
    return left - right


def _day_and_clock(days: int, clock: int) -> int:
    return days * DAY_US + clock


def _day_plus(days: int, interval: str) -> int:
    return add(days * DAY_US, interval)


def _day_minus(days: int, interval: str) -> int:
    return add(days * DAY_US, interval, -1)


def _clock_minus(clock: int, interval: str) -> int:
    return clock_add(clock, interval, -1)


def _clock_difference(left: int, right: int) -> str:
    return Interval(micros=left - right).stored


def _day_part(field: str, days: int) -> str:
    return part(field, days * DAY_US)


def _is_finite(_: int) -> int:
    return 1


def _as_float(body: Callable[..., str]) -> Callable[[str, StoredValue], float]:
    """Return date_part(), which gives as a float what extract() gives as a numeric."""

    def called(field: str, value: StoredValue) -> float:
        return float(body(field, value))

    return called


def _moment_entries(name: str) -> tuple[Entry, ...]:
    """Declare what timestamp and timestamptz have in common: both are the same number in UTC."""
    return (
        operator("+", f"{name}, interval", name, add, sqlite="time_add"),
        operator("+", f"interval, {name}", name, swapped(add), sqlite="interval_time_add"),
        operator("-", f"{name}, interval", name, subtract, sqlite="time_subtract"),
        operator("-", f"{name}, {name}", "interval", difference, sqlite="time_difference"),
        function("extract", f"text, {name}", "numeric", part, sqlite="time_part"),
        function("date_part", f"text, {name}", "float8", _as_float(part), sqlite="float_time_part"),
        function("date_trunc", f"text, {name}", name, truncate, sqlite="time_truncate"),
        function("age", f"{name}, {name}", "interval", age),
        built("function", "age", name, "interval", _age_today),
        function("isfinite", name, "bool", _is_finite, sqlite="is_finite"),
        cast(name, "date", day_of, sqlite="day_of"),
        cast(name, "time", clock_of, sqlite="clock_of"),
        cast("date", name, moment_of_day, sqlite="moment_of_day"),
    )


def _texts(name: str, body: Callable[..., str], sqlite: str) -> tuple[Entry, ...]:
    return tuple(cast(name, target, body, sqlite=sqlite) for target in ("text", "varchar"))


ENTRIES: Final = (
    *_moment_entries("timestamp"),
    *_moment_entries("timestamptz"),
    written("cast", "", "timestamp", "timestamptz", "{0}"),
    written("cast", "", "timestamptz", "timestamp", "{0}"),
    function("to_timestamp", "float8", "timestamptz", from_epoch, sqlite="time_from_epoch"),
    function("interlock round_time", "timestamp, int4", "timestamp", round_time, sqlite="round_time"),
    function("interlock round_clock", "time, int4", "time", round_clock, sqlite="round_clock"),
    operator("+", "date, int4", "date", date_add, sqlite="date_add"),
    operator("+", "int4, date", "date", date_add, sqlite="date_add"),
    operator("-", "date, int4", "date", date_subtract, sqlite="date_subtract"),
    operator("-", "date, date", "int4", _days_between, sqlite="date_difference"),
    operator("+", "date, interval", "timestamp", _day_plus, sqlite="date_add_interval"),
    operator("+", "interval, date", "timestamp", swapped(_day_plus), sqlite="interval_add_date"),
    operator("-", "date, interval", "timestamp", _day_minus, sqlite="date_less_interval"),
    operator("+", "date, time", "timestamp", _day_and_clock, sqlite="date_add_time"),
    operator("+", "time, date", "timestamp", swapped(_day_and_clock), sqlite="time_add_date"),
    operator("+", "time, interval", "time", clock_add, sqlite="clock_add"),
    operator("+", "interval, time", "time", swapped(clock_add), sqlite="interval_clock_add"),
    operator("-", "time, interval", "time", _clock_minus, sqlite="clock_subtract"),
    operator("-", "time, time", "interval", _clock_difference, sqlite="clock_difference"),
    operator("+", "interval, interval", "interval", plus, sqlite="interval_add"),
    operator("-", "interval, interval", "interval", minus, sqlite="interval_subtract"),
    operator("-", "interval", "interval", negate, sqlite="interval_negate"),
    operator("*", "interval, float8", "interval", multiply, sqlite="interval_multiply"),
    operator("*", "float8, interval", "interval", swapped(multiply), sqlite="multiply_interval"),
    operator("/", "interval, float8", "interval", divide, sqlite="interval_divide"),
    function("interlock interval_key", "interval", "int8", interval_key, sqlite="interval_key"),
    function("extract", "text, interval", "numeric", interval_part, sqlite="interval_part"),
    function("extract", "text, date", "numeric", date_part, sqlite="date_part"),
    function("extract", "text, time", "numeric", clock_part, sqlite="clock_part"),
    function("date_part", "text, interval", "float8", _as_float(interval_part), sqlite="float_interval_part"),
    function("date_part", "text, date", "float8", _as_float(_day_part), sqlite="float_date_part"),
    function("date_part", "text, time", "float8", _as_float(clock_part), sqlite="float_clock_part"),
    function("date_trunc", "text, interval", "interval", truncate_interval, sqlite="interval_truncate"),
    function("date_trunc", "text, timestamptz, text", "timestamptz", truncate_at, sqlite="truncate_at"),
    function("timezone", "text, timestamptz", "timestamp", at_zone, sqlite="at_zone"),
    function("timezone", "text, timestamp", "timestamptz", from_zone, sqlite="from_zone"),
    function("make_date", "int4, int4, int4", "date", make_date),
    function("make_time", "int4, int4, float8", "time", make_time),
    function("make_timestamp", "int4, int4, int4, int4, int4, float8", "timestamp", make_timestamp),
    function(
        "make_timestamptz",
        "int4, int4, int4, int4, int4, float8",
        "timestamptz",
        make_timestamp,
        sqlite="make_timestamp",
    ),
    function("justify_hours", "interval", "interval", justify_hours),
    function("justify_days", "interval", "interval", justify_days),
    function("justify_interval", "interval", "interval", justify_interval),
    function("interlock age_of", "timestamp, timestamp", "interval", _age_of, sqlite="age_of"),
    function("isfinite", "date", "bool", _is_finite, sqlite="is_finite"),
    *(
        function("make_interval", ", ".join([*["int4"] * min(count, 6), "float8"][:count]), "interval", make_interval)
        for count in range(8)
    ),
    *(function("date_bin", f"interval, {name}, {name}", name, bin_of) for name in ("timestamp", "timestamptz")),
    cast("interval", "time", clock_of_interval),
    cast("time", "interval", interval_of_clock),
    *_texts("date", date_text, "date_to_text"),
    *_texts("time", clock_text, "time_to_text"),
    *_texts("timestamp", timestamp_text, "timestamp_to_text"),
    *_texts("timestamptz", moment_text, "timestamptz_to_text"),
    *_texts("interval", interval_text, "interval_to_text"),
)
