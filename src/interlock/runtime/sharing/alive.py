"""Signs of life of workers in the store, which the policies of timers depend on (B9).

"remaining" does not count the time without a worker, and "restart" begins anew after it. With several workers that is
the time between the last sign of life of any of them and the first worker that comes back. The sign is one small note
per machine, written by every worker of a machine that has such timers. A worker that opens and finds a fresh sign waits
until it changes: then another worker is alive. If it grows older than `SILENT_S`, none is.
"""

import asyncio
from collections.abc import Iterable, Sequence

from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.redaction import logger_of
from interlock.runtime.bound import Bound
from interlock.runtime.recovery import ALIVE
from interlock.store.shared import SharedStore

log = logger_of("interlock.steps")

SIGN_S = 0.4
"""Seconds between two signs of a worker."""

SILENT_S = 1.6
"""Seconds of silence after which no worker is alive."""

LOOK_S = 0.1


def sign_of(machine: str) -> str:
    """Return the name of the note with a machine's signs of life."""
    return f"{ALIVE}/{machine}"


def minding(machines: dict[str, Bound]) -> list[str]:
    """Return the machines with a timer for which the time without a worker matters."""
    return [name for name, bound in machines.items() if any(timer.policy != "deadline" for timer in bound.timers)]


async def gap_begun_us(store: SharedStore, machine: str) -> int | None:
    """Return when a machine's last worker was alive; None if one is alive now."""
    sign = sign_of(machine)
    notes = await store.noted()
    first = notes.get(sign, "0")
    left_s = SILENT_S - (store.now_us() - int(first)) / 1_000_000
    while left_s > 0:
        await asyncio.sleep(LOOK_S)
        left_s -= LOOK_S
        if (await store.noted()).get(sign, "0") != first:
            return None
    # A store that was moved here has the mark of its only engine there.
    return max(int(first), int(notes.get(ALIVE, "0")))


async def show_sign(store: SharedStore, machines: Iterable[str]) -> None:
    """Write the sign of life of this worker for these machines."""
    for machine in machines:
        try:
            await store.note(sign_of(machine), str(store.now_us()))
        except (UnavailableError, OutcomeUnknown) as error:
            log.debug("this worker could not show that it is alive: %s", error)
        except Exception:
            log.exception("this worker could not show that it is alive; it is tried again.")


async def show_signs(store: SharedStore, machines: Sequence[str], every_s: float) -> None:
    """Write the sign of life repeatedly, until the engine closes."""
    while True:
        await show_sign(store, machines)
        await asyncio.sleep(min(SIGN_S, every_s))
