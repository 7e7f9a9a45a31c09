"""Scenario with a full disk of an embedded lane.

There is one worker: a lane has one owner. Writes that do not fit are refused, and acknowledged ones are kept. With
room on the disk work continues, without a restart or a repair.
"""

from interlock.chaos.disk import SmallDisk
from interlock.chaos.flow import Flow
from interlock.chaos.messages import Life
from interlock.chaos.scenarios.postgres import repeated
from interlock.chaos.stage import Stage
from interlock.chaos.words import times

PLACED = 10


class FillDisk(Flow):
    """Fill the disk to the last byte, and make room again."""

    name = "fill-disk"
    disturbance = "the disk is full"
    promise = "the disk of an embedded lane is full: what does not fit is refused, what was acknowledged is there"
    needs = ()

    def __init__(self) -> None:
        self._disk: SmallDisk | None = None

    def lives(self, stage: Stage) -> list[Life]:
        """Return the one worker, which owns the lane."""
        self._disk = SmallDisk(stage.folder / "disk")
        stage.resources.callback(self._disk.close)
        return [stage.life(1, self.home(stage), disk=self._disk)]

    def home(self, stage: Stage) -> str:
        """Return the address of the lane on the small disk."""
        return f"lanes://{stage.folder}/disk/home"

    async def disturb(self, stage: Stage) -> None:
        """Keep the disk full until an operation was refused, and for the load's seconds after that."""
        assert self._disk is not None
        codes = stage.world.customers.repeated
        before = codes.total()
        self._disk.fill()
        try:
            stage.place(PLACED)
            await stage.until("an operation fails because the disk is full", lambda: codes.total() > before)
            await stage.hold()
        finally:
            self._disk.empty()

    def happened(self, stage: Stage) -> str:
        """Summarize the outcome."""
        assert self._disk is not None
        reopened = sum(news.what == "reopened" for news in stage.world.news)
        again = f"; its engine stopped and was opened again {times(reopened)}" if reopened else ""
        return f"full for {stage.load.seconds:g} s; {repeated(stage)}{again} ({self._disk.description})"
