"""The browser, the server and the tabs of these tests.

All of it belongs to this folder and not to the whole session: while Playwright waits between two calls, its event loop
counts as running in this thread, and no other test could run one of its own.
"""

import asyncio
import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import served
from tests.browser.shop import Shop, long_ago
from tests.browser.tabs import ARGUMENTS, WIDE, Tab, chromium
from tests.integration.server.running import server

Open = Callable[..., Tab]


@pytest.fixture(scope="package")
def browser() -> Generator[Browser]:
    """One browser. Without one the tests are skipped, or failed where everything has to run."""
    program = chromium()
    if program is None:
        reason = "there is no Chromium here: install the package chromium, or name one by INTERLOCK_CHROMIUM"
        if os.environ.get("INTERLOCK_CI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the shop has its workflows, some of them for days."""
    found = f"lanes://{tmp_path_factory.mktemp('shop')}/home"
    # In a thread, since this one may have an event loop already.
    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, long_ago(found)).result()
    return found


@pytest.fixture(scope="package")
def shop(browser: Browser, home: str) -> Generator[Shop]:
    """A server with a busy day behind it. A test leaves it as it was, but for workflows of its own."""
    del browser  # Without one there is nothing to serve for.
    with server(home, target=served.NAME) as running:
        opened = Shop(running.url)
        try:
            opened.fill()
            yield opened
        finally:
            opened.close()


@pytest.fixture
def tabs(browser: Browser) -> Generator[Open]:
    """Open tabs; at the end each of them is checked and closed."""
    opened: list[Tab] = []

    def tab(url: str, *, size: tuple[int, int] = WIDE, theme: str = "light") -> Tab:
        opened.append(Tab(browser, url, size=size, theme=theme))
        return opened[-1]

    yield tab
    try:
        for each in opened:
            each.check()
    finally:
        for each in opened:
            each.context.close()


@pytest.fixture
def tab(tabs: Open, shop: Shop) -> Tab:
    """A wide, light tab at the shop."""
    return tabs(f"{shop.url}/")


@pytest.fixture
def pictures() -> Path | None:
    """Where to put pictures of the pages, for people who want to look: INTERLOCK_SCREENSHOTS names a folder."""
    named = os.environ.get("INTERLOCK_SCREENSHOTS")
    return None if named is None else Path(named)
