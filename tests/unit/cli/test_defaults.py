"""Settings of the program: a flag wins over the environment, and that over `interlock.toml`."""

import os
from pathlib import Path

import pytest

from interlock.cli import serve as serving
from interlock.cli.serve import settle_admission
from interlock.engine.engine_settings import Admission
from interlock.errors import BadUsage
from interlock.server.lifecycle import admission_from
from interlock.settings import configured_program
from tests.unit.cli import shop
from tests.unit.cli.running import Interlock

CHOSEN = ("INTERLOCK_HOME", "INTERLOCK_SERVER", "INTERLOCK_RATE_PER_S", "INTERLOCK_BURST", "INTERLOCK_IN_FLIGHT_MAX",
          "INTERLOCK_PORT", "INTERLOCK_HOST", "INTERLOCK_CONFIG", "INTERLOCK_REDIS")  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CHOSEN:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What `interlock serve` would have served with."""
    seen: list[dict[str, object]] = []

    async def nothing() -> None:
        pass

    def run(_app: object, home: str, **given: object) -> object:
        seen.append({"home": home, "admission": admission_from(), **given})
        return nothing()

    monkeypatch.setattr(serving, "run", run)
    return seen


def write(folder: Path, text: str) -> None:
    (folder / "interlock.toml").write_text(text, encoding="utf-8")


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    interlock: Interlock, folder: Path, served: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 'home = "lanes://./data"\nport = 1001\nrate_per_s = 11\nin_flight_max = 5\n')
    assert interlock("serve", shop.NAME).code == 0
    assert (served[0]["home"], served[0]["port"]) == (f"lanes://{folder}/data", 1001)
    assert served[0]["admission"] == Admission(rate_per_s=11, burst=16.5, in_flight_max=5)
    monkeypatch.setenv("INTERLOCK_RATE_PER_S", "22")
    monkeypatch.setenv("INTERLOCK_PORT", "1002")
    assert interlock("serve", shop.NAME).code == 0
    assert (served[1]["port"], served[1]["admission"]) == (
        1002,
        Admission(rate_per_s=22, burst=33, in_flight_max=5),
    )
    done = interlock("serve", shop.NAME, "--rate-per-s", "33", "--burst", "34", "--port", "1003", "--home", "memory:")
    assert done.code == 0
    assert (served[2]["home"], served[2]["port"]) == ("memory:", 1003)
    assert served[2]["admission"] == Admission(rate_per_s=33, burst=34, in_flight_max=5)


@pytest.mark.parametrize("words", [("--rate-per-s", "0"), ("--rate-per-s", "nan"), ("--burst", "-1"), ("--burst", "x")])
def test_what_cannot_be_taken_in_is_refused(
    interlock: Interlock, served: list[dict[str, object]], words: tuple[str, ...]
) -> None:
    done = interlock("serve", shop.NAME, "--home", "memory:", *words)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert not served


def test_what_is_not_chosen_is_not_settled() -> None:
    environment: dict[str, str] = {}
    settle_admission(environment, rate_per_s=None, burst=None, in_flight_max=None)
    assert environment == {}
    settle_admission(environment, rate_per_s=5.0, burst=None, in_flight_max=7)
    assert environment == {"INTERLOCK_RATE_PER_S": "5.0", "INTERLOCK_IN_FLIGHT_MAX": "7"}


def test_the_home_of_the_file_is_that_of_every_command(interlock: Interlock, folder: Path) -> None:
    write(folder, 'home = "lanes://./data"\n')
    assert interlock("start", shop.NAME, "o-1").code == 0
    assert interlock("show", "o-1", "-o", "ids").out == "o-1\n"
    assert interlock("dead-letters", "list", "-o", "ids").code == 0
    assert (folder / "data").is_dir()


def test_a_server_on_the_line_wins_over_the_home_of_the_file(interlock: Interlock, folder: Path) -> None:
    write(folder, 'home = "lanes://./data"\n')
    assert interlock("show", "o-1", "--server", "http://127.0.0.1:1").code == 5
    write(folder, 'home = "lanes://./data"\nserver = "http://127.0.0.1:1"\n')
    assert interlock("show", "o-1").code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port = true\n", "a whole number"),
        ('port = "8080"\n', "a whole number"),
        ("home = 5\n", "a text"),
        ("hom = 5\n", "Did you mean home?"),
        ("group_commit_window = 0.1\n", "outside a section"),
        ("port = \n", "cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_told(interlock: Interlock, folder: Path, text: str, told: str) -> None:
    write(folder, text)
    done = interlock("find", "order")
    assert done.code == 2
    assert told in done.err
    assert interlock("check", shop.NAME).code == 0, "a command without such settings does not read the file"


def test_databases_know_the_settings_of_the_program(folder: Path) -> None:
    write(folder, 'home = "lanes:///var/shop"\nrate_per_s = 5\n[defaults]\ngroup_commit_window = 0.1\n')
    assert configured_program(environment={}, folder=folder) == {"home": "lanes:///var/shop", "rate_per_s": 5}
    with pytest.raises(BadUsage):
        configured_program(environment={"INTERLOCK_CONFIG": "none.toml"}, folder=folder)


def test_states_and_events_complete(interlock: Interlock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell asks: by the environment."""

    def completed(*words: str) -> list[str]:
        monkeypatch.setenv("_INTERLOCK_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("interlock", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return interlock().out.split()

    assert completed("find", shop.NAME, "--state", "c") == ["charging", "cancelled"]
    assert completed("send", shop.NAME, "o-1", "C") == ["CHARGED", "CANCEL"]
    assert completed("find", "no.such:machine", "--state", "c") == []
    assert completed("find", "order", "--state", "c") == []
    assert completed("diagram", shop.NAME, "--format", "s") == ["svg"]
    assert "breakers" in completed("b")
    assert completed("dead-letters", "l") == ["list"]


def test_the_redis_of_a_server_is_given_by_flag_environment_or_file(
    interlock: Interlock, folder: Path, served: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C7, C10: every engine of the process reads it; a mistake is told without its password."""
    write(folder, 'home = "lanes://./data"\nredis = "redis://file/0"\n')
    assert interlock("serve", shop.NAME).code == 0
    assert os.environ["INTERLOCK_REDIS"] == "redis://file/0"
    monkeypatch.setenv("INTERLOCK_REDIS", "redis://environment/0")
    assert interlock("serve", shop.NAME).code == 0
    assert os.environ["INTERLOCK_REDIS"] == "redis://environment/0"
    assert interlock("serve", shop.NAME, "--redis", "unix:///run/redis.sock").code == 0
    assert os.environ["INTERLOCK_REDIS"] == "unix:///run/redis.sock"
    assert interlock("serve", shop.NAME, "--redis", "").code == 0
    assert os.environ["INTERLOCK_REDIS"] == ""
    refused = interlock("worker", shop.NAME, "--redis", "rdis://me:secret@cache/0")
    assert (refused.code, len(served)) == (2, 4)
    assert "rdis://***@cache/0" in refused.err
    assert "secret" not in refused.err + refused.out
