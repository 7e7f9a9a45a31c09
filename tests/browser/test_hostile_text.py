"""What users wrote is shown as they wrote it and does nothing, wherever it appears; nothing else runs either (B13)."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from interlock.ui import CONTENT_SECURITY_POLICY
from tests.browser.hostile import HOSTILE, HOSTILE_ID, HOSTILE_NAME, seen, seen_in_json
from tests.browser.shop import Shop
from tests.browser.tabs import REFUSED, Tab

PLACES = {
    "an id in a listing": ("#/machines/order?state=refunded", HOSTILE_ID),
    "a context, an event's data and a key": (f"#/workflows/{quote(HOSTILE_ID, safe='')}", seen_in_json(HOSTILE)),
    "a reason to wait": ("#/machines/parcel", HOSTILE_NAME[:20]),
    "an error of an undo": ("#/workflows/cart-kept", seen(HOSTILE)),
    "a group of errors": ("#/dead-letters", "the bank says: <script>"),
    "a value that nobody has": (f"#/find?q={quote(HOSTILE, safe='')}", seen(HOSTILE)),
    "the title of a task": ("#/inbox", seen(HOSTILE)),
    "the name of a breaker": ("#/breakers", HOSTILE_NAME),
}


@pytest.mark.slow
def test_hostile_text_is_text_wherever_it_is_shown(tab: Tab) -> None:
    """Every tab is checked at its end for scripts that ran, dialogs, elements that were made, and other hosts."""
    tab.expected = [REFUSED]
    tab.open()
    for address, text in PLACES.values():
        tab.page.goto(tab.url + address)
        tab.shows(text)
        for detail in tab.main.locator("details > summary").all():
            detail.click()
        tab.check()
    assert "owned" not in tab.page.evaluate("Object.keys(globalThis)")


@pytest.mark.slow
def test_an_id_that_is_markup_is_a_link_to_itself(tab: Tab, shop: Shop) -> None:
    """Also among what happens, which comes by the stream."""
    tab.open()
    name = f"live {HOSTILE_ID}"
    shop.start(name)
    link = tab.main.locator(".activity a.id").filter(has_text="live")
    expect(link).to_have_text(name)
    link.click()
    expect(tab.main.locator("h1")).to_have_text(name)


def test_the_browser_refuses_what_the_page_has_no_business_with(tab: Tab) -> None:
    """The policy is the real server's, on the page and on its scripts, and it holds."""
    answer = tab.page.goto(tab.url)
    assert answer is not None
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    tab.ready()
    refused = tab.page.evaluate(
        """async () => {
            const told = [];
            document.addEventListener("securitypolicyviolation", (event) => told.push(event.effectiveDirective));
            const inline = document.createElement("script");
            try { inline.textContent = "globalThis.owned = 6"; } catch { told.push("script"); }
            document.head.append(inline);
            try { document.body.innerHTML = "<b>"; } catch { told.push("markup"); }
            try { await fetch("http://127.0.0.2:9/"); } catch { told.push("fetch"); }
            await new Promise((resolve) => setTimeout(resolve));
            return told;
        }"""
    )
    assert {"script", "markup", "fetch", "connect-src"} <= set(refused)
    # The browser writes each of them into its console: here they are what was wanted, and the other host was not asked.
    tab.expected = [
        "Refused to",
        "Connecting to",
        "Fetch API cannot load",
        "Loading the",
        "Executing inline",
        "This document requires",
    ]
    tab.requests = [each for each in tab.requests if "127.0.0.2" not in each.url]
