"""What makes the tests fast on any machine. Loaded by the conftest of all tests.

- Temporary folders are in memory, where there is enough of it: thousands of tests commit to a lane, and each would wait
  for a disk. Tests kill processes, never the machine; power cuts are simulated (`interlock.testing`). The variable
  TMPDIR names another place.
- What Python compiles is kept, also where the environment says otherwise: tests start hundreds of processes, and each
  would compile the package again.
- Modules and collected tests are exempt from garbage collection: with them a full one takes half a second.
"""

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 8 * 1024**3
"""A run of all tests needs about a quarter of it."""


def _is_usable(folder: Path) -> bool:
    """Whether there is room for all tests, and programs in the folder can be run."""
    return (
        folder.is_dir()
        and shutil.disk_usage(folder).free >= MEMORY_BYTES_MIN
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
    )


if "TMPDIR" not in os.environ and _is_usable(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
