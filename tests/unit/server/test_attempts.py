"""GET /v1/workflows/{id}/attempts and /why (B17, F8)."""

from tests.conformance.engine.places import run, settled
from tests.conformance.engine.shop import Charged, Order, Outside, State, Submit, World, shop
from tests.unit.server.serving import serving


def test_the_server_lists_attempts_page_by_page() -> None:
    async def scenario() -> None:
        order, world, _ = shop(World(charge=Outside(OSError("away, token=hunter2"), Charged())))
        async with serving(machines=(order,), worker=True) as served:
            await served.engine.start(order, "o-1", Order())
            await served.engine.send("o-1", Submit())
            await served.engine.wait("o-1", State.DONE)
            await settled(served.engine)
            first = (await served.get("/v1/workflows/o-1/attempts?limit=2")).json()
            failed, completed = first["items"]
            assert (failed["kind"], failed["name"], failed["number"], failed["outcome"]) == (
                "step",
                "charge",
                1,
                "failed",
            )
            assert (failed["error"], failed["key"]) == ("OSError: away, token=***", world.charge.keys[0])
            assert (completed["outcome"], completed["number"], completed["ended_at"] is None) == ("completed", 2, False)
            rest = (await served.get(f"/v1/workflows/o-1/attempts?cursor={first['cursor']}")).json()
            assert [each["name"] for each in rest["items"]] == ["reserve", "mail"]
            since = (await served.get("/v1/workflows/o-1/attempts?after=3")).json()
            assert [each["name"] for each in since["items"]] == ["reserve", "mail"]
            assert (await served.get("/v1/workflows/x/attempts")).status_code == 404
            assert (await served.get("/v1/workflows/o-1/attempts?cursor=x")).status_code == 400

    run(scenario)


def test_the_server_says_why() -> None:
    async def scenario() -> None:
        order, _, _ = shop()
        async with serving(machines=(order,)) as served:
            await served.engine.start(order, "o-1", Order(), by="ada")
            why = (await served.get("/v1/workflows/o-1/why")).json()
            assert (why["workflow"], why["waits_for"], why["next_at"]) == ("o-1", "event", None)
            assert "was started in state 'draft'" in why["text"]
            assert "SUBMIT" in why["events"]
            assert (await served.get("/v1/workflows/x/why")).status_code == 404

    run(scenario)
