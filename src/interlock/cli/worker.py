"""`interlock worker`: runs the steps of workflows without HTTP, until Ctrl-C or SIGTERM.

On a folder or a bucket it is the owner of the home, as a server would be; on PostgreSQL it is one of any number of
workers. The first signal stops it in order: no new step starts, running steps get `drain_s`, and the home is released.
A second signal cancels the steps immediately, and the next worker retries them.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from interlock.cli.homes import StoreHome, refuse_memory
from interlock.cli.serve import (
    LogFormat,
    LogFormatGiven,
    LogLevel,
    LogLevelGiven,
    RedisGiven,
    app_of,
    observers_for,
    sayer,
    settle_redis,
)
from interlock.errors import MovedElsewhere
from interlock.lanes.objects.addresses import redacted
from interlock.runtime.alerts.environment import receivers_in
from interlock.runtime.engine import Engine
from interlock.server.app import App
from interlock.server.running import run_until_stopped
from interlock.server.stop_signals import SIGNALS
from interlock.signals import Observer

LOOK_S = 1.0
"""The interval at which it checks whether the engine is alive."""


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:ATTR", help="A machine, a list of machines, or an App.")],
    *,
    home: StoreHome,
    redis: RedisGiven = None,
    log_format: LogFormatGiven = LogFormat.TEXT,
    log_level: LogLevelGiven = LogLevel.INFO,
) -> None:
    """Run the steps, timers, undos and effects of machines, without HTTP, until Ctrl-C.

    Exits with 0 when it was stopped and everything is given up, and with 5 when another process owns the home, or when
    it cannot be reached.
    """
    refuse_memory(home)
    app = app_of(target)
    settle_redis(os.environ, redis)
    say = sayer(log_format)
    # A process that listens nowhere cannot be scraped: its metrics go to OpenTelemetry and the log.
    observers = [each for each in observers_for(log_format, log_level) if each != "prometheus"]
    run_until_stopped(work(app, home, observers=observers, say=say))
    say("Stopped in order: nothing is lost, and the home is free.")


async def work(
    app: App, home: str, *, observers: Sequence[Observer | str] = (), say: Callable[[str], None] | None = None
) -> None:
    """Run the steps of an app until a signal comes; return when the home is released."""
    say = say or sayer(LogFormat.TEXT)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    engine = await Engine.open(
        home,
        machines=app.machines,
        dependencies=app.dependencies,
        observers=observers,
        alerts=receivers_in(os.environ),
    )

    def stop_on_signal() -> None:
        if stop.is_set():
            closing.cancel()
        stop.set()

    async def close() -> None:
        try:
            while not await _happened(stop, LOOK_S):
                # A dead engine raises only when it is called, and in this process no other caller exists.
                with contextlib.suppress(MovedElsewhere):  # It goes on trying to follow: a restart would do the same.
                    engine._inside.refuse_if_closed()  # noqa: SLF001 -- as the server asks it.
            say("Stopping; running steps are given their time. Once more ends them now.")
        finally:
            await engine.close()

    closing = loop.create_task(close())
    for number in SIGNALS:
        loop.add_signal_handler(number, stop_on_signal)
    try:
        machines = ", ".join(machine.name for machine in app.machines)
        say(f"Running the steps of {machines} at {redacted(home)}. Stop with Ctrl-C.")
        await asyncio.wait([closing])
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    if not closing.cancelled():
        closing.result()


async def _happened(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
