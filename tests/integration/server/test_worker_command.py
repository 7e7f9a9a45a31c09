"""`interlock worker` on PostgreSQL: one of many, beside commands and other workers."""

import os
import signal
from pathlib import Path

import pytest

from tests.unit.cli.lasting import lasting
from tests.unit.cli.running import run_program
from tests.unit.cli.slow_shop import FOLDER, NAME

ROOT = Path(__file__).resolve().parents[3]
MACHINE = "tests.unit.cli.slow_shop:job"


@pytest.mark.slow
def test_two_workers_share_a_home_and_a_command_starts_work_beside_them(postgres_url: str, tmp_path: Path) -> None:
    """B13: neither owns it, one of them runs the step, and both end in order."""
    for name in ("running", "go"):
        os.mkfifo(tmp_path / name)
    settings = {FOLDER: str(tmp_path), "INTERLOCK_HOME": postgres_url, "INTERLOCK_DRAIN_S": "300"}
    with (
        lasting("worker", NAME, folder=ROOT, **settings) as first,
        lasting("worker", NAME, folder=ROOT, **settings) as second,
    ):
        assert all("Running the steps of job" in each.first for each in (first, second))
        assert run_program("start", MACHINE, "j-1", folder=ROOT, INTERLOCK_HOME=postgres_url).code == 0
        assert (tmp_path / "running").read_text(), "one of them has begun"
        for each in (first, second):
            each.tell(signal.SIGTERM)
            assert "Stopping" in each.line()
        (tmp_path / "go").write_text("go")
        for each in (first, second):
            assert each.ended() == (0, "Stopped in order: nothing is lost, and the home is free.\n")
    found = run_program("find", "job", "--state", "done", "-o", "ids", folder=ROOT, INTERLOCK_HOME=postgres_url)
    assert found.out == "j-1\n"
