"""`client.subscribe(observer)`: call observers with the signals of a server, as an engine does with its own.

All observers of a client share one stream. It carries all kinds of signals (TransitionApplied, TransitionRejected,
StepAttempted, ResultLate, BreakerChanged, RedisChanged, AlertRaised) of the answering process that the key may see. A
broken stream resumes after the last signal. If the server no longer has the signals in between, that is only logged,
because an observer cannot receive it. Use `client.stream` to notice it in code.
"""

import asyncio

from interlock.client.calling import Calling
from interlock.client.streaming import Stream
from interlock.errors import InterlockError, UnavailableError
from interlock.redaction import logger_of
from interlock.signals import Observer, Subscribers

log = logger_of("interlock.client")


class Following:
    """The observers of one client, and the stream that they share while there are any."""

    def __init__(self, calling: Calling, target: str) -> None:
        self._calling = calling
        self._target = target
        self._subscribers = Subscribers()
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None

    async def subscribe(self, observer: Observer) -> None:
        """Call the observer with every signal from now on. Raises the error that prevents the stream."""
        self._subscribers.subscribe(observer)
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._begun = loop.create_future()
            self._task = loop.create_task(self._follow(self._begun))
        assert self._begun is not None
        try:
            await asyncio.shield(self._begun)
        except BaseException:
            self.unsubscribe(observer)
            raise

    def unsubscribe(self, observer: Observer) -> None:
        """Stop calling the observer; the stream ends with the last one."""
        self._subscribers.unsubscribe(observer)
        if not self._subscribers:
            self._cancel()

    async def close(self) -> None:
        """End the stream."""
        task = self._task
        self._cancel()
        if task is not None and task is not asyncio.current_task() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({task})

    def _cancel(self) -> None:
        if self._task is not None and not self._task.get_loop().is_closed():
            self._task.cancel()
        self._task = None

    async def _follow(self, begun: "asyncio.Future[None]") -> None:
        last: str | None = None

        def opened() -> None:
            if not begun.done():
                begun.set_result(None)

        try:
            while True:
                stream = Stream(self._calling, self._target, last, opened)
                try:
                    await self._emit_all(stream)
                except UnavailableError as error:
                    if not begun.done() or self._calling.verdicts.closed:
                        raise
                    log.warning("the stream of %s reconnects: %s", self._calling.address, error.what)
                last = stream.last_event_id
                await asyncio.sleep(self._calling.retry.max_s)
        except InterlockError as error:
            if begun.done():
                log.error("the stream of %s has ended: %s", self._calling.address, error.what)  # noqa: TRY400 -- a known error.
            else:
                begun.set_exception(error)
        finally:
            begun.cancel()  # Does nothing when it is done.

    async def _emit_all(self, stream: Stream) -> None:
        async with stream:
            async for event in stream:
                if event.signal is None:
                    log.warning("signals of %s were missed: the server no longer has them.", self._calling.address)
                else:
                    self._subscribers.emit(event.signal)
