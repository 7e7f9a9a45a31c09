"""No page has a serious fault that axe finds, light or dark, wide or narrow (F7)."""

import os
from typing import TypedDict, cast

import pytest

from tests.browser.shop import Shop
from tests.browser.tabs import NARROW, WIDE, Tab
from tests.integration.objects.servers import NODE_PACKAGES

PAGES = {
    "overview": "#/",
    "filter": "#/machines/purchase?where=customer=ada",
    "find": "#/workflows",
    "decision": "#/workflows/purchase-0",
    "failed": "#/workflows/purchase-4",
    "history": "#/workflows/order-0009?axis=linear",
    "dead letters": "#/dead-letters",
    "stalled": "#/stalled",
    "breakers": "#/breakers",
    "schedules": "#/schedules",
    "inbox": "#/inbox",
    "bulk": "#/bulk",
}


class Fault(TypedDict):
    """What axe has found, and where."""

    id: str
    impact: str
    nodes: list[dict[str, object]]


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe, which `make servers` installs; the page itself never has it."""
    script = NODE_PACKAGES / "axe-core" / "axe.min.js"
    if not script.is_file():
        reason = "axe-core is not installed; `make servers` does it"
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return script.read_text()


def faults(tab: Tab, axe: str) -> list[tuple[str, object]]:
    """What axe calls serious or critical on the page as it is."""
    tab.page.evaluate(axe)
    found = cast("list[Fault]", tab.page.evaluate("async () => (await axe.run(document)).violations"))
    return [
        (each["id"], [node["html"] for node in each["nodes"]][:3])
        for each in found
        if each["impact"] in {"serious", "critical"}
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(tab: Tab, axe: str, shop: Shop, name: str) -> None:
    """Every page in the light on a wide screen and in the dark on a telephone, with a dialog open on some."""
    del shop
    tab.open(PAGES[name])
    for (width, height), scheme in ((WIDE, "light"), (NARROW, "dark")):
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert faults(tab, axe) == []
    if name == "decision":
        tab.main.get_by_role("button", name="AMEND: purchase-0").click()
        assert faults(tab, axe) == []
