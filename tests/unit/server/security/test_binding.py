"""Without keys a server listens on this machine alone."""

import pytest

from interlock.errors import BadUsage
from interlock.server.security.guard import check_address, is_loopback, name_of_host

HERE = ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LocalHost", "localhost.", "::ffff:127.0.0.1"]
ELSEWHERE = ["0.0.0.0", "::", "", "192.168.1.7", "shop.example", "localhost.evil.example", "127.0.0.1.evil", "fe80::1"]


@pytest.mark.parametrize("host", HERE)
def test_this_machine_is_fine_without_keys(host: str) -> None:
    assert is_loopback(host)
    check_address(host, keyed=False)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_any_other_address_needs_keys(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(BadUsage, match="no API keys"):
        check_address(host, keyed=False)
    check_address(host, keyed=True)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8000", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("a.example:443", "a.example"),
        ("127.0.0.1:8000, evil.example", ""),
        ("evil.example, 127.0.0.1", ""),
        ("user@127.0.0.1", ""),
        ("127.0.0.1:port", ""),
        ("[::1]evil", ""),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert name_of_host(header) == name
