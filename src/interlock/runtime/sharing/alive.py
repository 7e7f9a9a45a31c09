"""Whether anybody looked after the store until now: what the policies of timers hang on (B9).

"remaining" does not count the time while no worker was there, and "restart" begins anew after it. With several workers
that is the time between the last sign of life of any of them and the first worker that comes back. The sign is one
small note, written by every worker whose machines have such timers. A worker that opens and finds a fresh sign waits
until it changes, which means that somebody is alive, or until it is old enough to know that nobody is.
"""

import asyncio
import logging

from interlock.errors import OutcomeUnknown, UnavailableError
from interlock.runtime.bound import Bound
from interlock.runtime.recovery import ALIVE
from interlock.store.shared import SharedStore

log = logging.getLogger("interlock.steps")

SIGN_S = 0.4
"""How often a worker shows that it is alive."""

SILENT_S = 1.6
"""Nobody who is alive is silent for so long."""

LOOK_S = 0.1


def minds_the_gap(machines: dict[str, Bound]) -> bool:
    """Whether any of the machines has a timer for which it matters how long nobody was there."""
    return any(timer.policy != "deadline" for bound in machines.values() for timer in bound.timers)


async def gap_begun_us(store: SharedStore) -> int | None:
    """Since when nobody has looked after the store; None when somebody does at this moment."""
    first = (await store.noted()).get(ALIVE, "0")
    left_s = SILENT_S - (store.now_us() - int(first)) / 1_000_000
    while left_s > 0:
        await asyncio.sleep(LOOK_S)
        left_s -= LOOK_S
        if (await store.noted()).get(ALIVE, "0") != first:
            return None
    return int(first)


async def show_signs(store: SharedStore, every_s: float) -> None:
    """Show that this worker is alive, until the engine closes."""
    while True:
        try:
            await store.note(ALIVE, str(store.now_us()))
        except (UnavailableError, OutcomeUnknown) as error:
            log.debug("this worker could not show that it is alive: %s", error)
        except Exception:
            log.exception("this worker could not show that it is alive; it is tried again.")
        await asyncio.sleep(min(SIGN_S, every_s))
