"""Every response says how a browser must treat it, and none is open to other origins."""

import pytest

from interlock.server.http_messages import API_HEADERS, PAGE_HEADERS, PAGE_POLICY


@pytest.mark.parametrize("headers", [API_HEADERS, PAGE_HEADERS])
def test_names_are_in_lower_case_and_once(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    names = [name for name, _ in headers]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)


@pytest.mark.parametrize("headers", [API_HEADERS, PAGE_HEADERS])
def test_nothing_is_sniffed_framed_or_told_to_others(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    found = dict(headers)
    assert found[b"x-content-type-options"] == b"nosniff"
    assert found[b"referrer-policy"] == b"no-referrer"
    assert b"frame-ancestors 'none'" in found[b"content-security-policy"]
    assert found[b"cross-origin-resource-policy"] == b"same-origin"
    assert not [name for name in found if name.startswith(b"access-control-")]


def test_a_page_runs_no_inline_script_and_nothing_from_elsewhere() -> None:
    policy = dict(part.strip().partition(" ")[::2] for part in PAGE_POLICY.split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in PAGE_POLICY
    assert "*" not in PAGE_POLICY
    assert "http" not in PAGE_POLICY


def test_answers_with_data_are_not_kept_by_caches() -> None:
    assert dict(API_HEADERS)[b"cache-control"] == b"no-store"
