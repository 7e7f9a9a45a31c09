"""What happens is seen as it happens: moves, refusals, a stream that is cut off, a server that is gone."""

import re
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from interlock.errors import RequestError
from tests.browser import served
from tests.browser.conftest import Open
from tests.browser.hostile import HOSTILE, HOSTILE_ID
from tests.browser.shop import Shop
from tests.browser.tabs import REFUSED, Tab
from tests.integration.ports import HeldPorts
from tests.integration.server.running import server

STREAM = "**/v1/stream"


def activity(tab: Tab) -> Locator:
    return tab.main.locator(".activity")


def count_of(page: Page, state: str) -> Locator:
    return page.locator(f'a[aria-label^="{state}: "] .count text')


@pytest.fixture
def address() -> Generator[HeldPorts]:
    """One that nobody else is given while no server is there."""
    with HeldPorts() as held:
        yield held


def marked(page: Page) -> None:
    """A mark that a reload would take away."""
    page.evaluate("globalThis.marked = true")


@pytest.mark.slow
def test_counts_and_activity_change_while_one_looks(tabs: Open, shop: Shop) -> None:
    """Events sent over HTTP are seen on the drawing and in the overview, without a reload."""
    machine, overview = tabs(f"{shop.url}/").open("#/machines/order"), tabs(f"{shop.url}/").open("#/")
    for tab in (machine, overview):
        marked(tab.page)
    pending = count_of(machine.page, "pending")
    before = int(pending.text_content() or 0)
    for name in ("seen-0", "seen-1", "seen-2"):
        shop.start(name)
    expect(pending).to_have_text(str(before + 3))
    expect(activity(overview)).to_contain_text("seen-2 STARTED")
    shop.send("seen-0", "CANCEL", reason="another mind")
    expect(pending).to_have_text(str(before + 2))
    expect(activity(overview)).to_contain_text("pending → cancel_requested")
    for tab in (machine, overview):
        assert tab.page.evaluate("globalThis.marked")


@pytest.mark.slow
def test_a_timeline_grows_while_one_looks_and_an_opened_detail_stays_open(tab: Tab, shop: Shop) -> None:
    shop.start("watched", "parcel", {"fate": "fine", "label": "a"})
    tab.open("#/workflows/watched")
    marked(tab.page)
    rows = tab.main.locator(".timeline > li")
    first = tab.main.locator(".timeline > li:last-child details")
    first.locator("summary").focus()
    tab.page.keyboard.press("Enter")
    expect(first).to_have_attribute("open", "")
    shop.send("watched", "HAND", key="why", note="fragile")
    expect(rows).to_have_count(2)
    tab.shows("a fragile")
    expect(first).to_have_attribute("open", "")
    expect(first.locator("summary")).to_be_focused()
    assert tab.page.evaluate("globalThis.marked")


@pytest.mark.slow
def test_refusals_failures_and_breakers_are_told_in_words(tab: Tab, shop: Shop) -> None:
    tab.open()
    name = f"without a label {HOSTILE_ID}"
    shop.start(name, "parcel")
    with pytest.raises(RequestError):
        shop.send(name, "HAND", note=HOSTILE)
    expect(activity(tab)).to_contain_text("HAND refused in packed: has_a_label")
    shop.retry("sold-out-1")
    expect(activity(tab)).to_contain_text("step reserve_inventory attempt 1 ended non-retryable")
    for choice in ("open", "auto"):
        shop.client.force_breaker("warehouse", choice)
    expect(activity(tab)).to_contain_text("breaker of warehouse closed → open")
    expect(activity(tab)).to_contain_text("breaker of warehouse open → closed")


def test_an_alert_is_told_in_words(tab: Tab) -> None:
    """What a server tells of only after hours is told to the page in its place."""
    told = (
        'id: x-1\nevent: alert_raised\ndata: {"kind": "stalled", "subject": "o-1", "summary": "o-1 is stalled <i>",'
        ' "machine": "order", "state": "paid", "resolved": false}\n\nid: x-2\nevent: never_heard_of\ndata: {"a": 1}\n\n'
        "id: x-3\nevent: alert_raised\ndata: broken\n\n"
    )
    tab.page.route(STREAM, lambda route: route.fulfill(content_type="text/event-stream", body=told), times=1)
    tab.open()
    expect(activity(tab)).to_contain_text("alert o-1 is stalled <i>")


@pytest.mark.slow
def test_a_stream_that_was_cut_off_goes_on_behind_its_last_event(tab: Tab, shop: Shop) -> None:
    """What happened while nobody listened is in the activity, which only the stream tells."""
    tab.expected = [REFUSED]
    tab.open()
    shop.start("before-the-cut")
    expect(activity(tab)).to_contain_text("before-the-cut")
    tab.context.set_offline(True)
    tab.page.evaluate("import('/ui/live.js').then(({ reconnect }) => reconnect())")
    tab.says("Offline")
    shop.start("during-the-cut")
    tab.context.set_offline(False)
    tab.says("Live")
    expect(activity(tab)).to_contain_text("during-the-cut")
    asked = [each for each in tab.requests if urlsplit(each.url).path == "/v1/stream"]
    assert re.fullmatch(r"\w+-\d+", asked[-1].headers["last-event-id"])


@pytest.mark.slow
def test_without_the_stream_the_page_polls_and_with_it_goes_live_again(tab: Tab, shop: Shop) -> None:
    tab.expected = [REFUSED]
    tab.page.route(STREAM, lambda route: route.fulfill(status=503, json={"title": "no stream now"}))
    tab.page.goto(f"{shop.url}/#/workflows/polled")
    tab.says("Polling")
    expect(tab.main.locator(".problem")).to_contain_text("polled")
    shop.start("polled")
    expect(tab.main.locator("h1")).to_have_text("polled")
    tab.page.unroute(STREAM)
    tab.says("Live")


@pytest.mark.slow
def test_a_server_that_is_gone_leaves_what_was_seen_and_is_found_again(
    tabs: Open, tmp_path: Path, address: HeldPorts
) -> None:
    """It says that what is shown is from before. The same page goes on with the next server at that address."""
    home = f"lanes://{tmp_path}/home"
    held = address.numbers[0]
    with server(home, "--port", str(held), target=served.NAME) as first:
        shop = Shop(first.url)
        shop.start("survivor")
        tab = tabs(f"{first.url}/").open("#/workflows/survivor")
        tab.expected = [REFUSED]
        first.stop()
        tab.says("Offline")
        notice = tab.page.locator("#notice")
        expect(notice).to_contain_text("What is shown is from before.")
        expect(tab.main.locator("h1")).to_have_text("survivor")
    shop.close()
    with server(home, "--port", str(held), target=served.NAME) as second:
        shop = Shop(second.url)
        tab.says("Live")
        expect(notice).to_be_hidden()
        shop.send("survivor", "CANCEL", reason="after the restart")
        tab.shows("after the restart")
        shop.close()
        tab.page.goto("about:blank")


@pytest.mark.slow
def test_a_store_with_a_million_workflows_is_shown_as_such(tab: Tab, pictures: Path | None) -> None:
    """Nobody starts a million workflows for a test: the server's own answer is given with other numbers."""

    def many(route: Route) -> None:
        told = route.fetch().json()
        told["counts"] = {state: 10**6 + 234_567 * place for place, state in enumerate(told["counts"])}
        route.fulfill(json=told)

    tab.page.route("**/v1/machines/order?counts=true", many)
    tab.open("#/machines/order")
    expect(count_of(tab.page, "pending")).to_have_text("1,000,000")
    if pictures is not None:
        tab.page.screenshot(path=pictures / "million-light-1280.png")
    tab.page.goto(f"{tab.url}#/")
    tab.shows("1,234,567")
    for line in tab.main.locator(".bars .number").all():
        assert line.evaluate("(node) => node.scrollWidth <= node.clientWidth")
