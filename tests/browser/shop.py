"""A shop with something of everything that the dashboard shows, made through the interface that customers use.

Only what lies days back is written by an engine of its own, before the server starts: nobody waits that long.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx

from interlock import BlockingClient, Engine, Schedule
from interlock.clock import SystemClock
from interlock.examples.checkout import checkout
from interlock.examples.order import InventoryReserved, Order, PaymentStarted, PaymentSucceeded, Submit, order
from interlock.examples.order import Item as Article
from tests.browser.hostile import HOSTILE, HOSTILE_ID, HOSTILE_NAME

LATE_S = 3 * 24 * 3600.0
ORDERS = 120
POPULAR = "stuck-0"
CROWD, CROWD_ROUNDS = 16, 30
PURCHASES = 8
ITEMS = [{"sku": "A-1", "qty": 2}]


class LateClock(SystemClock):
    """Three days ago."""

    def wall_s(self) -> float:
        """The time it was."""
        return super().wall_s() - LATE_S


async def long_ago(home: str) -> None:
    """Two orders whose parcels nobody sent. Without a worker every event is sent by hand."""
    async with Engine.open(home, machines=[order], clock=LateClock(), worker=False) as engine:
        for name in ("forgotten-1", "forgotten-2"):
            await engine.start(order, name, Order(order_id=name, user_id=HOSTILE, items=(Article("A-1", 1),)))
            for event in (Submit(), PaymentStarted("pi"), PaymentSucceeded("pi"), InventoryReserved()):
                await engine.send(name, event)


class Shop:
    """A server with customers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = BlockingClient(url)
        self._plain = httpx.Client(base_url=url, timeout=30)

    def close(self) -> None:
        """Hang up."""
        self.client.close()
        self._plain.close()

    # --- one -----------------------------------------------------------------------------------------------------

    def start(self, name: str, machine: str = "order", context: Mapping[str, object] | None = None) -> None:
        """Begin a workflow."""
        self.client.of(machine).start(name, dict(context or {}))

    def send(self, name: str, event: str, *, key: str | None = None, **data: object) -> None:
        """Send it an event."""
        self.client.send(name, event, data=data, key=key)

    def buy(self, name: str, sku: str = "A-1") -> None:
        """Put something into the cart, and pay."""
        items = [{"sku": sku, "qty": 2}]
        self.start(name, context={"order_id": name, "user_id": f"user of {name}", "items": items})
        self.send(name, "SUBMIT", key=f"click-{name}")

    def retry(self, name: str) -> None:
        """Have the dead letter of a workflow tried again."""
        self.client.retry_dead_letter(self._letter(name))

    def resolve(self, name: str) -> None:
        """Say that the dead letter of a workflow is dealt with."""
        self.client.resolve_dead_letter(self._letter(name), note="by another")

    def _letter(self, name: str) -> str:
        return next(each.id for each in self.client.dead_letters() if each.workflow == name)

    # --- many ----------------------------------------------------------------------------------------------------

    def fill(self, orders: int = ORDERS) -> None:
        """A busy day, with trouble of each kind."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._customer, range(orders)))
            list(pool.map(self._cart, range(6)))
        self._purchases()
        self._parcels()
        self._trouble()
        self._schedules()

    def _schedules(self) -> None:
        """One that is due in another month or so, and one that is paused."""
        context = Order(order_id="by schedule")
        self.client.schedules.put(
            Schedule("monthly", order, cron="0 3 1 * *", timezone="Europe/Berlin", context=context)
        )
        self.client.schedules.put(Schedule(HOSTILE_NAME, order, every=timedelta(days=2), context=context))
        self.client.schedules.pause(HOSTILE_NAME)

    def _customer(self, index: int) -> None:
        fate = index % 10
        name = f"declined-{index:04}" if fate == 1 else f"order-{index:04}"
        if fate == 0:
            self.start(name, context={"order_id": name})
            return
        self.buy(name)
        self.client.wait(name, "payment_failed" if fate == 1 else "fulfillment_pending", timeout_s=30)
        if index % 20 == 1:
            self.send(name, "CANCEL", reason=HOSTILE)
        if fate > 3:
            self.send(name, "SHIP", shipment_id=f"shp-{index}")
        if fate > 5:
            self.send(name, "DELIVER")
        if fate == 9:
            self.send(name, "REFUND_REQUEST", reason="too late")
            self.client.wait(name, "refunded", timeout_s=30)

    def _cart(self, index: int) -> None:
        """Checkouts; what the second wants is gone, and its money is not given back."""
        name = "cart-kept" if index == 1 else f"cart-{index}"
        items = {"gone" if index == 1 else "A-1": 1}
        self.start(name, checkout.name, {"order_id": name, "items": items, "cents": 100 + index})
        if index != 1:
            self.client.wait(name, "completed", timeout_s=30)

    def _purchases(self) -> None:
        """Some wait for a decision; the charges of others gave up, all by one error with other numbers."""
        for index in range(PURCHASES):
            context = {
                "customer": ("ada", "bob", HOSTILE)[index % 3],
                "cents": 50_000 * (3 - index % 3),
                "urgent": index % 2 == 0,
                "placed_on": f"2026-01-{index + 1:02}",
                "fate": "blocked" if index >= PURCHASES - 4 else "",
            }
            self.start(f"purchase-{index}", "purchase", context)
            self.send(f"purchase-{index}", "PLACE")
        self.client.wait("purchase-0", "review", timeout_s=30)

    def _parcels(self) -> None:
        """One arrives, one is under way, one is fetched back, and others are lost until the breaker opens."""
        for fate in ("fine", "slow", "refused", "chased", "lost", "lost too"):
            name = f"parcel-{fate}"
            self.start(name, "parcel", {"fate": fate.removesuffix(" too"), "label": HOSTILE})
            self.send(name, "HAND", key=HOSTILE_ID, note=HOSTILE)
            if fate == "chased":  # Its two failures are counted before those of the next.
                self.client.wait(name, "returning", timeout_s=30)
        self._until(lambda: self.breaker(HOSTILE_NAME) == "open")

    def _trouble(self) -> None:
        """Hostile text everywhere, a step and an undo that gave up, and a breaker that is held open."""
        self.start(
            HOSTILE_ID, context={"order_id": HOSTILE_ID, "user_id": HOSTILE, "items": [{"sku": HOSTILE, "qty": 1}]}
        )
        self.send(HOSTILE_ID, "SUBMIT", key=HOSTILE_ID)
        self.client.wait(HOSTILE_ID, "fulfillment_pending", timeout_s=30)
        self.send(HOSTILE_ID, "REFUND_REQUEST", reason=HOSTILE)
        self.client.wait(HOSTILE_ID, "refunded", timeout_s=30)
        self.buy("sold-out-1", sku="gone")
        self._until(lambda: {"sold-out-1", "cart-kept"} <= {each.workflow for each in self.client.dead_letters()})
        self.client.force_breaker("payments", "open")
        for index in range(5):
            self.buy(f"stuck-{index}")
        self.transact("CREATE TABLE stock (sku text PRIMARY KEY, n bigint NOT NULL)")
        self.transact("INSERT INTO stock VALUES ($1, 0)", HOSTILE)

    def crowd(self) -> None:
        """Everybody wants the same order, and the same article."""

        def pushes(_: int) -> None:
            for each in range(CROWD_ROUNDS):
                self.send(POPULAR, "PAYMENT_STARTED", payment_intent_id=f"pi-{each}")
                self.transact("UPDATE stock SET n = n + 1 WHERE sku = $1", HOSTILE)

        with ThreadPoolExecutor(CROWD) as pool:
            list(pool.map(pushes, range(CROWD)))

    # --- the rest ------------------------------------------------------------------------------------------------

    def transact(self, sql: str, *params: object) -> None:
        """One statement in the database `stock`."""
        body = {"statements": [{"sql": sql, "params": params}]}
        self._plain.post("/v1/databases/stock/transactions", json=body).raise_for_status()

    def breaker(self, name: str) -> str:
        """The state of a breaker."""
        return next(each.state for each in self.client.breakers() if each.name == name)

    def _until(self, held: Callable[[], bool]) -> None:
        """Steps give up when they do, and no call waits for it: ask until it is so."""
        end = SystemClock().monotonic_s() + 30
        while not held():
            assert SystemClock().monotonic_s() < end, "the server never came that far"
