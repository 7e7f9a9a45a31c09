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


@pytest.mark.campaign
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


@pytest.mark.slow
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


@pytest.mark.slow
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


MODEL = """
from django.core.checks import run_checks
from django.db import models

class Host(models.Model):
    ip = models.GenericIPAddressField(null=True, unique=True)
    hits = models.PositiveIntegerField()
    twice = models.GeneratedField(
        expression=models.F("hits") * 2, output_field=models.BigIntegerField(), db_persist=True
    )

    class Meta:
        app_label = "shop"

with connection.schema_editor() as editor:
    editor.create_model(Host)
"""


@pytest.mark.slow
def test_an_address_is_text_and_a_check_says_what_to_do_after_a_move() -> None:
    seen = run(f"""{MODEL}
for number, ip in enumerate(["10.0.0.1", "2001:0db8::0001", None]):
    Host.objects.create(ip=ip, hits=number)
print([host.ip for host in Host.objects.order_by("id")], Host.objects.get(ip="2001:db8:0::1").hits)
print(Host.objects.filter(ip__startswith="10.").count(), Host.objects.filter(ip__iexact="2001:DB8::1").count())
print([(found.id, found.hint) for found in Host._meta.get_field("ip").check(databases=["default"])])
print(Host._meta.get_field("hits").check(databases=["default"]))
""")
    fix = 'ALTER TABLE "shop_host" ALTER COLUMN "ip" TYPE inet USING "ip"::inet.'
    assert seen.splitlines() == [
        "['10.0.0.1', '2001:db8::1', None] 1",
        "1 1",
        f"[('interlock.W001', 'After a move to PostgreSQL run {fix}')]",
        "[]",
    ]


@pytest.mark.slow
def test_a_positive_number_becomes_a_wider_one_and_may_be_null() -> None:
    seen = run("""
from django.db import models

class Host(models.Model):
    hits = models.PositiveIntegerField()

    class Meta:
        app_label = "shop"

with connection.schema_editor() as editor:
    editor.create_model(Host)
wide = models.PositiveBigIntegerField(null=True)
wide.set_attributes_from_name("hits")
wide.model = Host
with connection.schema_editor() as editor:
    editor.alter_field(Host, Host._meta.get_field("hits"), wide)
cursor = connection.cursor()
cursor.execute("INSERT INTO shop_host (hits) VALUES (3000000000), (NULL)")
try:
    cursor.execute("INSERT INTO shop_host (hits) VALUES (-1)")
except Exception as error:
    print(type(error).__name__)
""")
    assert seen == "IntegrityError\n"


@pytest.mark.slow
def test_a_generated_field_is_computed_by_the_database() -> None:
    seen = run(f"""{MODEL}
host = Host.objects.create(hits=21)
host.refresh_from_db()
print(host.twice, Host.objects.filter(twice__gt=41).count())
""")
    assert seen == "42 1\n"


def test_what_django_asks_of_a_schema_and_of_names_is_answered_as_by_postgresql() -> None:
    seen = run(f"""{MODEL}
from django.db import DataError, models
from django.db.models import F
from django.db.models.functions import Abs, Cast

for expression in (Abs("hits").desc(), Cast("hits", models.CharField())):
    with connection.schema_editor() as editor:
        editor.add_index(Host, models.Index(expression, name="host_" + type(expression).__name__.lower()))
cursor = connection.cursor()
cursor.execute("CREATE VIEW shop_busy AS SELECT id, hits FROM shop_host WHERE hits > 5")
found = connection.introspection.get_constraints(cursor, "shop_host")
print([(found[name]["columns"], found[name]["orders"]) for name in ("host_cast", "host_orderby")])
print(connection.introspection.table_names(cursor, include_views=True))
print([(each.name, each.type_code) for each in connection.introspection.get_table_description(cursor, "shop_busy")])
try:
    list(Host.objects.annotate(half=1 / (F("hits") - F("hits"))))
    list(Host.objects.extra(where=["1 / 0 = 1"]))
except DataError as error:
    print(str(error).partition(".")[0])
try:
    Host.objects.all().query.get_compiler("default").quote_name_unless_alias("a$")
except ValueError as error:
    print(error)
""")
    assert seen.splitlines() == [
        "[([], ['ASC']), ([], ['DESC'])]",
        "['shop_busy', 'shop_host']",
        "[('id', 23), ('hits', 23)]",
        "division by zero",
        "Dollar signs are not permitted in column aliases on PostgreSQL.",
    ]
