"""Tabs of a real browser, which note everything that goes wrong in them and every address they ask for.

Nothing may go wrong: a tab that has seen an error, a refused script, a dialog or another host fails its test, unless
the test has said what it expects. What a test waits for it asks Playwright's `expect` for, which looks again and again
by itself; a script that the page would have to evaluate is refused by the page's own policy.
"""

import os
import re
import shutil
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, Request, WebError, expect

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 60_000
"""When to give up waiting. Nothing is measured by it: on a busy machine a page takes its time."""

WIDE, NARROW = (1280, 900), (390, 844)
REFUSED = "Failed to load resource"
"""What a browser writes into its console when the server refuses something, or is gone."""

expect.set_options(timeout=WAIT_MS)


def chromium() -> str | None:
    """The browser of this system, or None."""
    named = os.environ.get("INTERLOCK_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Tab:
    """One tab in a context of its own: no storage, no cache and no key of another."""

    def __init__(self, browser: Browser, url: str, *, size: tuple[int, int] = WIDE, theme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(WAIT_MS)
        self.url = url
        self.requests: list[Request] = []
        self.troubles: list[str] = []
        self.expected: list[str] = []
        """Beginnings of troubles that a test brings about itself."""
        # Methods, since Playwright cannot take a builtin such as `list.append`.
        self.context.on("request", self._asked)
        self.context.on("weberror", self._failed)
        self.context.on("dialog", self._interrupted)
        self.context.on("console", self._told)
        self.page: Page = self.context.new_page()

    def _asked(self, request: Request) -> None:
        self.requests.append(request)

    def _failed(self, error: WebError) -> None:
        self.troubles.append(f"error: {error.error}")

    def _interrupted(self, dialog: Dialog) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _told(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.troubles.append(message.text)

    def open(self, view: str = "#/") -> "Tab":
        """Go to a page of the dashboard, and wait until it has its data and hears the stream."""
        self.page.goto(self.url + view)
        return self.ready()

    def ready(self) -> "Tab":
        """Wait for the data of the page, and for the stream."""
        expect(self.main.locator("h1")).to_be_visible()
        self.says("Live")
        return self

    def says(self, status: str) -> None:
        """Wait until it says at the top that it is live, polling or offline."""
        expect(self.page.locator("#live")).to_have_text(status)

    @property
    def main(self) -> Locator:
        """What the page shows."""
        return self.page.locator("main")

    def shows(self, text: str) -> None:
        """Wait until the page has a text, letter by letter."""
        expect(self.main).to_contain_text(re.compile(re.escape(text)))

    def hosts(self) -> set[str]:
        """Every host that anything was asked of."""
        return {urlsplit(each.url).netloc for each in self.requests if not each.url.startswith("data:")}

    def check(self) -> None:
        """Nothing went wrong, nothing that users wrote has run or become an element, and no other host was asked."""
        unexpected = [each for each in self.troubles if not each.startswith(tuple(self.expected))]
        assert not unexpected, unexpected
        assert self.hosts() <= {urlsplit(self.url).netloc}, self.hosts()
        if self.page.url.startswith(self.url):
            assert self.page.evaluate("globalThis.owned") is None
            made = self.main.locator("script, img, style, iframe, object, b, [style], [onclick], [onerror], [onload]")
            assert made.count() == 0
