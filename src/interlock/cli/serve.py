"""`interlock serve` and `interlock worker`: run machines with or without HTTP, until Ctrl-C or SIGTERM.

`serve` opens the home as its owner, runs the steps, and stops in order: readiness fails for the load balancer, requests
are answered, steps are drained, and the store is closed before the command ends. With `--workers` this process opens
nothing: it starts the same command in N processes, each with the socket that it listens on.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from interlock.cli.command_place import StoreHome, refuse_memory
from interlock.cli.console import remark
from interlock.cli.load_machines import load_machines, load_value
from interlock.engine.alerts.receivers import receivers_in
from interlock.engine.engine import Engine
from interlock.errors import MovedElsewhere
from interlock.observe.logs import log_as_json, log_as_text
from interlock.observe.metrics import installed
from interlock.redaction import logger_of
from interlock.server.app_declaration import App
from interlock.server.lifecycle import HOST, PORT, Listening, admission_from, run_until_stopped
from interlock.server.lifecycle import serve as run
from interlock.server.service import SIGNALS
from interlock.server.workers import WORKERS_MAX, check_home, inherited_descriptors, serve_worker, supervise
from interlock.signals import Observer
from interlock.urls import REDIS_VARIABLE, parse_redis_url, redact_url

# --- `interlock serve` -----------------------------------------------------------------------------------------------

PORT_MAX = 65_535

log = logger_of("interlock.server")

RatePerS = Annotated[
    float | None,
    typer.Option(metavar="N", envvar="INTERLOCK_RATE_PER_S", help="Calls a second that are taken in: 10,000."),
]
Burst = Annotated[
    float | None,
    typer.Option(metavar="N", envvar="INTERLOCK_BURST", help="The burst of calls: half as many again as a second's."),
]
InFlightMax = Annotated[
    int | None, typer.Option(metavar="N", envvar="INTERLOCK_IN_FLIGHT_MAX", help="Concurrent calls: 100,000.")
]

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar=REDIS_VARIABLE,
        help="Share leases, limits and breakers through it: redis://host:6379/0?prefix=shop.",
    ),
]


class LogFormat(StrEnum):
    """The format of logs."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat, typer.Option(envvar="INTERLOCK_LOG", help="Logs for people, or an object of JSON per line.")
]


class LogLevel(StrEnum):
    """The level of logs."""

    INFO = "info"
    DEBUG = "debug"


LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        envvar="INTERLOCK_LOG_LEVEL",
        help="Of the logs; debug has a line for every transition and every attempt, too.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=WORKERS_MAX,
        envvar="INTERLOCK_WORKERS",
        help="Serve with N processes, which share the port; on PostgreSQL only.",
    ),
]


def serve(
    target: Annotated[str, typer.Argument(metavar="MODULE:ATTR", help="A machine, a list of machines, or an App.")],
    *,
    home: StoreHome,
    host: Annotated[str, typer.Option(metavar="ADDRESS", envvar="INTERLOCK_HOST", help="Where to listen.")] = HOST,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=PORT_MAX, envvar="INTERLOCK_PORT", help="0 finds a free one.")
    ] = PORT,
    leave_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=300,
            envvar="INTERLOCK_LEAVE_S",
            help="Go on answering so long after /readyz says no.",
        ),
    ] = 0.0,
    rate_per_s: RatePerS = None,
    burst: Burst = None,
    in_flight_max: InFlightMax = None,
    redis: RedisUrl = None,
    worker: Annotated[bool, typer.Option(help="Run steps here; without it, events are only taken.")] = True,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    workers: Workers = 1,
) -> None:
    """Serve machines over HTTP, and run their steps, until Ctrl-C.

    Without keys it listens on loopback only. Exits with 2 for an address that it must not or cannot listen on, and
    with 5 when another process owns the home.
    """
    app = app_of(target)
    observers = observers_for(log_format, log_level)
    settle_admission(os.environ, rate_per_s=rate_per_s, burst=burst, in_flight_max=in_flight_max)
    settle_redis(os.environ, redis)
    inherited_socket = inherited_descriptors()
    if inherited_socket is not None:
        run_until_stopped(
            serve_worker(app, home, inherited_socket, host=host, leave_s=leave_s, worker=worker, observers=observers)
        )
        return

    say = printer_for(log_format)
    listening = partial(_announce, app, home, say)
    if workers > 1:
        check_home(home, workers)
        command = [sys.executable, "-m", "interlock", "serve", target, "--host", host, "--leave-s", repr(leave_s)]
        command.append("--worker" if worker else "--no-worker")
        code = asyncio.run(
            supervise(
                command, home, count=workers, host=host, port=port, leave_s=leave_s, listening=listening, tell=say
            )
        )
        if code:
            raise typer.Exit(code)
    else:
        running = run(
            app, home, host=host, port=port, leave_s=leave_s, worker=worker, observers=observers, listening=listening
        )
        run_until_stopped(running)
    say("Stopped in order: nothing is lost, and the home is free.")


def observers_for(log_format: LogFormat, log_level: LogLevel) -> list[Observer | str]:
    """Return the default observers of a server; the logs contain the signals of every serving process."""
    if log_format is LogFormat.TEXT:
        log_as_text()
    else:
        log_as_json()
    # Only our own logger: other libraries log too much.
    logging.getLogger("interlock").setLevel(log_level.value.upper())
    os.environ["INTERLOCK_LOG"], os.environ["INTERLOCK_LOG_LEVEL"] = log_format.value, log_level.value
    return [*installed(), "logs"]


def printer_for(log_format: LogFormat) -> Callable[[str], None]:
    """Return the function that prints a remark; with JSON logs it is a log line."""
    return remark if log_format is LogFormat.TEXT else log.info


def _announce(app: App, home: str, say: Callable[[str], None], where: Listening) -> None:
    machines = ", ".join(machine.name for machine in app.machines)
    say(f"Serving {machines} of {redact_url(home)} at {where.url} (documentation: {where.url}/docs)")
    say(f"Dashboard: {where.url}/ (stop with Ctrl-C)")


def settle_admission(
    environment: MutableMapping[str, str], *, rate_per_s: float | None, burst: float | None, in_flight_max: int | None
) -> None:
    """Put the admission options where every process of this server reads them. Raises BadUsage if out of range."""
    chosen = {"INTERLOCK_RATE_PER_S": rate_per_s, "INTERLOCK_BURST": burst, "INTERLOCK_IN_FLIGHT_MAX": in_flight_max}
    values = {name: str(value) for name, value in chosen.items() if value is not None}
    admission_from(values)
    environment.update(values)


def settle_redis(environment: MutableMapping[str, str], redis: str | None) -> None:
    """Put the URL of a Redis where every engine of this process reads it. Raises BadUsage for an invalid URL."""
    if redis is not None:
        if redis:
            parse_redis_url(redis)
        environment[REDIS_VARIABLE] = redis


def app_of(target: str) -> App:
    """Load the App of `MODULE:ATTR`, or make one of its machines."""
    value = load_value(target) if ":" in target else None
    if isinstance(value, App):
        return value
    return App(machines=load_machines(target))


# --- `interlock worker` ----------------------------------------------------------------------------------------------
# On a folder or a bucket it is the owner of the home, as a server would be; on PostgreSQL it is one of any number of
# workers. The first signal stops it in order: no new step starts, running steps get `drain_s`, and the home is
# released. A second signal cancels the steps immediately, and the next worker retries them.

LOOK_S = 1.0
"""The interval at which it checks whether the engine is alive."""


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:ATTR", help="A machine, a list of machines, or an App.")],
    *,
    home: StoreHome,
    redis: RedisUrl = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the steps, timers, undos and effects of machines, without HTTP, until Ctrl-C.

    Exits with 0 when it was stopped and everything is given up, and with 5 when another process owns the home, or when
    it cannot be reached.
    """
    refuse_memory(home)
    app = app_of(target)
    settle_redis(os.environ, redis)
    say = printer_for(log_format)
    # A process that listens nowhere cannot be scraped: its metrics go to OpenTelemetry and the log.
    observers = [each for each in observers_for(log_format, log_level) if each != "prometheus"]
    run_until_stopped(work(app, home, observers=observers, say=say))
    say("Stopped in order: nothing is lost, and the home is free.")


async def work(
    app: App, home: str, *, observers: Sequence[Observer | str] = (), say: Callable[[str], None] | None = None
) -> None:
    """Run the steps of an app until a signal comes; return when the home is released."""
    say = say or printer_for(LogFormat.TEXT)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    engine = await Engine.open(
        home,
        machines=app.machines,
        dependencies=app.dependencies,
        schedules=app.schedules,
        provide=app.provide,
        observers=observers,
        alerts=receivers_in(os.environ),
    )

    def stop_on_signal() -> None:
        if stop.is_set():
            closing.cancel()
        stop.set()

    async def close() -> None:
        try:
            while not await _is_set_within(stop, LOOK_S):
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
        say(f"Running the steps of {machines} at {redact_url(home)}. Stop with Ctrl-C.")
        await asyncio.wait([closing])
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
    if not closing.cancelled():
        closing.result()


async def _is_set_within(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
