"""The address of an engine's workflows: its home, or the place that they were moved to.

A machine is looked up by its name, and after that under `workflows`, which stands for all machines of the home. One
engine has one store, so machines that live at different places cannot be served by one engine.
"""

from collections.abc import Sequence
from typing import Final

from interlock.catalog.catalog import Catalog
from interlock.catalog.entries import Entry
from interlock.catalog.secrets import shown
from interlock.errors import BadUsage

ALL: Final = "workflows"
"""The entry for every machine of the home that has none of its own."""


async def workflows_at(home: str, machines: Sequence[str]) -> str:
    """Return the address of the store with these machines' workflows. Raises BadUsage for several stores."""
    if home == "memory:":
        return home
    catalog = Catalog(home)
    known = await catalog.names("workflows")
    others = known.get(ALL, Entry())
    places = {name: known.get(name, others).url for name in machines} or {ALL: others.url}
    (first, place), *rest = places.items()
    for name, another in rest:
        if another != place:
            raise BadUsage(
                f"the workflows of {first!r} live at {_shown(home, place)}, and those of {name!r} at "
                f"{_shown(home, another)}.",
                why="An engine has one store, and one of the two was moved without the other.",
                fix="Open an engine for each of them, or move the other one too, with `interlock route`.",
            )
    return catalog.address(first, Entry(place)) if place else home


def _shown(home: str, place: str) -> str:
    return shown(place or home)
