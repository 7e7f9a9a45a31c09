"""The batch route: reads one event per line of JSON and writes a result or problem per line, in order.

Lines are decided in groups: the next group is read while the previous one is being written. Most clients send
everything before they read anything, so a separate task reads. Otherwise both sides would wait for each other.
Lines, groups and unread answers are bounded.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from enum import Enum
from typing import NamedTuple

import msgspec

from interlock.core.events import Event
from interlock.engine.path.caller_commands import check_id
from interlock.engine.views import Moved, Refused
from interlock.errors import InterlockError, InvalidPayload
from interlock.server.http_messages import NDJSON, Disconnected, Request, Streamed, decode_json, too_large
from interlock.server.problems import problem_of
from interlock.server.service import Service
from interlock.wire import BatchLine, Problem, ShownMove, encode_lines, shown_move

GROUPS_MIN = 2
"""Groups of one batch that may be under way concurrently, whatever the number of batches: one written, one read."""

GROUPS_MAX = 8
"""Groups of all batches together, as long as each batch has GROUPS_MIN. More lines than this fill a group of the engine
anyway, and groups that wait in memory slow the others down."""

_line = msgspec.json.Decoder(BatchLine)


async def send_batch(service: Service, request: Request) -> Streamed:
    """Send the events of a batch, and stream the results."""
    request.check_media()
    return Streamed(200, _Batch(service, request).answers(), NDJSON)


class _Batch:
    """One batch under way: the reading task decides lines, and the generator of answers waits for results."""

    def __init__(self, service: Service, request: Request) -> None:
        self._service = service
        self._request = request
        self._limits = request.limits
        self._lines = 0
        self._groups: deque[_Group] = deque()
        self._broken: BaseException | None = None
        """An unexpected exception of a group: it ends the batch without an answer."""
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()

    async def answers(self) -> AsyncGenerator[bytes, None]:
        """Yield the answers, group by group."""
        self._service.batches += 1
        reading = asyncio.get_running_loop().create_task(self._read())
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                if self._broken is not None:
                    raise self._broken
                over = reading.done()
                if self._waiting:
                    piece, self._waiting, self._bytes = b"".join(self._waiting), [], 0
                    self._taken.set()
                    yield piece
                if over:
                    break
            if not reading.cancelled() and (error := reading.exception()) is not None:
                raise error
        finally:
            self._service.batches -= 1
            reading.cancel()
            for group in self._groups:
                group.sending.cancel()

    async def _read(self) -> None:
        rest = b""
        try:
            async for piece in self._request.pieces():
                *lines, rest = (rest + piece).split(b"\n")
                await self._decide(lines)
                if len(rest) > self._limits.body_bytes_max:
                    raise too_large(f"line {self._lines + 1}", len(rest), self._limits.body_bytes_max)
            await self._decide([rest])
            await self._finish(0)
        except Disconnected:
            return
        except InterlockError as error:
            await self._finish(0)
            self._answer([problem_of(error)])

    async def _decide(self, lines: list[bytes]) -> None:
        lines = [line for line in lines if line.strip()]
        left = self._limits.batch_lines_max - self._lines
        allowed = lines[:left]
        for at in range(0, len(allowed), self._limits.batch_group_max):
            group = allowed[at : at + self._limits.batch_group_max]
            self._lines += len(group)
            await self._service.guard.revalidate(self._request.identity)  # A batch may take longer than a key lives.
            self._groups.append(await self._begin_group(group))
            await self._finish(max(GROUPS_MIN, GROUPS_MAX // self._service.batches) - 1)
        if len(lines) > left:
            raise _too_many(self._limits.batch_lines_max)

    async def _begin_group(self, lines: list[bytes]) -> "_Group":
        """Decode the lines and start to send their events, after those of all earlier groups."""
        service, limited = self._service, self._request.identity.limited
        answers: list[Problem | str] = []
        events: list[tuple[str, Event, str | None]] = []
        for number, line in enumerate(lines, self._lines - len(lines) + 1):
            workflow: str | None = None
            try:
                if len(line) > self._limits.body_bytes_max:  # It came in one piece with its end.
                    raise too_large(f"line {number}", len(line), self._limits.body_bytes_max)
                body = decode_json(line, _line, f"line {number}")
                workflow = body.id
                check_id(workflow, "the id of a workflow")
                if limited:
                    await service.permit(self._request, None, workflow)
                data = bytes(body.data)
                event = service.decode_unique_event(body.event, data)
                if event is None:
                    event = await service.decode_event(workflow, body.event, data)
            except InterlockError as error:
                answers.append(problem_of(error, workflow=workflow))
                continue
            events.append((workflow, event, body.key))
            answers.append(workflow)
        # Tasks begin in the order they are made in, so that no line overtakes another.
        sending = asyncio.get_running_loop().create_task(self._service.engine.send_many(events))
        sending.add_done_callback(self._sent)
        return _Group(answers, sending)

    async def _finish(self, left: int) -> None:
        """Wait until at most `left` groups are under way, and until the client has read enough answers."""
        while len(self._groups) > left and self._broken is None:
            await asyncio.wait([self._groups[0].sending])
            self._answer_done()
        while self._bytes > self._limits.batch_answer_bytes_max:
            self._taken.clear()
            await self._taken.wait()

    def _sent(self, sending: "asyncio.Task[list[Moved[Enum] | Refused]]") -> None:
        if not sending.cancelled():
            self._answer_done()

    def _answer_done(self) -> None:
        """Answer the groups that are done, in order: a client may wait for answers before it sends more."""
        while self._groups and self._groups[0].sending.done():
            group = self._groups.popleft()
            self._broken = group.sending.exception()
            if self._broken is not None:
                self._changed.set()
                return
            moves = iter(group.sending.result())
            self._answer([_result_line(each, next(moves)) if isinstance(each, str) else each for each in group.answers])

    def _answer(self, answers: "list[Problem | ShownMove]") -> None:
        lines = encode_lines(answers)
        self._waiting.append(lines)
        self._bytes += len(lines)
        self._changed.set()


class _Group(NamedTuple):
    """Some lines that are being decided."""

    answers: "list[Problem | str]"
    """Per line its problem, if it could not be decoded; otherwise its workflow, until the result is known."""
    sending: "asyncio.Task[list[Moved[Enum] | Refused]]"


def _result_line(workflow: str, moved: Moved[Enum] | Refused) -> Problem | ShownMove:
    if isinstance(moved, Refused):
        return problem_of(moved.error, workflow=workflow)
    return shown_move(workflow, moved)


def _too_many(most: int) -> InvalidPayload:
    return InvalidPayload(
        f"the batch has more than {most:,} lines; those after them were not read (batch_lines_max).",
        why="Every request has a bound.",
        fix="Send the rest as another batch.",
    )
