"""What a server takes in, where it listens, and what it is made of (C7)."""

import socket

import pytest

from interlock import App, DefinitionError, Tool
from interlock.cli.serve import app_of
from interlock.errors import BadUsage
from interlock.server.lifecycle import Listening, admission_from, bound_socket
from tests.unit.server import shop


def test_a_server_takes_in_ten_thousand_a_second() -> None:
    admission = admission_from({})
    assert (admission.rate_per_s, admission.burst, admission.in_flight_max) == (10_000, 15_000, 100_000)


def test_the_environment_says_otherwise() -> None:
    admission = admission_from({"INTERLOCK_RATE_PER_S": "200", "INTERLOCK_IN_FLIGHT_MAX": "7"})
    assert (admission.rate_per_s, admission.burst, admission.in_flight_max) == (200, 300, 7)
    assert admission_from({"INTERLOCK_BURST": "9"}).burst == 9


@pytest.mark.parametrize("value", ["", "x", "0", "-1", "nan", "inf"])
def test_a_rate_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(BadUsage) as refused:
        admission_from({"INTERLOCK_RATE_PER_S": value})
    assert "INTERLOCK_RATE_PER_S" in str(refused.value)


def test_small_answers_are_sent_at_once() -> None:
    """The protocol is set on the socket; without it asyncio leaves TCP_NODELAY alone."""
    with bound_socket("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("a" * 300, 0)])
def test_an_address_that_cannot_be_had_is_told(host: str, port: int) -> None:
    with pytest.raises(BadUsage) as refused:
        bound_socket(host, port)
    assert "cannot listen" in str(refused.value)


def test_an_address_is_shown_as_it_is_typed() -> None:
    assert Listening("127.0.0.1", 80).url == "http://127.0.0.1:80"
    assert Listening("::1", 80).url == "http://[::1]:80"


def test_an_app_is_an_app_or_made_of_machines() -> None:
    assert app_of(shop.NAME) is shop.app
    assert app_of("tests.unit.server.shop:order").machines == (shop.order,)
    assert len(app_of("tests.unit.server.shop").machines) == 2


def test_an_app_needs_machines_and_real_tools() -> None:
    tool = Tool("stock", write_latency_budget=0.02, aggregate_write_rate=500)
    assert App(machines=[shop.order], tools=[tool]).tools == (tool,)
    with pytest.raises(DefinitionError):
        App(machines=[])
    with pytest.raises(DefinitionError):
        App(machines=[shop.order], tools=["stock"])  # type: ignore[list-item]
