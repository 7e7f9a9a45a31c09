"""What an operator does on the dashboard: it asks first, does it at the real server, and shows what became of it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from playwright.sync_api import Locator, expect

from interlock.clock import SystemClock
from interlock.server.security.stores import security_at
from tests.browser.hostile import HOSTILE, HOSTILE_NAME, seen
from tests.browser.shop import Shop
from tests.browser.tabs import REFUSED, Tab


def row_of(tab: Tab, workflow: str) -> Locator:
    return tab.main.get_by_role("row").filter(has_text=workflow)


def letter(tab: Tab, shop: Shop, name: str) -> Locator:
    """A memo that gave up: its row among the dead letters with its error."""
    shop.start(name, "memo", {"text": "to all"})
    shop.send(name, "POST")
    tab.open("#/dead-letters")
    tab.main.get_by_role("link", name="the postman is ill").click()
    row = row_of(tab, name)
    expect(row).to_be_visible()
    return row


def audited(home: str) -> list[object]:
    """What operators have made of something, as it was written down."""

    async def read() -> list[object]:
        security = security_at(home, clock=SystemClock())
        found = [msgspec.json.decode(entry.after) for entry in await security.audit.read()]
        await security.close()
        return found

    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, read()).result()


@pytest.mark.slow
def test_a_dead_letter_is_resolved_with_a_note(tab: Tab, shop: Shop, home: str) -> None:
    """Nothing is done until it is confirmed, and not without a note; the note is in the audit log as it was written."""
    row = letter(tab, shop, "memo-2")
    asked = tab.page.get_by_role("dialog", name="Dealt with?")
    row.get_by_role("button", name="Resolve:").click()
    expect(asked.get_by_label("What you have done")).to_be_focused()
    asked.get_by_role("button", name="Cancel").click()
    expect(asked).to_have_count(0)
    expect(row).to_be_visible()
    row.get_by_role("button", name="Resolve:").click()
    asked.get_by_role("button", name="Resolve").click()
    expect(asked).to_be_visible()  # The note is required.
    asked.get_by_label("What you have done").fill(HOSTILE)
    asked.get_by_role("button", name="Resolve").click()
    expect(asked).to_have_count(0)
    expect(row).to_have_count(0)
    assert "memo-2" not in {each.workflow for each in shop.client.dead_letters()}
    assert {"resolved": HOSTILE} in audited(home)


@pytest.mark.slow
def test_a_dead_letter_is_tried_again(tab: Tab, shop: Shop) -> None:
    """Once more, with the same key; now it goes well, and the letter is gone."""
    row = letter(tab, shop, "memo-1")
    row.get_by_role("button", name="Try again:").click()
    asked = tab.page.get_by_role("dialog", name="Try it again?")
    expect(asked).to_contain_text("the step post of memo-1")
    asked.get_by_role("button", name="Try again").click()
    expect(asked).to_have_count(0)
    expect(row).to_have_count(0)
    assert shop.client.wait("memo-1", "posted", timeout_s=30).state.value == "posted"


@pytest.mark.slow
def test_a_letter_that_is_gone_keeps_the_dialog_and_says_so(tab: Tab, shop: Shop) -> None:
    """Somebody else was faster. What was typed is still there."""
    tab.expected = [REFUSED]
    row = letter(tab, shop, "memo-3")
    row.get_by_role("button", name="Resolve:").click()
    asked = tab.page.get_by_role("dialog", name="Dealt with?")
    asked.get_by_label("What you have done").fill("refunded by hand")
    shop.resolve("memo-3")
    asked.get_by_role("button", name="Resolve").click()
    expect(asked.get_by_role("alert")).to_be_visible()
    expect(asked.get_by_label("What you have done")).to_have_value("refunded by hand")


@pytest.mark.slow
def test_a_breaker_is_held_and_let_go(tab: Tab, shop: Shop) -> None:
    tab.open("#/breakers")
    for label, forced in (("Hold open", "open"), ("Let it decide", None)):
        button = tab.main.get_by_role("button", name=f"{label}: warehouse")
        button.click()
        asked = tab.page.get_by_role("dialog", name=f"{label}: warehouse?")
        asked.get_by_role("button", name=label).click()
        expect(asked).to_have_count(0)
        expect(button).to_have_count(0)
        assert next(each.forced for each in shop.client.breakers() if each.name == "warehouse") == forced


@pytest.mark.slow
def test_a_breaker_whose_name_is_markup_is_named_as_it_is(tab: Tab) -> None:
    tab.open("#/breakers")
    tab.main.get_by_role("button", name=f"Hold closed: {HOSTILE_NAME}").click()
    expect(tab.page.get_by_role("dialog").get_by_role("heading")).to_have_text(f"Hold closed: {seen(HOSTILE_NAME)}?")
    tab.page.keyboard.press("Escape")
    expect(tab.page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.slow
def test_a_schedule_is_paused_triggered_and_resumed(tab: Tab, shop: Shop) -> None:
    tab.open("#/schedules")
    for label, paused, started in (("Pause", True, 0), ("Start one now", True, 1), ("Resume", False, 1)):
        tab.main.get_by_role("button", name=f"{label}: monthly").click()
        asked = tab.page.get_by_role("dialog", name=f"{label}: monthly?")
        asked.get_by_role("button", name=label).click()
        expect(asked).to_have_count(0)
        found = shop.client.schedules.get("monthly")
        assert (found.paused, found.started + found.waiting) == (paused, started)
    tab.shows("monthly.2")


@pytest.mark.slow
def test_a_version_is_forked_into_a_new_workflow(tab: Tab, shop: Shop) -> None:
    """From the row of history, with an id; then its own page is shown. A final version has no such button."""
    shop.start("memo-8", "memo", {"text": "to fork"})
    tab.open("#/workflows/memo-8")
    tab.main.get_by_text("Details").first.click()
    tab.main.get_by_role("button", name="Fork: version 1").click()
    asked = tab.page.get_by_role("dialog", name="Fork version 1 of memo-8?")
    asked.get_by_label("Id of the new workflow").fill("memo-9")
    asked.get_by_role("button", name="Fork").click()
    expect(asked).to_have_count(0)
    expect(tab.page).to_have_title("Workflow memo-9 · Interlock")
    tab.shows("FORKED")
    assert [row.event for row in shop.client.history("memo-9")] == ["FORKED"]
