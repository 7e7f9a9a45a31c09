"""Load machines and their descriptions from `MODULE:ATTR` or a file on the command line.

The current directory is importable, as with `python -m`. A name is looked up and never evaluated: `ATTR` is an
attribute, or attributes joined by dots. An error that a module raises while it is imported is shown with the user's
file and line, and without a frame of Interlock. A file is one that `interlock describe` wrote.
"""

import difflib
import importlib
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from interlock.core.describe import MachineDescription, description_from_json
from interlock.core.machine import Machine
from interlock.errors import BadUsage, DefinitionError, InterlockError, TargetNotFound, UnusableFile
from interlock.server.app_declaration import App

NAMES_SHOWN_MAX = 12
NAMED = "A machine is named MODULE:ATTR: the module that defines it, and its name in there."

AnyMachine = Machine[Any, Any, Any]


def load_machines(target: str) -> list[AnyMachine]:
    """Load the machines of `MODULE:ATTR` (a machine, a list of them, or an App), or all machines of `MODULE`."""
    module_name, colon, attribute = _split(target)
    module = _import(module_name, attribute)
    if not colon:
        found = _machines_in(module)
        if not found:
            raise TargetNotFound(
                f"There is no machine in {module_name}.",
                why="Without :ATTR every Machine at the top level of the module is taken, and it has none.",
                fix="Name the module that defines the machine, or the attribute that holds it.",
            )
        return list(found.values())
    value = _look_up(module, attribute)
    machines = _as_machines(value)
    if machines is None:
        first = next(iter(_machines_in(module)), None)
        raise BadUsage(
            f"{target} is {_kind_of(value)}, not a machine{_machines_hint(module)}",
            why="MODULE:ATTR has to be a Machine, a list or tuple of machines, or an App.",
            fix="Run the command with --help to see an example." if first is None else f"Write {module_name}:{first}.",
        )
    return machines


def load_machine(target: str) -> AnyMachine:
    """Load the one machine of `MODULE:ATTR`."""
    module_name, colon, attribute = _split(target)
    if not colon:
        module = _import(module_name, attribute)
        raise BadUsage(
            f"{target} names a module, not a machine{_machines_hint(module)}",
            why=NAMED,
            fix=f"Write {module_name}:{next(iter(_machines_in(module)), 'ATTR')}.",
        )
    machines = load_machines(target)
    if len(machines) != 1:
        names = ", ".join(machine.name for machine in machines) or "none"
        raise BadUsage(
            f"{target} holds {len(machines)} machines ({names}), and exactly one is needed.",
            why=NAMED,
            fix="Name the one machine: MODULE:ATTR.",
        )
    return machines[0]


def load_value(target: str) -> object:
    """Load the value of `MODULE:ATTR`."""
    module_name, colon, attribute = _split(target)
    module = _import(module_name, attribute)
    return _look_up(module, attribute) if colon else module


def _split(target: str) -> tuple[str, bool, str]:
    module, colon, attribute = target.partition(":")
    if module.endswith(".py") or "/" in module:
        dotted = module.removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")
        raise BadUsage(
            f"{target!r} names a file; a module is needed. Did you mean {dotted}:{attribute or 'ATTR'}?",
            why=NAMED,
            fix="Write the module as in an import statement: shop.orders:order for shop/orders.py.",
        )
    names = [*module.split("."), *(attribute.split(".") if colon else [])]
    if not all(name.isidentifier() for name in names):
        raise BadUsage(
            f"{target!r} is not of the form MODULE:ATTR.",
            why=NAMED,
            fix="Write it as in an import statement: shop.orders:order for `from shop.orders import order`.",
        )
    return module, bool(colon), attribute


def _import(name: str, attribute: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except InterlockError:
        raise  # It names the line of a wrong declaration itself.
    except SystemExit as left:
        raise BadUsage(
            f"Importing {name} ended the program: it called sys.exit({left.code!r}).",
            why="A machine is found by importing its module, which must not run a program.",
            fix='Put what runs the program under `if __name__ == "__main__":`.',
        ) from None
    except Exception as error:  # noqa: BLE001 -- whatever the user's code raises.
        # A module that is missing *inside* the user's module is an error of that module.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise _no_module(name, error.name, attribute) from None
        raise _import_error(name, error) from None


def _import_error(name: str, error: Exception) -> DefinitionError:
    """Return the error of a module whose own code raised: file, line and message, without a frame of Interlock."""
    ours = (str(Path(__file__).parents[1]), "<frozen ")  # Ours, and Python's own machinery of imports.
    called = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    # A library that they call may raise it, but the line to correct is one of the user's own.
    theirs = [frame for frame in called if Path(frame.filename).is_relative_to(Path.cwd())]
    frames = [frame for frame in theirs if "site-packages" not in frame.filename]
    if not frames and not isinstance(error, SyntaxError):  # A syntax error names its own line.
        frames = called[-1:]
    where = [f"{frame.filename.removeprefix(f'{Path.cwd()}/')}:{frame.lineno}" for frame in frames]
    line, message = (frames[-1].line if frames else None), str(error)
    if isinstance(error, SyntaxError) and error.filename:
        where.append(f"{error.filename.removeprefix(f'{Path.cwd()}/')}:{error.lineno}")
        line, message = (error.text or "").strip(), error.msg
    found = f" The line is `{line}`." if line else ""
    way = f" It was reached by {', '.join(where[:-1])}." if where[:-1] else ""
    return DefinitionError(
        f"{type(error).__name__}: {message}".removesuffix(": "),
        why=f"Importing {name} raised it.{found}{way}",
        fix=f"Correct it; the whole traceback is shown by: python -c 'import {name}'",
        rule="import",
        location=where[-1] if where else name,
    )


def _no_module(name: str, missing: str, attribute: str) -> TargetNotFound:
    parent, _, last = missing.rpartition(".")
    package = sys.modules.get(parent)
    places = list(package.__path__) if package is not None and hasattr(package, "__path__") else [str(Path.cwd())]
    close = difflib.get_close_matches(last, [found.name for found in pkgutil.iter_modules(places)], n=1)
    if not close:
        return TargetNotFound(f"There is no module {missing!r}.")
    meant = ".".join(part for part in (parent, close[0]) if part) + name.removeprefix(missing)
    ending = f":{attribute}" if attribute else ""
    return TargetNotFound(f"There is no module {missing!r}. Did you mean {meant}{ending}?")


def _look_up(module: ModuleType, attribute: str) -> object:
    value: object = module
    path = module.__name__
    for name in attribute.split("."):
        try:
            value = cast("object", getattr(value, name))
        except AttributeError:
            close = difflib.get_close_matches(name, [each for each in dir(value) if not each.startswith("_")], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise TargetNotFound(
                f"{path} has no attribute {name!r}.{hint}",
                why=f"The module was found, but the name was not{_machines_hint(module)}",
                fix="Check the spelling, and that the name is defined at the top level of the module.",
            ) from None
        path = f"{path}.{name}"
    return value


def _as_machines(value: object) -> list[AnyMachine] | None:
    if isinstance(value, App):
        return [cast("AnyMachine", machine) for machine in value.machines]
    members = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
    machines: list[AnyMachine] = [member for member in members if isinstance(member, Machine)]
    return machines if machines and len(machines) == len(members) else None


def _machines_in(module: ModuleType) -> dict[str, AnyMachine]:
    """Return the machines at the top level, each once, under the first name it has."""
    found: dict[int, tuple[str, AnyMachine]] = {}
    for name, value in cast("dict[str, object]", vars(module)).items():
        if isinstance(value, Machine):
            found.setdefault(id(cast("object", value)), (name, value))  # pyright: ignore[reportUnknownArgumentType]
    return dict(found.values())


def _machines_hint(module: ModuleType) -> str:
    names = list(_machines_in(module))
    if not names:
        return f"; {module.__name__} has no machine."
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return f"; the machines of {module.__name__}: {', '.join(names[:NAMES_SHOWN_MAX])}{more}."


def _kind_of(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, list | tuple) and not value:
        return f"an empty {type(cast('object', value)).__name__}"
    if isinstance(value, list | tuple):
        return f"a {type(cast('object', value)).__name__} with something else than machines in it"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def load_description(target: str, *, sound: bool = False) -> MachineDescription:
    """Load the description of `target`: a file if it exists or ends in .json, else MODULE:ATTR.

    With `sound`, raises the first error of a machine in code that is not usable.
    """
    path = Path(target)
    if _is_file(path):
        return _read_description(path)
    machine = load_machine(target)
    if sound:
        _ = machine.compiled
    return machine.describe()


def _is_file(path: Path) -> bool:
    return path.suffix == ".json" or (path.suffix != ".py" and path.exists() and not path.is_dir())


def _read_description(path: Path) -> MachineDescription:
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
            fix="Write one: interlock describe MODULE:ATTR --file machine.json",
        ) from error
