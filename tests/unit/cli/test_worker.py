"""`interlock worker`: steps run without HTTP, and it ends in order."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from interlock.cli import serve as working
from interlock.errors import UnavailableError
from interlock.server.app_declaration import App
from tests.unit.cli.lasting import lasting
from tests.unit.cli.running import Interlock, run_program
from tests.unit.cli.slow_shop import FOLDER, NAME, job

ROOT = Path(__file__).resolve().parents[3]
MACHINE = "tests.unit.cli.slow_shop:job"
ORDER = "tests.unit.server.shop:order"


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A home with one job, a pipe on which its step says that it runs, and one on which it is let go."""
    url = f"lanes://{tmp_path}/jobs"
    assert run_program("start", MACHINE, "j-1", "--home", url, folder=ROOT).code == 0
    os.mkfifo(tmp_path / "running")
    os.mkfifo(tmp_path / "go")
    return url


def state(home: str) -> str:
    return run_program("find", "job", "--state", "done", "-o", "ids", "--home", home, folder=ROOT).out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_running_step_is_given_its_time(home: str, tmp_path: Path, number: int) -> None:
    settings = {FOLDER: str(tmp_path), "INTERLOCK_DRAIN_S": "300"}
    with lasting("worker", NAME, "--home", home, folder=ROOT, **settings) as running:
        assert "Running the steps of job" in running.first
        assert (tmp_path / "running").read_text()
        running.tell(number)
        assert "Stopping; running steps are given their time." in running.line()
        (tmp_path / "go").write_text("go")
        assert running.ended() == (0, "Stopped in order: nothing is lost, and the home is free.\n")
    assert state(home) == "j-1\n"


@pytest.mark.slow
def test_a_second_signal_does_not_wait(home: str, tmp_path: Path) -> None:
    """The attempt is cancelled and does not count; the home is free afterwards."""
    (tmp_path / "endless").touch()
    settings = {FOLDER: str(tmp_path), "INTERLOCK_DRAIN_S": "300"}
    with lasting("worker", NAME, "--home", home, folder=ROOT, **settings) as running:
        assert (tmp_path / "running").read_text()
        running.tell(signal.SIGTERM)
        assert "Once more ends them now" in running.line()
        code, said = running.stop(signal.SIGTERM)
    [cancelled, last] = said.splitlines()
    assert (code, last) == (0, "Stopped in order: nothing is lost, and the home is free.")
    assert re.fullmatch(r"[\d-]+ [\d:,]+ INFO +step work of j-1, attempt 1: \w+ \(CancelledError\)", cancelled)
    assert state(home) == ""
    shown = run_program("doctor", f"{home}/workflows", folder=ROOT)
    assert " owner      none" in shown.out


@pytest.mark.slow
def test_a_worker_owns_the_home(home: str, tmp_path: Path) -> None:
    (tmp_path / "endless").touch()
    with lasting("worker", NAME, "--home", home, folder=ROOT, **{FOLDER: str(tmp_path)}) as running:
        assert "Running" in running.first
        second = run_program("worker", NAME, "--home", home, folder=ROOT)
        assert second.code == 5
        assert f"process {running.process.pid}" in second.err


def test_an_engine_that_cannot_go_on_ends_the_worker(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "LOOK_S", 0.001)

    def dead(_self: object) -> None:
        raise UnavailableError("the engine has stopped: the lease is gone.")

    monkeypatch.setattr("interlock.engine.internals.EngineParts.refuse_if_closed", dead)
    done = interlock("worker", MACHINE, "--home", f"lanes://{tmp_path}/jobs")
    assert done.code == 5
    assert "the engine has stopped" in done.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((NAME, "--home", "memory:"), 2, "in memory"),
        ((NAME, "--home", "lanes://here"), 2, "three slashes"),
        (("tests.unit.cli.slow_shop:nothing", "--home", "lanes:///x"), 4, "no attribute"),
        (("tests.unit.cli.slow_shop:FOLDER", "--home", "lanes:///x"), 2, "an App"),
    ],
)
def test_a_mistake_is_told(interlock: Interlock, words: tuple[str, ...], code: int, told: str) -> None:
    done = interlock("worker", *words)
    assert done.code == code
    assert told in done.err
    assert "Traceback" not in done.err


def test_dependencies_of_the_app_are_those_of_the_engine(
    interlock: Interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[object, ...]] = []

    async def noted(app: App, home: str, **_given: object) -> None:
        seen.append((app.machines, [each.concurrency_max for each in app.dependencies], home))

    monkeypatch.setattr(working, "work", noted)
    assert interlock("worker", NAME, "--home", f"lanes://{tmp_path}/jobs").code == 0
    assert seen == [((job,), [1], f"lanes://{tmp_path}/jobs")]


@pytest.mark.slow
def test_it_traces_what_it_runs_and_its_log_is_json_when_asked(tmp_path: Path) -> None:
    """C13: steps run in workers, so this is where most is to be seen. The trace is that of whoever comes first."""
    home = f"lanes://{tmp_path}/home"
    assert run_program("start", ORDER, "o-1", "{}", folder=ROOT, INTERLOCK_HOME=home).code == 0
    sent = run_program("send", ORDER, "o-1", "SUBMIT", '{"cents": 13}', folder=ROOT, INTERLOCK_HOME=home)
    assert sent.code == 0
    settings = {"INTERLOCK_HOME": home, "OTEL_TRACES_EXPORTER": "console"}
    with lasting("worker", ORDER, "--log-format", "json", folder=ROOT, **settings) as worker:
        lines = [worker.first]
        while "attempt 1" not in lines[-1]:
            lines.append(worker.line())
        code, rest = worker.stop()
    assert code == 0
    found = [json.loads(line) for line in (*lines, *rest.splitlines())]
    assert "Running the steps of order" in found[0]["message"]
    assert "Stopped in order" in found[-1]["message"]
    [failed] = [each for each in found if "attempt 1" in each["message"]]
    assert (failed["order_id"], failed["step"], len(failed["trace_id"])) == ("o-1", "charge", 32)
