"""A machine's description, from code (`MODULE:ATTR`) or from a file that `interlock describe` wrote."""

from pathlib import Path

import msgspec

from interlock.cli.targets import load_machine
from interlock.core.description import MachineDescription, description_from_json
from interlock.errors import TargetNotFound, UnusableFile


def load_description(target: str) -> MachineDescription:
    """Load the description of `target`: a file if it exists or ends in .json, else MODULE:ATTR."""
    path = Path(target)
    if _is_file(path):
        return _read(path)
    return load_machine(target).describe()


def sound_description(target: str) -> MachineDescription:
    """Load a description; raise the first error of a machine in code that is not usable."""
    description = load_description(target)
    if not _is_file(Path(target)):
        _ = load_machine(target).compiled
    return description


def _is_file(path: Path) -> bool:
    return path.suffix == ".json" or (path.suffix != ".py" and path.exists() and not path.is_dir())


def _read(path: Path) -> MachineDescription:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TargetNotFound(
            f"There is no file {path}.",
            why="A name that ends in .json is read as a file written by `interlock describe`.",
            fix="Check the path, or name the machine in code: MODULE:ATTR.",
        ) from None
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        return description_from_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableFile(
            f"{path} is not the description of a machine: {error}.",
            why="A description is the JSON document that `interlock describe` writes.",
            fix="Write one: interlock describe MODULE:ATTR --output machine.json",
        ) from error
