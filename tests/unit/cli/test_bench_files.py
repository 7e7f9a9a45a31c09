"""What the experiments share: files that cannot be written are refused before anything is measured."""

from pathlib import Path

import pytest

from tests.unit.cli.running import Interlock


@pytest.mark.parametrize("experiment", ["group-commit", "contention", "durability"])
@pytest.mark.parametrize("option", ["--json", "--plot"])
@pytest.mark.parametrize(("path", "why"), [("taken", "it is a folder"), ("file/out", "exists")])
def test_a_file_that_cannot_be_written_is_refused_before_minutes_of_measuring(
    interlock: Interlock, folder: Path, *, experiment: str, option: str, path: str, why: str
) -> None:
    """D12: nothing is measured that could not be kept."""
    (folder / "taken").mkdir()
    (folder / "file").touch()
    done = interlock("bench", experiment, option, path)
    assert done.code == 1
    assert f"{path} cannot be written" in done.err
    assert why in done.err
    assert done.out == ""
