"""Where the workflows of a home live: on a local disk, or in a bucket with a disk that is lost with the process.

A home is a folder, and workflows are the database of that name in it.
"""

from pathlib import Path

from interlock.catalog.catalog_entries import below
from interlock.store.open_store import NAME
from tests.crash.sites import BucketSite, LocalSite


class LocalHome(LocalSite):
    """A home in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "home", name=NAME)
        self.url = f"lanes://{folder / 'home'}"


class BucketHome(BucketSite):
    """A home in a bucket."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url, keeps_disk=False)
        self._workflows = below(url, NAME)

    def copy(self, folder: Path) -> Path:
        home, self.url = self.url, self._workflows
        try:
            return super().copy(folder)
        finally:
            self.url = home
