"""The backend in a process of its own, because Django can be configured once in each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONFIGURED = """
import django
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "interlock.django", **%s}}, **%s)
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
"""


def run(program: str, *, first: str = "", database: str = "{'NAME': 'memory:'}", settings: str = "{}") -> str:
    """Run a program with that database; return its output and errors."""
    done = subprocess.run(
        [sys.executable, "-c", first + CONFIGURED % (database, settings) + program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.stdout + done.stderr


def test_it_needs_no_psycopg() -> None:
    blocked = "import sys; sys.modules['psycopg'] = sys.modules['psycopg2'] = None"
    seen = run(
        "connection.cursor().execute('SELECT 1')\nprint(connection.vendor, connection.display_name)", first=blocked
    )
    assert seen == "postgresql Interlock\n"


@pytest.mark.parametrize(
    ("database", "settings", "message"),
    [
        ("{}", "{}", "DATABASES['default'] has no NAME. Set the address of the database"),
        ("{'NAME': 'memory:'}", "{'USE_TZ': False, 'TIME_ZONE': 'Europe/Berlin'}", "a lane computes in UTC"),
        ("{'NAME': 'memory:', 'TIME_ZONE': 'Europe/Berlin'}", "{}", "a lane computes in UTC"),
    ],
)
def test_settings_that_a_lane_cannot_keep_are_refused(database: str, settings: str, message: str) -> None:
    assert message in run("connection.cursor()", database=database, settings=settings)


def test_a_statement_that_a_lane_does_not_have_says_what_and_why() -> None:
    seen = run("connection.cursor().execute('CREATE EXTENSION hstore')")
    assert "django.db.utils.NotSupportedError: CREATE EXTENSION" in seen
    assert "fix:" in seen


def test_there_is_no_shell() -> None:
    assert "a lane has no shell for SQL. Use `manage.py shell`" in run("call_command('dbshell')")


def test_a_deferred_foreign_key_is_checked_when_asked() -> None:
    seen = run("""
cursor = connection.cursor()
cursor.execute("CREATE TABLE a (id integer PRIMARY KEY, b integer REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
with transaction.atomic():
    cursor.execute("INSERT INTO a VALUES (1, 2)")
    try:
        connection.check_constraints()
    except Exception as error:
        print(type(error).__name__)
    cursor.execute("INSERT INTO a VALUES (2, NULL)")
    connection.check_constraints()
print("committed")
""")
    assert seen == "IntegrityError\ncommitted\n"


def test_a_lane_that_has_stopped_is_opened_again_by_the_next_request(tmp_path: Path) -> None:
    program = """
from interlock.django.base import _kept
from interlock.errors import OutcomeUnknown
connection.cursor().execute("CREATE TABLE a (id integer)")
connection.connection.database._engine.lane._die(OutcomeUnknown("the disk has failed."), ())
connection.close()
connection.cursor().execute("INSERT INTO a VALUES (1)")
connection.close()
print([kept.database.is_lost for kept in _kept.values()])
"""
    assert run(program, database=f"{{'NAME': 'lanes://{tmp_path}/app'}}") == "[False]\n"
