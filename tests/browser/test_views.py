"""Every page of the dashboard, with the data of a real server: wide and narrow, light and dark (B13)."""

from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.hostile import HOSTILE, HOSTILE_ID, HOSTILE_NAME, seen, seen_in_json
from tests.browser.shop import POPULAR, Shop
from tests.browser.tabs import NARROW, REFUSED, WIDE, Tab

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
VIEWS = {
    "overview": ("#/", ["Dead letters", "checkout", "order", "parcel", "fulfillment_pending"]),
    "machine": ("#/machines/order", ["forgotten-1", "fulfillment_pending"]),
    "filtered": (
        "#/machines/purchase?where=customer=ada&order=-cents",
        ["purchase-0", "customer=ada", "sorted by -cents"],
    ),
    "workflows": ("#/workflows", ["cart-kept", "completed"]),
    "find": ("#/find?q=ada", ["customer begins with", "purchase-0"]),
    "decision": (
        "#/workflows/purchase-0",
        ["APPROVE", "within_the_limit refuses it", "REJECT", "Not possible in review"],
    ),
    "failed": ("#/workflows/purchase-4", ["1 dead letter: it waits for a person", "is blocked: 402"]),
    "state": ("#/machines/order?state=paid", ["sold-out-1"]),
    "pipeline": ("#/machines/checkout", ["cart-5", "cart-kept"]),
    "unwinding": ("#/machines/parcel", ["parcel-chased", "parcel-slow"]),
    "workflow": ("#/workflows/order-0009", ["REFUND_COMPLETE", "shp-9", "Attempts"]),
    "running": ("#/workflows/parcel-slow", ["HAND", "carried", "step carry"]),
    "waiting": ("#/workflows/stuck-1", ["SUBMIT", "payments"]),
    "hostile": (f"#/workflows/{quote(HOSTILE_ID, safe='')}", [HOSTILE_ID, seen_in_json(HOSTILE)]),
    "stalled": ("#/stalled", ["forgotten-1", "forgotten-2", "fulfillment_pending", "2 d"]),
    "compensations": ("#/compensations", ["cart-kept", "dead", "parcel-chased"]),
    "dead-letters": ("#/dead-letters", ["sold out: gone", "card … is blocked: …", "the bank says"]),
    "inbox": ("#/inbox", ["Approve 150000 for ada", "finance", seen(HOSTILE)]),
    "bulk": ("#/bulk", ["Bulk runs"]),
    "breakers": ("#/breakers", ["held open by local", HOSTILE_NAME, "4 failures in a row", "warehouse", "closed"]),
    "hot-rows": ("#/hot-rows", [POPULAR, "stock", seen(HOSTILE)]),
    "schedules": ("#/schedules", ["monthly", "0 3 1 * *", "Europe/Berlin", "every 2 d", "paused", HOSTILE_NAME]),
}


@pytest.mark.campaign
@pytest.mark.parametrize("view", VIEWS)
def test_a_page_shows_its_data_and_nothing_goes_wrong(tab: Tab, shop: Shop, view: str, pictures: Path | None) -> None:
    """B13: no error, no warning, no refused script, no other host; what users wrote is there as text.

    It is the same page in both themes and on a telephone, where only tables and drawings scroll sideways.
    """
    address, texts = VIEWS[view]
    if view == "hot-rows":
        shop.crowd()
    if view == "find":
        tab.expected = [REFUSED]  # It first asks for a workflow of that id.
    tab.open(address)
    for text in texts:
        tab.shows(text)
    shades: set[str] = set()
    for width, height in (WIDE, NARROW):
        tab.page.set_viewport_size({"width": width, "height": height})
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        for theme in THEMES:
            tab.page.emulate_media(color_scheme=theme)
            expect(tab.page.locator("html")).to_have_attribute("data-theme", theme)
            shades.add(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))
            if pictures is not None:
                tab.page.screenshot(path=pictures / f"{view}-{theme}-{width}.png", full_page=True)
    assert len(shades) == len(THEMES)
