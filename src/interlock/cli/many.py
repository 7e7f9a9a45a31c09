"""One command for many ids: each has its own answer, and one that fails does not keep the others from theirs.

What went wrong with an id is told at once, on stderr. The command ends with the code of the first failure, so that a
script that gives one id and a script that gives a thousand read the same numbers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from interlock.cli.exits import Exit, exit_for
from interlock.cli.given import ids_of
from interlock.cli.output import show_error
from interlock.cli.progress import counting
from interlock.errors import InterlockError, InternalError, InvalidPayload

ResultT = TypeVar("ResultT")


class Failures:
    """What went wrong with some of the ids."""

    def __init__(self) -> None:
        self._code = Exit.OK

    def add(self, error: InterlockError) -> None:
        """Tell it. Raises what is a bug of ours, which asks for its traceback."""
        if isinstance(error, InternalError):
            raise error
        show_error(error)
        # What does not fit was given on the command line.
        self._code = self._code or (Exit.USAGE if isinstance(error, InvalidPayload) else exit_for(error))

    @property
    def code(self) -> Exit:
        """How the command ends."""
        return self._code

    async def each(self, ids: Sequence[str], act: Callable[[str], Awaitable[ResultT]]) -> list[ResultT]:
        """Do it for all of them at once; returns the results of those that went well, in order."""
        results: list[ResultT] = []
        for answer in await asyncio.gather(*map(act, ids), return_exceptions=True):
            if isinstance(answer, InterlockError):
                self.add(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                results.append(answer)
        return results

    async def all(self, given: str, act: Callable[[str], Awaitable[ResultT]]) -> list[ResultT]:
        """Do it for the id, or with `-` for those on stdin, some at a time; progress is shown where somebody looks."""
        results: list[ResultT] = []
        with counting("workflows" if given == "-" else "") as count:
            for ids in ids_of(given):
                results += await self.each(ids, act)
                count(len(ids))
        return results
