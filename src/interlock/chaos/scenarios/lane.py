"""The disk of an embedded lane is full.

There is one worker: a lane has one owner. What does not fit is refused, nothing that was acknowledged is touched, and
with room on the disk everything goes on, without a restart and without a repair.
"""

from interlock.chaos.disk import SmallDisk
from interlock.chaos.flow import Flow
from interlock.chaos.messages import Life
from interlock.chaos.scenarios.postgres import repeated
from interlock.chaos.stage import Stage
from interlock.chaos.words import times

PLACED = 10


class FillDisk(Flow):
    """Somebody fills the disk to the last byte, and makes room again."""

    name = "fill-disk"
    disturbance = "the disk is full"
    promise = "the disk of an embedded lane is full: what does not fit is refused, what was acknowledged is there"
    needs = ()

    def __init__(self) -> None:
        self._disk: SmallDisk | None = None

    def lives(self, stage: Stage) -> list[Life]:
        """One worker, which owns the lane."""
        self._disk = SmallDisk(stage.folder / "disk")
        stage.held.callback(self._disk.close)
        return [stage.life(1, self.home(stage), disk=self._disk)]

    def home(self, stage: Stage) -> str:
        """The lane on the small disk."""
        return f"lanes://{stage.folder}/disk/home"

    async def disturb(self, stage: Stage) -> None:
        """Full until somebody was refused, and a while longer."""
        assert self._disk is not None
        codes = stage.world.customers.repeated
        before = codes.total()
        self._disk.fill()
        try:
            stage.place(PLACED)
            await stage.until("somebody is told that the disk is full", lambda: codes.total() > before)
            await stage.hold()
        finally:
            self._disk.empty()

    def happened(self, stage: Stage) -> str:
        """What happened."""
        assert self._disk is not None
        reopened = sum(news.what == "reopened" for news in stage.world.news)
        again = f"; its engine stopped and was opened again {times(reopened)}" if reopened else ""
        return f"full for {stage.load.seconds:g} s; {repeated(stage)}{again} ({self._disk.shown})"
