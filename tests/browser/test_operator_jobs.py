"""Six jobs of an operator who has never seen the dashboard, by clicking and reading alone (F2, F3, F5, F6, F7)."""

import pytest
from playwright.sync_api import expect

from tests.browser.hostile import HOSTILE, seen
from tests.browser.shop import Shop
from tests.browser.tabs import REFUSED, Tab


def buy(shop: Shop, name: str, **context: object) -> None:
    """A purchase that is placed."""
    shop.start(name, "purchase", {"customer": "eve", "cents": 700, **context})
    shop.send(name, "PLACE")


@pytest.mark.slow
def test_an_order_of_a_customer_is_found_and_approved_as_a_task(tab: Tab, shop: Shop) -> None:
    """The task is claimed and decided with a name, which the history has; then it is gone from the inbox."""
    tab.expected = [REFUSED]
    customer = f"eve {HOSTILE}"[:60]
    buy(shop, "task-1", customer=customer)
    shop.client.wait("task-1", "review", timeout_s=30)
    tab.open()
    tab.page.locator("#open-id").fill(customer)
    tab.page.keyboard.press("Enter")
    expect(tab.main.get_by_role("link", name="task-1")).to_be_visible()
    tab.page.get_by_role("link", name="Inbox", exact=True).click()
    tab.main.get_by_role("button", name="Change name").click()
    asked = tab.page.get_by_role("dialog")
    asked.get_by_label("Name").fill("ada")
    asked.get_by_role("button", name="Use this name").click()
    row = tab.main.get_by_role("row").filter(has_text="Approve 700 for eve")
    expect(row).to_contain_text(seen(customer))
    row.get_by_role("button", name="Claim:").click()
    asked.get_by_role("button", name="Claim", exact=True).click()
    expect(row.get_by_role("button", name="Release:")).to_be_visible()
    expect(row).to_contain_text("ada")
    row.get_by_role("button", name="APPROVE:").click()
    asked.get_by_label("note").fill(HOSTILE)
    asked.get_by_role("button", name="APPROVE", exact=True).click()
    expect(asked).to_have_count(0)
    expect(row).to_have_count(0)
    last = list(shop.client.history("task-1"))[-1]
    assert last.event == "APPROVE"
    assert (last.by or "").startswith("ada")


@pytest.mark.slow
def test_a_task_that_another_has_claimed_or_decided_says_who(tab: Tab, shop: Shop) -> None:
    tab.expected = [REFUSED]
    buy(shop, "task-2", cents=800)
    shop.client.wait("task-2", "review", timeout_s=30)
    tab.open("#/inbox")
    row = tab.main.get_by_role("row").filter(has_text="Approve 800 for eve")
    asked = tab.page.get_by_role("dialog")
    shop.client.claim_task("task-2@3", by="bob")
    row.get_by_role("button", name="Claim:").click()
    asked.get_by_role("button", name="Claim", exact=True).click()
    expect(asked.get_by_role("alert")).to_contain_text("bob")
    asked.get_by_role("button", name="Cancel").click()
    row.get_by_role("button", name="REJECT:").click()
    expect(asked).to_contain_text("bob has claimed it")
    asked.get_by_label("reason").fill("no")
    shop.client.send("task-2", "APPROVE", data={"note": ""}, by=HOSTILE[:90])
    asked.get_by_role("button", name="REJECT", exact=True).click()
    expect(asked.get_by_role("alert")).to_contain_text(f"It is decided already: APPROVE by {seen(HOSTILE[:90])}")
    asked.get_by_role("button", name="Cancel").click()
    expect(row).to_have_count(0)


@pytest.mark.slow
def test_dead_letters_of_one_error_are_retried_after_a_dry_run(tab: Tab, shop: Shop) -> None:
    """It says why one is stuck, and the run has a page of its own with its progress."""
    names = [f"outage-{index}" for index in range(6)]
    for name in names:
        buy(shop, name, fate="down")
    tab.open("#/dead-letters")
    group = tab.main.get_by_role("row").filter(has_text="gateway … is down")
    group.get_by_role("link", name="gateway").click()
    tab.main.get_by_role("link", name="outage-0").click()
    expect(tab.main.locator(".why")).to_contain_text("It waits for an operator.")
    tab.page.get_by_role("link", name="Dead letters", exact=True).click()
    group.get_by_role("button", name="Try all again").click()
    asked = tab.page.get_by_role("dialog")
    run = f"retry {HOSTILE[:60]}".replace("/", "|")
    asked.get_by_label("Name of the run").fill(run)
    expect(asked.get_by_role("button", name="Start")).to_be_disabled()
    asked.get_by_role("button", name="Dry run").click()
    expect(asked.locator(".result")).to_contain_text("dead letters that match would be tried again.")
    asked.get_by_role("button", name="Start").click()
    expect(tab.main.locator("h1")).to_have_text(seen(run))
    expect(tab.main.locator(".heading .chip")).to_have_text("done")
    for name in names:
        shop.client.wait(name, "review", timeout_s=30)
    tab.main.get_by_role("link", name="All bulk runs").click()
    expect(tab.main.get_by_role("row").filter(has_text=run)).to_contain_text("done")


@pytest.mark.slow
def test_an_event_is_sent_to_all_that_a_filter_finds(tab: Tab, shop: Shop) -> None:
    """What was typed after a dry run needs another one; the refused are counted by their reason."""
    for index in range(3):
        buy(shop, f"crowd-{index}", customer="zoe", cents=900 + index)
        shop.client.wait(f"crowd-{index}", "review", timeout_s=30)
    shop.client.send("crowd-0", "APPROVE", data={"note": ""})
    tab.open("#/machines/purchase?where=customer=zoe")
    tab.main.get_by_role("button", name="Send an event:").click()
    asked = tab.page.get_by_role("dialog")
    asked.get_by_label("Event").select_option("APPROVE")
    asked.get_by_role("button", name="Dry run").click()
    expect(asked.locator(".result")).to_contain_text("2 of 3 workflows that match would be moved.")
    expect(asked.get_by_role("list", name="Refused")).to_contain_text("crowd-0")
    asked.get_by_label("note").fill("all of them")
    expect(asked.get_by_role("button", name="Start")).to_be_disabled()
    asked.get_by_role("button", name="Dry run").click()
    asked.get_by_role("button", name="Start").click()
    expect(tab.main.locator(".heading .chip")).to_have_text("done")
    tab.shows("2 of 3 moved.")
    assert {shop.client.get(f"crowd-{index}").state.value for index in range(3)} == {"approved"}


@pytest.mark.slow
def test_a_workflow_is_set_back_to_before_the_charge(tab: Tab, shop: Shop) -> None:
    """The dry run says what is undone; then it is there, and the history has the reason."""
    buy(shop, "rewound")
    shop.client.wait("rewound", "review", timeout_s=30)
    tab.open("#/workflows/rewound")
    tab.main.get_by_role("button", name="Rewind to here: version 1").click()
    asked = tab.page.get_by_role("dialog")
    asked.get_by_label("Why").fill(HOSTILE)
    asked.get_by_role("button", name="Dry run").click()
    expect(asked.locator(".undos")).to_have_text("charge after CHARGED")
    assert shop.client.get("rewound").version == 3
    asked.get_by_role("button", name="Set it back").click()
    expect(asked).to_have_count(0)
    expect(tab.main.locator(".heading .chip")).to_have_text("new")
    tab.shows("REWOUND")


@pytest.mark.slow
def test_the_overview_says_when_attempts_have_failed(tab: Tab, shop: Shop) -> None:
    """Charts of the store, in words too; the range is in the address."""
    buy(shop, "failed-for-the-chart", fate="down")
    tab.open("#/?range=1h")
    chart = tab.main.get_by_role("figure").filter(has_text="Failures per minute")
    expect(chart).to_contain_text("Most failures between")
    expect(tab.main.get_by_role("figure")).to_have_count(3)
    tab.main.get_by_role("group", name="Range").get_by_role("link", name="24h").click()
    expect(tab.main.get_by_role("figure").filter(has_text="Failures per 5 minutes")).to_be_visible()
    assert tab.page.url.endswith("range=24h")
