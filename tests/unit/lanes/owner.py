"""A process that owns a lane until it is killed."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from tests.unit.lanes.lanes import make_counter, opened


def own(say: Callable[[str], None], path: str) -> None:
    with opened(Path(path)) as lane:
        asyncio.run(make_counter(lane))
        say("owned")
        threading.Event().wait()
