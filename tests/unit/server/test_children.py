"""`engine.children`, GET /v1/workflows/{id}/children, and the parent of a view (E3)."""

from interlock import Engine
from tests.conformance.engine.families import Order, OrderState, Packed, Pay, orders, parcels, quiet
from tests.conformance.engine.places import run
from tests.unit.server.serving import serving


async def shop(engine: Engine, order: object) -> None:
    """An order with three parcels, of which one is sent."""
    await engine.start(order, "o", Order(("a", "b", "c")))  # type: ignore[arg-type]
    await engine.send("o", Pay())
    await quiet(engine)
    await engine.send("o.b", Packed())
    await quiet(engine)


def test_children_are_paged_in_the_order_of_their_declaration() -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with Engine.open("memory:", machines=[order, parcel]) as engine:
            await shop(engine, order)
            first = await engine.children("o", limit=2)
            assert [(each.id, each.state.value, each.parent) for each in first.items] == [
                ("o.a", "packing", "o"),
                ("o.b", "sent", "o"),
            ]
            rest = await engine.children("o", limit=2, cursor=first.cursor)
            assert ([each.id for each in rest.items], rest.cursor) == (["o.c"], None)
            assert (await engine.children("o.a")).items == ()
            assert (await engine.get("o")).state is OrderState.FULFILLING

    run(scenario)


def test_the_server_and_its_client_list_children() -> None:
    async def scenario() -> None:
        parcel = parcels()
        order = orders(parcel)
        async with serving(machines=(order, parcel), worker=True) as served:
            await shop(served.engine, order)
            first = (await served.get("/v1/workflows/o/children?limit=2")).json()
            assert [(each["id"], each["state"], each["parent"]) for each in first["items"]] == [
                ("o.a", "packing", "o"),
                ("o.b", "sent", "o"),
            ]
            rest = (await served.get(f"/v1/workflows/o/children?cursor={first['cursor']}")).json()
            assert [each["id"] for each in rest["items"]] == ["o.c"]
            assert "parent" not in (await served.get("/v1/workflows/o")).json()
            assert (await served.get("/v1/workflows/x/children")).status_code == 404
            assert (await served.get("/v1/workflows/o/children?cursor=x")).status_code == 400

    run(scenario)
