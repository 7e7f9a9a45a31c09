"""The dashboard of a server with API keys: it asks, keeps the key in the tab, and says what a key may not do."""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from playwright.sync_api import Locator, Route, expect

from interlock.clock import SystemClock, SystemSecrets
from interlock.server.security.keys import CreatedKey, Scope, checked_limits, make_key
from interlock.server.security.stores import security_at
from tests.browser import served
from tests.browser.conftest import Open
from tests.browser.tabs import REFUSED, Tab
from tests.integration.server.running import server


class Guarded(NamedTuple):
    """A server with keys."""

    url: str
    operate: str
    read: str
    limited: str


async def keep(home: str, *keys: CreatedKey) -> None:
    """Write keys to a home, as `interlock keys create` does."""
    security = security_at(home, clock=SystemClock())
    for each in keys:
        await security.keys.add(each.record)
    await security.close()


def key_for(scope: Scope, *machines: str) -> CreatedKey:
    now = datetime.fromtimestamp(SystemClock().wall_s(), UTC)
    return make_key(SystemSecrets(), name="", scopes=(scope,), limits=checked_limits(machines, ()), now=now)


@pytest.fixture(scope="module")
def guarded(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Generator[Guarded]:
    """A server of a home that has three keys."""
    del browser
    home = f"lanes://{tmp_path_factory.mktemp('guarded')}/home"
    keys = key_for(Scope.OPERATE), key_for(Scope.READ), key_for(Scope.READ, "order")
    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, keep(home, *keys)).result()
    with server(home, target=served.NAME) as running:
        yield Guarded(running.url, *(each.key.reveal() for each in keys))


@pytest.fixture
def locked(tabs: Open, guarded: Guarded) -> Tab:
    """A tab that has just come, and has no key."""
    tab = tabs(f"{guarded.url}/")
    tab.expected = [REFUSED]
    return tab


def dialog(tab: Tab) -> Locator:
    return tab.page.get_by_role("dialog", name="API key")


def enter(tab: Tab, key: str) -> None:
    """The dialog has the focus: a key can be pasted at once."""
    field = dialog(tab).get_by_label("Key")
    expect(field).to_be_focused()
    field.fill(key)
    tab.page.keyboard.press("Enter")


def test_a_key_is_asked_for_sent_as_bearer_and_kept_by_the_tab_alone(locked: Tab, guarded: Guarded) -> None:
    tab = locked
    tab.page.goto(f"{guarded.url}/#/breakers")
    enter(tab, guarded.operate)
    tab.ready()
    tab.shows("warehouse")
    expect(dialog(tab)).to_have_count(0)
    assert tab.page.evaluate("Object.values(sessionStorage)") == [guarded.operate]
    outside = tab.page.evaluate("JSON.stringify(localStorage) + document.cookie + document.body.outerHTML")
    assert guarded.operate not in outside
    assert not [each.url for each in tab.requests if guarded.operate in each.url]
    assert tab.requests[-1].headers["authorization"] == f"Bearer {guarded.operate}"
    tab.page.reload()
    tab.ready()
    assert dialog(tab).count() == 0


def test_a_wrong_key_is_said_to_be_wrong_and_the_right_one_opens(locked: Tab, guarded: Guarded) -> None:
    """A wrong key is not sent again and again: that would look like an attack."""
    tab = locked
    tab.page.goto(f"{guarded.url}/")
    enter(tab, "ilk_wrong_wrong")
    expect(tab.main.locator(".problem")).to_contain_text("key")
    expect(dialog(tab)).to_be_visible()
    told = dialog(tab).inner_text()
    assert "ilk_wrong" not in told
    enter(tab, guarded.read)
    tab.ready()
    expect(tab.page.locator("#key")).to_have_text("API key: set")


def test_a_late_refusal_of_the_former_key_does_not_lock_the_page(locked: Tab, guarded: Guarded) -> None:
    """The stream's refusal asks for another key while the page's own request with the wrong one is still under way."""
    tab = locked
    late: list[Route] = []

    def hold_the_wrong_key(route: Route) -> None:
        request = route.request
        if request.headers.get("authorization") == "Bearer ilk_wrong_wrong" and "/stream" not in request.url:
            late.append(route)
        else:
            route.continue_()

    tab.page.route("**/v1/**", hold_the_wrong_key)
    tab.page.goto(f"{guarded.url}/")
    enter(tab, "ilk_wrong_wrong")
    expect(tab.page.locator("#key")).to_have_text("API key: set")
    enter(tab, guarded.read)
    expect(dialog(tab)).to_have_count(0)
    assert late
    for route in late:
        route.continue_()
    tab.ready()


@pytest.mark.slow
def test_who_says_no_is_not_asked_again_until_the_button_is_pressed(locked: Tab, guarded: Guarded) -> None:
    tab = locked
    tab.page.goto(f"{guarded.url}/")
    expect(dialog(tab)).to_be_visible()
    tab.page.keyboard.press("Escape")
    expect(dialog(tab)).to_have_count(0)
    expect(tab.main.get_by_role("button", name="Try again")).to_be_visible()
    tab.page.locator("#key").click()
    enter(tab, guarded.read)
    tab.ready()
    tab.page.locator("#key").click()
    enter(tab, "")
    assert tab.page.evaluate("sessionStorage.length") == 0
    expect(tab.page.locator("#key")).to_have_text("API key")


def test_an_action_that_the_key_does_not_allow_is_off_and_says_why(locked: Tab, guarded: Guarded) -> None:
    tab = locked
    tab.page.goto(f"{guarded.url}/#/breakers")
    enter(tab, guarded.read)
    tab.ready()
    button = tab.main.get_by_role("button", name="Hold open: warehouse")
    expect(button).to_be_disabled()
    button.focus()
    tab.page.keyboard.press("Enter")  # It is off for a reader of the screen, and can still be reached.
    told = tab.page.get_by_role("dialog", name="Not possible: Hold open")
    expect(told).to_contain_text("This needs a key of scope operate;")
    told.get_by_role("button", name="Close").click()
    expect(told).to_have_count(0)


def test_a_key_that_is_limited_sees_its_machine_and_the_rest_is_left_out(locked: Tab, guarded: Guarded) -> None:
    tab = locked
    tab.page.goto(f"{guarded.url}/")
    enter(tab, guarded.limited)
    tab.ready()
    tab.shows("order")
    expect(tab.main.locator(".card h2 > a")).to_have_text(["order"])
