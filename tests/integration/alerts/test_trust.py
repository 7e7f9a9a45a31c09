"""B7: alerts go only to whom they are meant for, and secrets are shown to nobody."""

import logging
from pathlib import Path

import pytest

from interlock.engine.alerts import Alert, AlertSettings, AlertWebhook, PagerDuty, Post, Receiver
from tests.integration.alerts.receiver import certificate, receiving
from tests.integration.alerts.telling import NOW_US, ROUTING_KEY, Waits, alarmed, alert, tell_and_close
from tests.integration.ports import HeldPorts


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, tls = certificate(tmp_path, "127.0.0.1")
    with receiving(tls=tls) as receiver:
        alarms = alarmed(PagerDuty(ROUTING_KEY, url=receiver.url))
        tell_and_close(alarms, alert())
        assert receiver.all() == []
    assert alarms.reports()[0].refused == 1
    assert "its certificate is not valid (self-signed certificate). Nothing was sent." in caplog.text


def test_a_certificate_of_another_host_is_not_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trusted, tls = certificate(tmp_path, "127.0.0.2")
    with receiving(tls=tls) as receiver:
        tell_and_close(alarmed(AlertWebhook(receiver.url, ca_file=trusted)), alert())
        assert receiver.all() == []
    assert "IP address mismatch" in caplog.text


def test_a_certificate_of_a_declared_authority_is_accepted(tmp_path: Path) -> None:
    trusted, tls = certificate(tmp_path, "127.0.0.1")
    with receiving(tls=tls) as receiver:
        tell_and_close(alarmed(AlertWebhook(receiver.url, ca_file=trusted)), alert())
        assert [each.json()["subject"] for each in receiver.all()] == ["o-1"]


class Careless:
    """A receiver of the user's own whose error says everything."""

    name = "Careless"
    timeout_s = 1.0

    def tls(self) -> None:  # pragma: no cover -- never asked.
        raise AssertionError

    def post(self, alert: Alert, at_s: float) -> Post:
        raise ValueError("SECRET", alert, at_s)


def test_no_log_ever_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, tls = certificate(tmp_path, "127.0.0.1")
    settings = AlertSettings(attempts_max=2, close_s=30.0)
    with (
        caplog.at_level(logging.DEBUG),
        receiving(*[500] * 20) as failing,
        receiving(*[(302, {"Location": "http://SECRET"})] * 2) as moved,
        receiving(tls=tls) as untrusted,
        HeldPorts() as held,
    ):
        nobody = f"http://127.0.0.1:{held.numbers[0]}"
        receivers: list[Receiver] = [
            AlertWebhook(f"{url}/SECRET?k=SECRET", headers={"X-Key": "SECRET"}, secret="SECRET")
            for url in (failing.url, moved.url, untrusted.url, nobody)
        ]
        receivers += [PagerDuty(ROUTING_KEY, url=f"{url}/SECRET") for url in (nobody, untrusted.url, failing.url)]
        receivers.append(Careless())  # type: ignore[arg-type]
        alarms = alarmed(*receivers, wait=Waits(), settings=settings)
        tell_and_close(alarms, alert(), alert().over(NOW_US))
    assert [report.refused for report in alarms.reports()] == [2] * 8
    assert "the alert could not be put into a request (ValueError)." in caplog.text
    assert "SECRET" not in caplog.text
    assert "SECRET" not in repr(alarms.reports())
