"""Finding workflows: one box, filters that are the address, pages both ways, saved views, and the keyboard (F7)."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.hostile import HOSTILE, seen
from tests.browser.shop import Shop
from tests.browser.tabs import REFUSED, Tab

AT = "#/machines/purchase"


def rows(tab: Tab) -> Locator:
    return tab.main.get_by_role("table", name="Workflows").locator("tbody tr")


def ids(tab: Tab) -> list[str]:
    return rows(tab).locator("a.id").all_inner_texts()


def test_a_customer_is_found_by_the_box_at_the_top(tab: Tab, shop: Shop) -> None:
    """What is no id is looked up in the searchable fields of every machine; the group is a link to the filter."""
    del shop
    tab.expected = [REFUSED]
    tab.open()
    tab.page.keyboard.press("/")
    expect(tab.page.locator("#open-id")).to_be_focused()
    tab.page.keyboard.type("ad")
    tab.page.keyboard.press("Enter")
    found = tab.main.get_by_role("table", name="purchase by customer")
    expect(found.locator("tbody tr")).to_have_count(3)
    tab.main.get_by_role("link", name="as a filter").click()
    expect(rows(tab)).to_have_count(3)
    expect(tab.main.get_by_role("list", name="Conditions")).to_contain_text('customer prefix "ad"')


@pytest.mark.slow
def test_a_filter_is_the_address_and_can_be_gone_back_to(tab: Tab) -> None:
    """Conditions have the operators of their type; each is removed by itself; the back button takes back a step."""
    tab.open(f"{AT}?where=placed_on%3C%3D2026-01-31")
    form = tab.main.get_by_role("form", name="Filter")
    form.get_by_label("Field").select_option("cents")
    expect(form.get_by_label("Operator").locator("option")).to_have_text(
        ["is", "≥", "≤", ">", "<", "is not", "is one of"]
    )
    form.get_by_label("Operator").select_option("≥")
    form.get_by_label("Value").fill("100000")
    form.get_by_role("button", name="Add condition").click()
    second = form.get_by_role("group", name="Condition").nth(1)
    second.get_by_label("Field").select_option("urgent")
    second.get_by_label("Value").select_option("true")
    form.get_by_label("Sort by").select_option("-cents")
    form.get_by_role("button", name="Apply").click()
    expect(rows(tab)).to_have_count(3)
    assert sorted(ids(tab)) == ["purchase-0", "purchase-4", "purchase-6"]
    assert "where=cents%3E%3D100000&where=urgent%3Dtrue&order=-cents" in tab.page.url
    tab.page.reload()
    expect(rows(tab)).to_have_count(3)
    tab.main.get_by_role("link", name="Remove the condition urgent=true").click()
    expect(rows(tab)).to_have_count(6)
    tab.page.go_back()
    expect(rows(tab)).to_have_count(3)


@pytest.mark.slow
def test_a_view_is_saved_under_a_name_and_removed(tab: Tab) -> None:
    tab.open(f"{AT}?where=customer=bob")
    tab.main.get_by_role("button", name="Save view").click()
    asked = tab.page.get_by_role("dialog", name="Save this view?")
    asked.get_by_label("Name").fill(HOSTILE[:60])
    asked.get_by_role("button", name="Save").click()
    expect(asked).to_have_count(0)
    tab.open("#/workflows")
    kept = tab.main.get_by_role("list", name="Saved views").get_by_role("link")
    expect(kept).to_have_text(seen(HOSTILE[:60]))
    kept.click()
    expect(tab.main.get_by_role("list", name="Conditions")).to_contain_text("customer=bob")
    tab.main.get_by_role("button", name="Remove the view").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(kept).to_have_count(0)


@pytest.mark.slow
def test_pages_are_turned_both_ways(tab: Tab) -> None:
    """The way back is in the address, too: it holds after a reload."""
    tab.open("#/machines/order")
    first = ids(tab)
    turn = tab.main.get_by_role("navigation", name="Pages of workflows")
    for _ in range(2):
        before = ids(tab)[0]
        turn.get_by_role("link", name="Next page").click()
        expect(rows(tab).locator("a.id").first).not_to_have_text(before)
    tab.page.reload()
    tab.ready()
    for _ in range(2):
        before = ids(tab)[0]
        turn.get_by_role("link", name="Previous page").click()
        expect(rows(tab).locator("a.id").first).not_to_have_text(before)
    assert ids(tab) == first
    expect(turn.get_by_role("link", name="Previous page")).to_have_count(0)


@pytest.mark.slow
def test_the_keyboard_reaches_pages_and_rows_and_explains_itself(tab: Tab) -> None:
    tab.open()
    keys = tab.page.keyboard
    keys.press("?")
    told = tab.page.get_by_role("dialog", name="Keyboard")
    expect(told).to_contain_text("Dead letters")
    keys.press("Escape")
    expect(told).to_have_count(0)
    keys.press("g")
    keys.press("w")
    expect(tab.main.locator("h1")).to_have_text("Workflows")
    expect(rows(tab).first).to_be_visible()
    for key in ("j", "j", "k", "j"):
        keys.press(key)
    second = ids(tab)[1]
    expect(tab.page.locator(":focus")).to_have_text(second)
    keys.press("Enter")
    expect(tab.page).to_have_title(re.compile(re.escape(second)))
