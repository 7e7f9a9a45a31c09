"""Break the core on purpose: every mutant must be noticed by a test. Run it as `python -m tests.mutation [NAME...]`.

For each mutant the sources are copied to a temporary folder, one text is replaced, and a few fast tests run against the
copy in a process of their own, two at a time. A mutant that no test notices has survived; one whose old text is gone,
or that breaks the tests before they run, is stale. Both are failures. The unchanged copy goes first: it must pass.
"""

# ruff: noqa: T201 - a table and a closing line are what it is for.

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.alerting import ALERTING
from tests.mutation.breaking import BREAKING
from tests.mutation.child import NOTICED, PASSED, WRONG_COPY
from tests.mutation.compensating import COMPENSATING
from tests.mutation.coordinating import COORDINATING
from tests.mutation.counting import COUNTING
from tests.mutation.deciding import DECIDING
from tests.mutation.guarding import GUARDING
from tests.mutation.mutant import Mutant, applied
from tests.mutation.undoing import UNDOING

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PROCESSES = 2
UNCHANGED_S_MAX = 900.0
"""The unchanged copy runs everything, and has to pass, however slow the machine is."""

MUTANT_S_MIN = 60.0
UNCHANGED_TIMES = 4
"""A mutant runs a part of that: one that takes so many times as long is a loop without end."""

MUTANTS_MIN = 40


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    verdict: str
    seconds: float
    output: str = ""


def run_tests(copy: Path, tests: tuple[str, ...], limit_s: float) -> tuple[int, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(copy), str(ROOT)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HYPOTHESIS_PROFILE": "ci",
    }
    command = [sys.executable, "-m", "tests.mutation.child", str(copy), *tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return NOTICED, "timed out"  # A loop without end is noticed by everybody.
    return done.returncode, done.stdout + done.stderr


def judge(mutant: Mutant, folder: Path, limit_s: float) -> Outcome:
    started = time.perf_counter()
    copy = folder / mutant.name.replace(" ", "-")
    shutil.copytree(SOURCES, copy)
    target = copy / mutant.file
    try:
        target.write_text(applied(target.read_text(encoding="utf-8"), mutant), encoding="utf-8")
    except (OSError, ValueError) as error:
        return Outcome(mutant, "stale", time.perf_counter() - started, str(error))
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*"):
        compiled.unlink()
    code, output = run_tests(copy, mutant.tests, limit_s)
    verdict = {PASSED: "SURVIVED", NOTICED: "killed", WRONG_COPY: "wrong copy"}.get(code, "stale")
    shutil.rmtree(copy)
    if sys.pycache_prefix is not None:  # What Python has compiled of the copy is there, and will not be used again.
        shutil.rmtree(Path(sys.pycache_prefix) / copy.relative_to(copy.anchor), ignore_errors=True)
    return Outcome(mutant, verdict, time.perf_counter() - started, output)


def unchanged_passes(mutants: list[Mutant], folder: Path) -> bool:
    copy = folder / "unchanged"
    shutil.copytree(SOURCES, copy)
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    code, output = run_tests(copy, tests, UNCHANGED_S_MAX)
    if code != PASSED:
        print(f"The unchanged copy does not pass (exit {code}):\n{output}")
    return code == PASSED


def show(outcomes: list[Outcome]) -> None:
    width = max(len(outcome.mutant.name) for outcome in outcomes)
    for outcome in outcomes:
        mutant = outcome.mutant
        print(f"{outcome.verdict:<10} {outcome.seconds:5.1f} s  {mutant.name:<{width}}  {mutant.file}")
        if outcome.verdict != "killed":
            print(f"           it must be caught: {mutant.why}\n{outcome.output[-1_500:]}")


def main() -> int:
    started = time.perf_counter()
    every = [*DECIDING, *UNDOING, *COMPENSATING, *GUARDING, *BREAKING, *COUNTING, *COORDINATING, *ALERTING]
    chosen = [mutant for mutant in every if not sys.argv[1:] or mutant.name in sys.argv[1:]]
    assert sys.argv[1:] or len(chosen) >= MUTANTS_MIN
    assert len({mutant.name for mutant in chosen}) == len(chosen) > 0
    with tempfile.TemporaryDirectory(prefix="interlock-mutants-") as name:
        folder = Path(name)
        if not unchanged_passes(chosen, folder):
            return 1
        limit_s = max(MUTANT_S_MIN, UNCHANGED_TIMES * (time.perf_counter() - started))
        with ThreadPoolExecutor(PROCESSES) as pool:
            outcomes = list(pool.map(lambda mutant: judge(mutant, folder, limit_s), chosen))
    show(outcomes)
    killed = sum(outcome.verdict == "killed" for outcome in outcomes)
    print(f"mutants: {killed} of {len(outcomes)} killed in {time.perf_counter() - started:.0f} s")
    return 0 if killed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
