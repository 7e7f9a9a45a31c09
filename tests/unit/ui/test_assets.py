"""The files of the dashboard as answers: what they are, that they may be kept, and that they can do no harm (B13)."""

import re

import pytest

from interlock.core.diagrams import svg
from interlock.examples.order import order
from interlock.ui import CONTENT_SECURITY_POLICY, PAGE, Asset, answer, assets

ALL = sorted(assets().items())
SCRIPTS = [asset for path, asset in ALL if path.endswith(".js")]


def text(path: str) -> str:
    return assets()[path].body.decode()


def test_the_page_is_at_the_root_and_all_it_names_is_there() -> None:
    """Everything is named relatively: the server may be mounted below a path of another program."""
    named = re.findall(r'(?:src|href)="(?!#)([^"]+)"', text(PAGE))
    assert "ui/app.js" in named
    assert all(f"/{each}" in assets() for each in named if each != "docs")


@pytest.mark.parametrize("asset", SCRIPTS, ids=lambda asset: str(asset.path))
def test_every_module_that_a_module_imports_is_there(asset: Asset) -> None:
    folder = asset.path.rpartition("/")[0]
    for each in re.findall(r'^import [^;]*?"([^"]+)";', asset.body.decode(), re.MULTILINE):
        above, path = each.count("../"), each.replace("../", "").removeprefix("./")
        place = folder.rsplit("/", above)[0] if above else folder
        assert f"{place}/{path}" in assets(), f"{asset.path} imports {each}"


def test_an_answer_has_a_type_a_tag_and_the_policy() -> None:
    found = answer("/ui/app.js")
    assert found is not None
    headers = dict(found.headers)
    assert found.status == 200
    assert headers["content-type"] == "text/javascript; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY


def test_the_empty_path_of_a_mounted_app_is_the_page() -> None:
    assert answer("") == answer("/")


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', "*"])
def test_what_the_browser_has_is_not_sent_again(form: str) -> None:
    tag = assets()[PAGE].etag
    found = answer(PAGE, form.format(tag))
    assert found is not None
    assert (found.status, found.body) == (304, b"")
    assert ("etag", tag) in found.headers


def test_what_has_changed_is_sent_again() -> None:
    found = answer(PAGE, '"of the release before"')
    assert found is not None
    assert (found.status, found.body) == (200, assets()[PAGE].body)


@pytest.mark.parametrize("path", ["/ui/", "/ui/none.js", "/ui/../assets.py", "/ui/index.html", "/index.html", "/v1"])
def test_nothing_else_is_served(path: str) -> None:
    assert answer(path) is None


def test_the_policy_allows_this_server_and_nothing_inline() -> None:
    rules = dict(rule.partition(" ")[::2] for rule in CONTENT_SECURITY_POLICY.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_the_page_has_nothing_inline() -> None:
    page = text(PAGE)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)


@pytest.mark.parametrize("asset", [asset for _, asset in ALL], ids=lambda asset: str(asset.path))
def test_no_file_names_another_host(asset: Asset) -> None:
    written = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import|url\(", written)


@pytest.mark.parametrize("asset", SCRIPTS, ids=lambda asset: str(asset.path))
def test_no_script_makes_markup_from_text(asset: Asset) -> None:
    """What users wrote is shown by text nodes. One place may parse, and only what the server has drawn."""
    code = asset.body.decode()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", code)
    assert asset.path == "/ui/drawing.js" or "DOMParser" not in code


@pytest.mark.parametrize("asset", SCRIPTS, ids=lambda asset: str(asset.path))
def test_a_script_is_small_and_says_what_it_is_for(asset: Asset) -> None:
    lines = asset.body.decode().splitlines()
    assert lines[0].startswith("// ")
    assert len(lines) <= 600
    assert max(map(len, lines)) <= 180


def test_the_key_is_kept_by_the_tab_and_nothing_else() -> None:
    """Only the theme and saved views outlive the tab, and no cookie is ever set."""
    keeping = {
        asset.path for asset in SCRIPTS if re.search(r"localStorage|document\.cookie|indexedDB", asset.body.decode())
    }
    assert keeping == {"/ui/theme.js", "/ui/saved.js"}
    assert "sessionStorage" in text("/ui/api.js")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_of_a_drawing_follow_the_theme_of_the_page(theme: str) -> None:
    """Every class of a drawn machine has its rule, in both themes."""
    styles = text("/ui/diagram.css")
    part = styles.split(f':root[data-theme="{theme}"]')[1].split(":root")[0]
    drawn = {name for names in re.findall(r'class="([^"]+)"', svg(order.describe())) for name in names.split()}
    unstyled = {"interlock-auto", "arrow"}
    assert drawn - unstyled
    assert all(re.search(rf"\.interlock-{theme} [^{{]*\.{name}\b", part) for name in drawn - unstyled)


@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        *((ink, paper) for ink in ("text", "soft", "link", "bad", "good") for paper in ("page", "card", "hover")),
        *((name, f"{name}-fill") for name in ("good", "warn", "bad", "step", "final")),
        ("strong-text", "strong"),
    ],
)
def test_every_text_is_legible_in_both_themes(ink: str, paper: str) -> None:
    """The contrast is at least 4.5, as WCAG 2.2 AA asks."""
    colours = dict(re.findall(r"--([a-z-]+): light-dark\(([^)]+)\);", text("/ui/style.css")))
    for one, other in zip(colours[ink].split(", "), colours[paper].split(", "), strict=True):
        assert contrast(one, other) >= 4.5, f"{one} on {other}"


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
