"""Commands over many ids: each has its own result, and a failure does not stop the others.

A failure is printed immediately, on stderr. The command exits with the code of the first failure, so that scripts with
one id and with a thousand ids see the same codes.
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
    """The failures of some of the ids."""

    def __init__(self) -> None:
        self._code = Exit.OK

    def add(self, error: InterlockError) -> None:
        """Print the error and keep its exit code. Raises an internal error, which needs its traceback."""
        if isinstance(error, InternalError):
            raise error
        show_error(error)
        # What does not fit was given on the command line.
        self._code = self._code or (Exit.USAGE if isinstance(error, InvalidPayload) else exit_for(error))

    @property
    def code(self) -> Exit:
        """The exit code of the command."""
        return self._code

    async def each(self, ids: Sequence[str], act: Callable[[str], Awaitable[ResultT]]) -> list[ResultT]:
        """Call `act` for all ids concurrently; return the results of those that succeeded, in order."""
        results: list[ResultT] = []
        for answer in await asyncio.gather(*map(act, ids), return_exceptions=True):
            if isinstance(answer, InterlockError):
                self.add(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                results.append(answer)
        return results

    async def all(self, argument: str, act: Callable[[str], Awaitable[ResultT]]) -> list[ResultT]:
        """Call `act` for the id, or with `-` for the ids on stdin, in batches; show progress on a terminal."""
        results: list[ResultT] = []
        with counting("workflows" if argument == "-" else "") as count:
            for ids in ids_of(argument):
                results += await self.each(ids, act)
                count(len(ids))
        return results
