"""The dashboard for everybody: by keyboard, by a reader of the screen, in the theme of one's choice."""

import pytest
from playwright.sync_api import expect

from tests.browser.hostile import HOSTILE_ID
from tests.browser.tabs import REFUSED, Tab


@pytest.mark.slow
def test_the_page_is_used_by_keyboard_alone(tab: Tab) -> None:
    """The first stop skips the header; a state of the drawing is a link; a new page's heading has the focus."""
    tab.open("#/machines/order")
    keyboard, focused = tab.page.keyboard, tab.page.locator(":focus")
    keyboard.press("Tab")
    expect(focused).to_have_id("skip")
    keyboard.press("Enter")
    expect(focused).to_have_id("main")
    keyboard.press("Tab")
    expect(focused).to_have_attribute("aria-label", "The drawn machine")
    keyboard.press("Tab")
    assert (focused.get_attribute("aria-label") or "").startswith("pending: ")
    keyboard.press("Enter")
    expect(tab.page.locator("#workflows")).to_have_text("Workflows in pending")
    tab.page.get_by_role("link", name="Stalled").focus()
    keyboard.press("Enter")
    expect(focused).to_have_text("Stalled")
    expect(tab.main.locator("h1")).to_be_focused()


def test_whatever_has_the_focus_can_be_seen_to_have_it(tab: Tab) -> None:
    tab.open("#/breakers")
    seen: set[str] = set()
    for _ in range(40):
        tab.page.keyboard.press("Tab")
        about = tab.page.evaluate(
            "(() => { const { activeElement: at } = document; const style = getComputedStyle(at);"
            " return [at.outerHTML.slice(0, 200), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]"
            "})()"
        )
        assert about[1] or about[0].startswith("<body"), about[0]
        seen.add(about[0])
    assert len(seen) > 15


def test_landmarks_headings_and_fields_have_names(tab: Tab) -> None:
    """One banner, one main part, named navigation, one heading of the first level, and a label for each control."""
    for view in ("#/", "#/machines/order", "#/workflows/order-0009", "#/dead-letters"):
        tab.open(view)
        page = tab.page
        assert page.locator("html").get_attribute("lang") == "en"
        for role in ("banner", "main"):
            expect(page.get_by_role(role)).to_have_count(1)
        expect(page.get_by_role("navigation", name="Pages", exact=True)).to_have_count(1)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("textbox", name="Open a workflow by its id")).to_have_count(1)
        expect(page.get_by_role("status")).to_have_count(1)
        unnamed = (
            "(nodes) => nodes.filter((node) => !(node.getAttribute('aria-label') || node.textContent).trim()).length"
        )
        assert page.locator("button, a").evaluate_all(unnamed) == 0
        assert page.locator("[id]").evaluate_all("(all) => all.length - new Set(all.map(({ id }) => id)).size") == 0


def test_a_table_is_one_for_a_reader_of_the_screen_also_where_it_is_laid_out_as_cards(tab: Tab) -> None:
    tab.open("#/stalled")
    for width in (1280, 390):
        tab.page.set_viewport_size({"width": width, "height": 800})
        found = tab.page.get_by_role("table", name="Stalled workflows")
        expect(found.get_by_role("columnheader", include_hidden=True)).to_have_count(8)
        expect(found.get_by_role("row", name="forgotten-1")).to_have_count(1)


@pytest.mark.slow
def test_a_workflow_is_opened_by_its_id_and_an_unknown_one_is_explained(tab: Tab) -> None:
    tab.expected = [REFUSED]
    tab.open()
    field = tab.page.get_by_role("textbox", name="Open a workflow by its id")
    for name, selector in ((HOSTILE_ID, "h1"), ("nobody", ".problem h2"), ("no/body", ".problem h2")):
        field.fill(name)
        field.press("Enter")
        expect(tab.main.locator(selector)).to_contain_text(name)


def test_an_address_that_is_none_of_a_page_says_so(tab: Tab) -> None:
    tab.expected = [REFUSED]
    tab.page.goto(f"{tab.url}#/nowhere")
    expect(tab.main.locator("h1")).to_have_text("No such page")
    tab.page.goto(f"{tab.url}#/machines/nothing")
    expect(tab.main.locator(".problem")).to_contain_text("nothing")


def test_the_theme_follows_the_system_until_somebody_chooses(tab: Tab) -> None:
    tab.open()
    html, button = tab.page.locator("html"), tab.page.locator("#theme")
    for scheme in ("dark", "light"):
        tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        expect(html).to_have_attribute("data-theme", scheme)
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    tab.page.reload()
    expect(html).to_have_attribute("data-theme", "dark")
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(11, 15, 20)"
