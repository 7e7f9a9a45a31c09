"""The parts of the dashboard that can be wrong on their own, asked inside the browser they are written for."""

import json
from collections.abc import Generator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.shop import Shop


@pytest.fixture(scope="module")
def page(browser: Browser, shop: Shop) -> Generator[Page]:
    """One page for all of them: they ask for functions and leave nothing behind."""
    context = browser.new_context()
    found = context.new_page()
    found.goto(f"{shop.url}/#/breakers")
    yield found
    context.close()


def asked(page: Page, script: str) -> object:
    """What a piece of script says on the dashboard's own page."""
    return page.evaluate(f"async () => {{ {script} }}")


def test_the_stream_is_read_in_pieces_of_any_size(page: Page) -> None:
    """The rules of server-sent events: comments, three ends of line, several lines of data, an id without data."""
    stream = ": hello\n\nid: 7\nevent: moved\ndata: 1\r\ndata: 2\r\n\r\ndata:3\rdata\r\rid: 8\nretry: 5\n\n"
    script = f"""
        const {{ Parser }} = await import('/ui/live.js');
        const text = {json.dumps(stream)};
        return [1, 2, 3, 7, 1000].map((size) => {{
            const told = [];
            const parser = new Parser(({{ id, type, text }}) => told.push([id, type, text]));
            for (let at = 0; at < text.length; at += size) parser.feed(text.slice(at, at + size));
            return told;
        }});
    """
    told = [[None, "message", ""], ["7", "moved", "1\n2"], ["7", "message", "3\n"], ["8", "message", ""]]
    assert asked(page, script) == [told] * 5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.25, "250 ms"), (4, "4 s"), (65, "1 min 5 s"), (3600, "1 h"), (7_500, "2 h 5 min"), (1e6, "11 d")],
)
def test_a_duration_is_said_in_at_most_two_units(page: Page, seconds: float, text: str) -> None:
    assert asked(page, f"return (await import('/ui/time.js')).duration({seconds})") == text


def test_a_value_in_a_path_stays_one_part_of_it(page: Page) -> None:
    script = "const { at } = await import('/ui/api.js'); return at`v1/workflows/${'a/b?c#d%2F ü'}/history`"
    assert asked(page, script) == "v1/workflows/a%2Fb%3Fc%23d%252F%20%C3%BC/history"


def test_a_number_that_javascript_cannot_hold_is_shown_as_it_is_stored(page: Page) -> None:
    script = """
        const { call } = await import('/ui/api.js');
        const { json } = await import('/ui/parts.js');
        const { fetch } = globalThis;
        globalThis.fetch = async () => new Response('{"cents": 9007199254740993, "share": 0.1, "few": 3}');
        const told = await call('v1/breakers');
        globalThis.fetch = fetch;
        return [json(told.cents).textContent, told.share, told.few];
    """
    assert asked(page, script) == ["9007199254740993", 0.1, 3]


def test_a_redrawn_list_keeps_its_elements_and_takes_new_handlers(page: Page) -> None:
    script = """
        const { el, show } = await import('/ui/dom.js');
        const list = document.body.appendChild(el('ul'));
        const clicked = [];
        const item = (key, mark) => el('li', { 'data-key': key, onclick: () => clicked.push(mark) }, key);
        show(list, item('a', 1), item('b', 1), item('c', 1));
        const [, b] = list.children;
        show(list, item('new', 2), item('c', 2), item('b', 2));
        b.click();
        list.remove();
        return [[...list.children].map((each) => each.textContent), [...list.children].indexOf(b), clicked];
    """
    assert asked(page, script) == [["new", "c", "b"], 2, [2]]


def test_what_would_turn_text_around_is_shown_by_its_number(page: Page) -> None:
    script = "const { el } = await import('/ui/dom.js'); return el('p', {}, 'a\\u202eb\\u2069 \\u200f').textContent"
    assert asked(page, script) == "a\\u202eb\\u2069 \u200f"
