"""The page of a workflow acts: allowed events with generated forms, reasons for the rest, who was faster (F3)."""

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.hostile import HOSTILE, seen
from tests.browser.shop import Shop
from tests.browser.tabs import REFUSED, Tab


def buy(shop: Shop, name: str, **context: object) -> None:
    """A purchase that waits for a decision."""
    shop.start(name, "purchase", {"customer": HOSTILE, "cents": 500, **context})
    shop.send(name, "PLACE")
    shop.client.wait(name, "review", timeout_s=30)


def sending(tab: Tab, event: str, name: str) -> Locator:
    """The dialog of an event, by a click on its button."""
    tab.main.get_by_role("button", name=f"{event}: {name}").click()
    return tab.page.get_by_role("dialog", name=f"Send {event} to {name}?")


@pytest.mark.slow
def test_an_event_is_sent_by_a_form_of_its_fields(tab: Tab, shop: Shop) -> None:
    """Each type has its field; what is optional and empty is left out; invalid JSON is named and nothing is lost."""
    buy(shop, "amended")
    tab.open("#/workflows/amended")
    asked = sending(tab, "AMEND", "amended")
    asked.get_by_role("button", name="Send").click()  # Two fields are required.
    expect(asked).to_be_visible()
    asked.get_by_label("cents").fill("9007199254740993")
    asked.get_by_label("ribbon").select_option("blue")
    asked.get_by_label("placed_on").fill("2026-02-28")
    asked.get_by_label("urgent").select_option("true")
    asked.get_by_label("tags").fill("nonsense")
    asked.get_by_role("button", name="Send").click()
    expect(asked.get_by_role("alert")).to_contain_text("tags is not JSON.")
    asked.get_by_label("tags").fill('["a", "b"]')
    asked.get_by_role("button", name="Send").click()
    expect(asked).to_have_count(0)
    tab.shows("AMEND")
    context = shop.client.get("amended").context
    assert context == {
        "customer": HOSTILE,
        "cents": 9007199254740993,
        "urgent": True,
        "placed_on": "2026-02-28",
        "fate": "",
        "tags": ["a", "b"],
    }


@pytest.mark.slow
def test_what_is_not_possible_says_why(tab: Tab, shop: Shop) -> None:
    """A guard's refusal stands beside its button, which explains itself; other events say where they are possible."""
    buy(shop, "expensive", cents=100_001)
    tab.open("#/workflows/expensive")
    button = tab.main.get_by_role("button", name="APPROVE: expensive")
    expect(button).to_be_disabled()
    tab.shows("within_the_limit refuses it")
    tab.main.get_by_text("Not possible in review").click()
    tab.shows("only from new")


@pytest.mark.slow
def test_a_conflict_says_who_has_moved_it(tab: Tab, shop: Shop) -> None:
    """Nothing is applied to a workflow that is not what the page has shown; the dialog names the other's event."""
    tab.expected = [REFUSED]
    buy(shop, "contested")
    tab.open("#/workflows/contested")
    asked = sending(tab, "REJECT", "contested")
    asked.get_by_label("reason").fill("too late")
    shop.client.send("contested", "APPROVE", data={"note": ""}, by=HOSTILE[:100])
    asked.get_by_role("button", name="Send").click()
    expect(asked.get_by_role("alert")).to_contain_text("The workflow has moved since this page showed it.")
    expect(asked.get_by_role("alert")).to_contain_text(f"APPROVE by {seen(HOSTILE[:100])}")
    asked.get_by_role("button", name="Cancel").click()
    tab.shows("approved")
    assert [row.event for row in shop.client.history("contested")][-1] == "APPROVE"


@pytest.mark.slow
def test_a_workflow_is_paused_and_resumed(tab: Tab, shop: Shop) -> None:
    buy(shop, "resting")
    tab.open("#/workflows/resting")
    for label, paused in (("Pause", True), ("Resume", False)):
        tab.main.get_by_role("button", name=f"{label}: resting").click()
        asked = tab.page.get_by_role("dialog", name=f"{label} resting?")
        asked.get_by_role("button", name=label).click()
        expect(asked).to_have_count(0)
        assert shop.client.get("resting").paused is paused


@pytest.mark.slow
def test_the_path_and_the_time_of_a_workflow_are_drawn(tab: Tab) -> None:
    """The states that it has been in, the transitions it took, and a bar for each state and attempt."""
    tab.open("#/workflows/order-0009")
    path = tab.main.get_by_role("region", name="The path through the machine")
    expect(path.locator("a.visited")).to_have_count(8)
    expect(path.locator("a.chosen")).to_have_attribute("data-name", "refunded")
    assert path.locator("g.taken").count() == 7
    axis = tab.main.get_by_role("region", name="Time axis")
    expect(axis.locator("g[data-key='state'] .bar")).to_have_count(9)
    expect(axis.locator("g[data-key='step take_payment'] .bar")).to_have_count(2)
    tab.main.get_by_role("link", name="true to scale").click()
    expect(tab.main.get_by_role("link", name="cut out idle time")).to_be_visible()


@pytest.mark.slow
def test_a_group_of_dead_letters_is_resolved_with_one_note(tab: Tab, shop: Shop) -> None:
    """Errors that differ in numbers and names only are one group."""
    for index in range(5):
        shop.start(f"lost-memo-{index}", "memo", {"text": "to all"})
        shop.send(f"lost-memo-{index}", "POST")
    tab.open("#/dead-letters")
    group = tab.main.get_by_role("row").filter(has_text="the postman is ill")
    expect(group).to_contain_text("5")
    group.get_by_role("button", name="Resolve all: 5 dead letters of post").click()
    asked = tab.page.get_by_role("dialog", name="Resolve 5 dead letters of post?")
    asked.get_by_label("What you have done").fill(HOSTILE)
    asked.get_by_role("button", name="Resolve all").click()
    expect(asked).to_have_count(0)
    expect(group).to_have_count(0)
    assert not [each for each in shop.client.dead_letters() if each.workflow.startswith("lost-memo")]
