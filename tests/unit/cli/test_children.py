"""`interlock children`: the children of a workflow, as a store has them."""

import json
from pathlib import Path

from interlock import Engine
from tests.conformance.engine.families import Order, Packed, Pay, orders, parcels, quiet
from tests.conformance.engine.places import run
from tests.unit.cli.running import Interlock


def test_children_of_a_store_are_listed_page_by_page(interlock: Interlock, tmp_path: Path) -> None:
    home = f"lanes://{tmp_path}/home"

    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with Engine.open(home, machines=[order, parcel]) as engine:
            await engine.start(order, "o", Order(("a", "b", "c")))
            await engine.send("o", Pay())
            await quiet(engine)
            await engine.send("o.b", Packed())
            await quiet(engine)

    run(scenario)
    done = interlock("children", "o", "--home", home, "-o", "json", "--limit", "2")
    assert done.code == 0, done.err
    listed = json.loads(done.out)
    assert [(each["id"], each["state"], each["parent"]) for each in listed["items"]] == [
        ("o.a", "packing", "o"),
        ("o.b", "sent", "o"),
    ]
    done = interlock("children", "o", "--home", home, "-o", "ids", "--cursor", listed["cursor"])
    assert done.out.split() == ["o.c"]
    assert "There are more: --cursor" in interlock("children", "o", "--home", home, "--limit", "1").err
    assert " parent" in interlock("show", "o.a", "--home", home).out
    done = interlock("children", "x", "--home", home)
    assert (done.code, "there is no workflow 'x'" in done.err) == (4, True)
