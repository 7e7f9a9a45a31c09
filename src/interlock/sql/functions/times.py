"""Moments and intervals as PostgreSQL computes with them, in a session whose time zone is UTC.

A moment is a number of microseconds since 1970. An interval keeps months, days and microseconds apart, because a month
has no length of its own; it is the text "months days microseconds" and never leaves a statement. Adding one goes by
months first, where the day is cut to the month's last, then by days, then by microseconds. Multiplication is in floats
with the very roundings of PostgreSQL's `interval_mul`.
"""

import math
import re
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Final, NamedTuple

from interlock.errors import TransactionError
from interlock.sql.types import refuse
from interlock.sql.values import EPOCH, MICROSECOND, TIME_MAX, TIME_MIN, numeric_scaled

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
_SHORT: Final = {"sec": "second", "secs": "second", "min": "minute", "mins": "minute"}
_PART: Final = re.compile(r"\s*([+-]?\d{1,9})(?:\.(\d{1,6}))?\s*([a-z]+)(?=\s|$|[+-])", re.ASCII)
_CLOCK: Final = re.compile(r"\s*([+-]?)(\d{1,6}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?\s*$", re.ASCII)


def read_interval(text: str) -> str:
    """An interval as it is written, '1 day 02:30:00' or '90 seconds', in its stored form."""
    rest, total, seen = text.strip().lower(), Interval(), set[str]()
    if not rest:
        raise ValueError(text)
    while rest:
        clock = _CLOCK.fullmatch(rest)
        if clock is not None:
            if seen & {"hour", "minute", "second", "millisecond", "microsecond"}:
                raise ValueError(text)
            total = _sum(total, Interval(micros=_clock(clock)), 1)
            break
        part = _PART.match(rest)
        if part is None:
            raise ValueError(text)
        number, fraction, word = part.groups()
        unit = _SHORT.get(word, word.removesuffix("s"))
        if unit not in _UNITS or (fraction and unit != "second"):
            raise ValueError(text)
        # A fraction of a second is its milliseconds and microseconds, too.
        parts = {"second", "millisecond", "microsecond"} if fraction else {unit}
        if parts & seen:
            raise ValueError(text)
        seen |= parts
        total = _sum(total, _UNITS[unit], int(number))
        if fraction:
            micros = int(fraction.ljust(6, "0"))
            total = total._replace(micros=total.micros + (-micros if number.startswith("-") else micros))
        rest = rest[part.end() :].strip()
    return total.stored


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
    "epoch": lambda at: numeric_scaled((at - EPOCH) // MICROSECOND, 6),
}
MOMENT_PARTS: Final = frozenset(_PARTS)
INTERVAL_PARTS: Final = frozenset({"epoch", "day", "hour", "minute", "second", "month", "year"})


def part(field: str, moment: int) -> str:
    """extract() of a moment, as a numeric is stored."""
    return _PARTS[field](_moment(moment))


def interval_part(field: str, interval: str) -> str:
    """extract() of an interval, as a numeric is stored; all parts are cut towards zero."""
    months, days, micros = stored_interval(interval)
    years, months = _cut(months, _MONTHS_PER_YEAR)
    hours, rest = _cut(micros, HOUR_US)
    minutes, seconds = _cut(rest, MINUTE_US)
    match field:
        case "epoch":
            # A year is 365.25 days here, though it is twelve months of thirty days in a comparison.
            quarters = 1461 * years + 4 * _DAYS_PER_MONTH * months + 4 * days
            return numeric_scaled(quarters * (DAY_US // 4) + micros, 6)
        case "second":
            return numeric_scaled(seconds, 6)
        case _:
            return str({"year": years, "month": months, "day": days, "hour": hours, "minute": minutes}[field])


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
