"""Django database backend on Interlock's databases: `ENGINE = "interlock.django"`, NAME is the address of a lane.

The SQL is that of Django's backend for PostgreSQL, whose classes are the bases of those here. They import psycopg for
a few names. Without psycopg this package puts its own module in the place of Django's `psycopg_any`, so that no driver
has to be installed. Every method that uses one of those names is overridden in this package.
"""

import importlib.util
import sys
from types import ModuleType

_PLACE = "django.db.backends.postgresql.psycopg_any"
_CLASSES = ("DateRange", "DateTimeRange", "DateTimeTZRange", "Jsonb", "NumericRange", "Range")


def _without_psycopg() -> ModuleType:
    """Return a module with the names that Django's classes import. None of them is used by this backend."""
    module = ModuleType(_PLACE, "Names that Django's classes for PostgreSQL import; psycopg is not installed.")
    classes = {name: type(name, (), {"__module__": _PLACE}) for name in _CLASSES}
    names: dict[str, object] = {"Inet": str, "errors": None, "is_psycopg3": False, "mogrify": None, "sql": None}
    module.__dict__.update(classes, **names, RANGE_TYPES=tuple(classes[name] for name in _CLASSES if "Range" in name))
    return module


if not any(importlib.util.find_spec(driver) for driver in ("psycopg", "psycopg2")):
    _ = sys.modules.setdefault(_PLACE, _without_psycopg())
