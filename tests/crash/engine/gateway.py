"""The world outside, which no kill of ours can touch: a gateway that writes down every call, and misbehaves.

Its books are one file that is only appended to, a line per call and a line per deed, each written in one piece. It
keeps what it has promised: the same idempotency key is the same deed. Beyond that nothing can be relied upon: it fails
before or after it has done what was asked, hangs, declines.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from interlock.chaos.shop import ASKED, UNDOES, LoggedCall
from interlock.chaos.worker_messages import DECLINED, DONE
from interlock.clock import Chance
from interlock.core.values import StepContext
from interlock.errors import NonRetryable
from interlock.faultpoints import reach

OVERLAPS = "overlaps"
DECLINABLE = {"charge", "reserve"}

POINTS = ("gateway.asked", "gateway.done")
"""An attempt has begun and nothing has happened; it has happened, and its report is not written."""

ANSWERED, FAILED, LOST, HUNG_AFTER, HUNG_BEFORE = 0.72, 0.80, 0.88, 0.91, 0.93
"""The share of calls up to which they go so; what is left is declined, by those that can be."""


class Line(NamedTuple):
    """One line of the books."""

    what: str
    deed: str
    workflow: str
    visit: int
    key: str
    undoes: str

    @staticmethod
    def of(text: str) -> "Line":
        what, deed, workflow, visit, key, undoes = text.split(" ")
        return Line(what, deed, workflow, int(visit), key, undoes)


class Gateway:
    """The gateway as one life of the process sees it: everything earlier lives have asked for is in its books."""

    def __init__(self, path: Path, chance: Chance, *, kind: bool = False) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._chance = chance
        self._kind = kind
        """It always does what it is asked, and answers."""
        self._answers = {line.key: line.what for line in lines_of(path) if line.what in {DONE, DECLINED}}
        self._under_way: set[str] = set()

    async def ask(self, deed: str, ctx: StepContext) -> None:
        """Do the deed once for this key, or not, and say so, or not."""
        self._write(OVERLAPS if ctx.key in self._under_way else ASKED, deed, ctx)
        self._under_way.add(ctx.key)
        try:
            await self._asked(deed, ctx)
        finally:
            self._under_way.discard(ctx.key)

    async def _asked(self, deed: str, ctx: StepContext) -> None:
        reach("gateway.asked")
        await asyncio.sleep(0)
        luck = 0.0 if self._kind else self._chance.fraction()
        if ANSWERED <= luck < FAILED:
            raise ConnectionError("nobody answers")
        if HUNG_AFTER <= luck < HUNG_BEFORE:
            await asyncio.Event().wait()
        if ctx.key not in self._answers:
            self._answers[ctx.key] = DECLINED if deed in DECLINABLE and luck >= HUNG_BEFORE else DONE
            self._write(self._answers[ctx.key], deed, ctx)
            reach("gateway.done")
        if self._answers[ctx.key] == DECLINED:
            raise NonRetryable("declined")
        if FAILED <= luck < LOST:
            raise ConnectionError("done, and the answer is lost")
        if LOST <= luck < HUNG_AFTER:
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def _write(self, what: str, deed: str, ctx: StepContext) -> None:
        line = f"{what} {deed} {ctx.workflow} {ctx.visit} {ctx.key} {ctx.undoes or '-'}\n"
        os.write(self._file, line.encode())


def lines_of(path: Path) -> list[Line]:
    """Everything in the books so far."""
    return [Line.of(text) for text in path.read_text().splitlines()] if path.exists() else []


class Books:
    """The books as an auditor reads them: those of this gateway, or those of a gateway of chaos."""

    def __init__(self, lines: Sequence[Line | LoggedCall]) -> None:
        self._by_workflow: dict[str, list[Line | LoggedCall]] = defaultdict(list)
        self.keys: dict[tuple[str, int, str], set[str]] = defaultdict(set)
        """The idempotency keys that were ever used for a deed of a visit of a workflow."""
        self.done: dict[tuple[str, str], set[str]] = defaultdict(set)
        """The keys under which a deed was done for a workflow, and not taken back."""
        self.overlaps = [line for line in lines if line.what == OVERLAPS]
        """Calls that were made while another one for the same run was under way, in the same life."""
        self.taken_back = 0
        for line in lines:
            self._by_workflow[line.workflow].append(line)
            self.keys[line.workflow, line.visit, f"{line.deed} {line.undoes or '-'}"].add(line.key)
            if line.what != DONE:
                continue
            if line.deed not in UNDOES:
                self.done[line.workflow, line.deed].add(line.key)
            elif line.undoes in self.done[line.workflow, UNDOES[line.deed]]:
                # What is taken back before it was done is not taken back: a late deed after it stays.
                self.done[line.workflow, UNDOES[line.deed]].remove(line.undoes)
                self.taken_back += 1

    def of(self, workflow: str) -> list[Line | LoggedCall]:
        """Everything about one workflow."""
        return self._by_workflow[workflow]
