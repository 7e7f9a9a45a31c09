"""The proof of locks: many want one lease, in several processes, and whoever has it is frozen with it and woken.

Mutual exclusion is proved where it counts, at the protected resource: it refuses whoever comes with a lower token than
it has seen, and what it has taken was therefore written by one holder after the other. The holder that was frozen past
its lease must be among those it refused. The wall clock of one process is an hour ahead, which must change nothing.

What it does not show is that nobody ever *believes* to have a lease that somebody else has: no lock over a network can
keep a process from being frozen between looking and writing. That is what tokens are for.
"""

import os
import signal
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from interlock.chaos.contender import SECONDS_MAX, Moment, Plan, Resource
from interlock.errors import BadUsage, UnavailableError
from interlock.testing.faults.processes import Process, Processes

CONTENDERS: Final = 50
CONTENDERS_MAX: Final = 500
PROCESSES: Final = 5
PROCESSES_MAX: Final = 20
SECONDS: Final = 6.0
LEASE_S: Final = 1.5
WRONG_BY_S: Final = 3_600.0

FROZEN, WRONG = 0, 1
"""The processes of which one is frozen, and one has a wrong clock."""

TURNS_MEANWHILE: Final = 3
"""So often another process has had the lease when the frozen one is woken."""

WAKING_S: Final = 1.0
WAKINGS_MAX: Final = 20

WORKLOAD: Final = "interlock.chaos.contender:contend"
FILE: Final = "treasure.sqlite"
ENOUGH: Final = "enough"

Attempt = tuple[int, int, int, Moment, bool]
"""Process, contender, token, moment, and whether it was taken."""


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """How often each contender had the lease. Who finds it held asks again by chance: nobody has a turn by right."""

    least: int
    median: float
    most: int
    busiest_process_share: float
    """Of all turns; with equal luck each process has one part in their number."""


class Locks(msgspec.Struct, frozen=True, kw_only=True):
    """What happened."""

    contenders: int
    processes: int
    seconds: float
    acquisitions: int
    violations: int
    """Writes that were taken after one with a higher token, and tokens that two had. Must be 0."""
    refused_late_writes: int
    """Writes of former holders that the resource has refused; that of the frozen one must be among them."""
    holder_frozen: bool
    """Whether others have had the lease while its former holder was frozen with it: otherwise nothing was shown."""
    frozen_write_refused: bool
    holder_knew: bool
    """Whether the holder, woken, was told by its own lease that it is lost."""
    wrong_clock_by_s: float
    wrong_clock_acquisitions: int
    """Of the process with the wrong clock, which has its share like everybody."""
    fairness: Fairness


def run_locks(
    redis_url: str,
    folder: Path,
    *,
    contenders: int = CONTENDERS,
    processes: int = PROCESSES,
    seconds: float = SECONDS,
    lease_s: float = LEASE_S,
    fenced: bool = True,
) -> Locks:
    """Let them contend for so many seconds at least, in processes of their own, and audit what the resource has seen.

    `fenced=False` is sabotage: a resource that checks no token, which has to show as a violation.
    """
    _check_bounds(contenders, processes, seconds, lease_s)
    folder.mkdir(parents=True, exist_ok=True)
    with Resource(folder / FILE) as resource, Processes() as starting:
        resource.make()
        started: list[Process] = []
        for number in range(processes):
            plan = Plan(
                redis=redis_url,
                resource=str(folder / FILE),
                enough=str(folder / ENOUGH),
                process=number,
                contenders=contenders // processes + (number < contenders % processes),
                seconds=seconds,
                lease_s=lease_s,
                fenced=fenced,
                freezes=number == FROZEN,
                wrong_by_s=WRONG_BY_S if number == WRONG else 0.0,
            )
            started.append(starting.start(WORKLOAD, msgspec.json.encode(plan).decode()))
        frozen, meanwhile, knew = _freeze_and_wake(started[FROZEN], started[WRONG])
        (folder / ENOUGH).touch()
        _end(started)
        attempts = resource.attempts()
    entered = [(process, contender) for process, contender, _, moment, taken in attempts if taken and moment == "enter"]
    by_process = Counter(process for process, _ in entered)
    return Locks(
        contenders=contenders,
        processes=processes,
        seconds=seconds,
        acquisitions=len(entered),
        violations=violations(attempts),
        refused_late_writes=sum(not taken for *_, taken in attempts),
        holder_frozen=meanwhile > 0,
        frozen_write_refused=any(token == frozen and not taken for _, _, token, _, taken in attempts),
        holder_knew=knew,
        wrong_clock_by_s=WRONG_BY_S,
        wrong_clock_acquisitions=by_process[WRONG],
        fairness=fairness(Counter(entered), contenders),
    )


def violations(attempts: Sequence[Attempt]) -> int:
    """How often what was taken contradicts that there is one holder at a time."""
    highest = late = 0
    holders: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for process, contender, token, _, taken in attempts:
        if taken:
            late += token < highest
            highest = max(highest, token)
            holders[token].add((process, contender))
    return late + sum(len(each) - 1 for each in holders.values())


def fairness(turns: Counter[tuple[int, int]], contenders: int) -> Fairness:
    """How evenly the turns fell; whoever had none counts as well."""
    counts = [*turns.values(), *[0] * (contenders - len(turns))]
    by_process: Counter[int] = Counter()
    for (process, _), count in turns.items():
        by_process[process] += count
    share = max(by_process.values(), default=0) / max(1, turns.total())
    return Fairness(least=min(counts), median=statistics.median(counts), most=max(counts), busiest_process_share=share)


def _freeze_and_wake(holding: Process, other: Process) -> tuple[int, int, bool]:
    """The token with which it was frozen, how often another had the lease meanwhile, and whether it noticed."""
    token = next((int(line.split()[1]) for line in holding.lines() if line.startswith("frozen")), 0)
    if not token:
        return 0, 0, False  # It never had the lease, and has ended.
    meanwhile = 0
    for line in other.lines():
        # What is said before anybody could have it after the frozen one has lower tokens.
        meanwhile += int(line.split()[1]) > token
        if meanwhile == TURNS_MEANWHILE:
            break
    for _ in range(WAKINGS_MAX):
        os.kill(holding.number, signal.SIGCONT)
        for line in holding.lines_for(WAKING_S):
            if line.startswith("woken"):
                return token, meanwhile, line.endswith("1")
    raise UnavailableError("the process that was frozen does not wake up.", why="SIGCONT had no effect on it.")


def _end(started: Sequence[Process]) -> None:
    for process in started:
        try:
            process.end()
        except RuntimeError as error:
            raise UnavailableError(
                f"a process of contenders has failed: {error}",
                why="Contenders go on when Redis is slow or away; this was something else.",
                fix="Look at the error.",
            ) from error


def _check_bounds(contenders: int, processes: int, seconds: float, lease_s: float) -> None:
    for what, value, least, most in (
        ("processes", processes, 2, PROCESSES_MAX),
        ("contenders", contenders, processes, CONTENDERS_MAX),
        ("seconds", seconds, 2 * lease_s, SECONDS_MAX),
    ):
        if not least <= value <= most:
            raise BadUsage(
                f"the proof of locks cannot have {value:g} {what}; {least:g} to {most:g}.",
                why="It is bounded in time and number, and the holder has to be frozen for longer than its lease.",
                fix="Choose a number from the range that is named.",
            )
