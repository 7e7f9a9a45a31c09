"""`interlock databases`: the names of a home, where each of them lives, and what is moving.

The command reads the catalog of the home, finds the lanes in its folder, and asks each place for its own state. It
opens nothing for use and changes nothing, so it may run beside any process, also a mover.
"""

import asyncio

from interlock.catalog.catalog import Catalog
from interlock.catalog.entries import Kind
from interlock.catalog.secrets import shown
from interlock.cli.check import Listing
from interlock.cli.homes import StoreHome, refuse_memory
from interlock.cli.looking import Output
from interlock.cli.output import stderr
from interlock.cli.shown import show_ids, show_json, show_table
from interlock.database.residents import Resident, residents_of
from interlock.errors import TargetNotFound

CELL_CHARACTERS_MAX = 2_000
"""A URL is never cut off."""

TITLES: dict[Kind, str] = {"databases": "database", "workflows": "workflows"}


def databases(*, home: StoreHome, output: Output = Listing.TABLE) -> None:
    """List the databases of a home: where each of them lives, and what is moving. Changes nothing.

    The workflows of machines that were moved are listed too. A place that cannot be looked at is listed as the catalog
    has it. Exits with 4 when there is no such folder, and with 5 when the home itself cannot be reached.
    """
    refuse_memory(home)
    _refuse_absent(home)
    found = asyncio.run(residents_of(home, unlisted=True))
    match output:
        case Listing.TABLE:
            _show(found)
            if not found:
                stderr().print(f"No database was opened at {shown(home)} yet.", soft_wrap=True)
        case Listing.JSON:
            show_json(found)
        case Listing.IDS:
            show_ids([each.name for each in found if each.kind == "databases"])


def _refuse_absent(home: str) -> None:
    folder = Catalog(home).folder
    if folder is not None and not folder.folder.is_dir():
        raise TargetNotFound(
            f"there is no home at {shown(home)}.",
            why=f"There is no folder {folder.folder}.",
            fix="Check the address; the first database or engine that is opened there makes the home.",
        )


def _show(found: list[Resident]) -> None:
    cells = [
        (each.name, TITLES[each.kind], each.url, str(each.epoch) if each.epoch else "", _state(each)) for each in found
    ]
    show_table(("name", "what", "lives at", "move", "state"), cells, cell_max=CELL_CHARACTERS_MAX)
    for each in found:
        if each.note:
            stderr().print(f"{each.name} could not be looked at: {each.note}", soft_wrap=True)


def _state(resident: Resident) -> str:
    match resident.state:
        case "left":
            return f"left for {resident.other} (move {resident.other_epoch})"
        case "arriving":
            return f"arriving from {resident.other} (move {resident.other_epoch})"
        case "lives" | "unseen":
            return ""
        case "moving" | "absent":
            return resident.state
