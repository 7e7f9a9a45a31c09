"""A Django application runs on a lane as on PostgreSQL, and moves from one to the other by one setting."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.postgres.fixtures import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

ROOT = Path(__file__).parents[3]


def run(url: str, *arguments: str) -> str:
    """Run a module of Python with the shop's database at that address; return its output."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    settings = {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.integration.django.settings", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *arguments],
        env=os.environ | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shop(url: str, command: str) -> dict[str, object]:
    """Run a command of the shop; return what it has seen."""
    seen: dict[str, object] = json.loads(run(url, "tests.integration.django", command))
    return seen


@pytest.fixture
def lane_url(tmp_path: Path) -> str:
    """The address of a lane without tables."""
    return f"lanes://{tmp_path}/app"


@pytest.mark.slow
def test_the_application_sees_the_same_on_a_lane_and_on_postgresql(lane_url: str, postgres_url: str) -> None:
    run(postgres_url, "tests.integration.django", "schema")
    for url in (lane_url, postgres_url):
        assert "Applying shop.0004_constraints... OK" in run(url, "django", "migrate")
    for command in ("use", "admin", "state", "commands"):
        assert shop(lane_url, command) == shop(postgres_url, command), command


@pytest.mark.slow
def test_the_application_moves_with_its_rows(lane_url: str, postgres_url: str) -> None:
    _ = run(lane_url, "django", "migrate")
    _ = shop(lane_url, "use")
    before = shop(lane_url, "state")
    _ = run(lane_url, "interlock", "route", lane_url, "--to", postgres_url)
    assert shop(postgres_url, "state") == before
    assert "No migrations to apply" in run(postgres_url, "django", "migrate")
    assert "No changes detected" in run(postgres_url, "django", "makemigrations", "--check", "--dry-run")
    assert shop(postgres_url, "admin")["deleted"] == [200, 302]
    assert shop(postgres_url, "commands")["same"] is True


@pytest.mark.slow
def test_migrations_can_be_undone_and_done_again(lane_url: str) -> None:
    _ = run(lane_url, "django", "migrate")
    undone = run(lane_url, "django", "migrate", "shop", "zero")
    assert "Unapplying shop.0001_tables... OK" in undone
    assert "Applying shop.0004_constraints... OK" in run(lane_url, "django", "migrate")


def test_tests_of_an_application_run_on_a_lane_of_their_own(lane_url: str) -> None:
    _ = run(lane_url, "django", "test", "tests.integration.django.shop.tests")
    assert not Path(lane_url.removeprefix("lanes://")).parent.joinpath("app.lane").exists()
