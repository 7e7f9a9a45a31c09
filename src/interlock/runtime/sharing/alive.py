"""Whether anybody looked after the store until now: what the policies of timers hang on (B9).

"remaining" does not count the time while no worker was there, and "restart" begins anew after it. With several workers
that is the time between the last sign of life of any of them and the first worker that comes back. The sign is one
small note per machine, written by every worker of a machine that has such timers. A worker that opens and finds a
fresh sign waits until it changes, which means that somebody is alive, or until it is old enough to know that nobody is.
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
"""How often a worker shows that it is alive."""

SILENT_S = 1.6
"""Nobody who is alive is silent for so long."""

LOOK_S = 0.1


def sign_of(machine: str) -> str:
    """The note in which the workers of a machine show that they are alive."""
    return f"{ALIVE}/{machine}"


def minding(machines: dict[str, Bound]) -> list[str]:
    """The machines that have a timer for which it matters how long nobody was there."""
    return [name for name, bound in machines.items() if any(timer.policy != "deadline" for timer in bound.timers)]


async def gap_begun_us(store: SharedStore, machine: str) -> int | None:
    """Since when nobody has looked after a machine's workflows; None when somebody does at this moment."""
    sign = sign_of(machine)
    noted = await store.noted()
    first = noted.get(sign, "0")
    left_s = SILENT_S - (store.now_us() - int(first)) / 1_000_000
    while left_s > 0:
        await asyncio.sleep(LOOK_S)
        left_s -= LOOK_S
        if (await store.noted()).get(sign, "0") != first:
            return None
    # A store that was moved here has the mark of the one engine that it had there.
    return max(int(first), int(noted.get(ALIVE, "0")))


async def show_sign(store: SharedStore, machines: Iterable[str]) -> None:
    """Show that this worker looks after these machines."""
    for machine in machines:
        try:
            await store.note(sign_of(machine), str(store.now_us()))
        except (UnavailableError, OutcomeUnknown) as error:
            log.debug("this worker could not show that it is alive: %s", error)
        except Exception:
            log.exception("this worker could not show that it is alive; it is tried again.")


async def show_signs(store: SharedStore, machines: Sequence[str], every_s: float) -> None:
    """Show it again and again, until the engine closes."""
    while True:
        await show_sign(store, machines)
        await asyncio.sleep(min(SIGN_S, every_s))
