"""Receivers of alerts outside of the process: a webhook with a plain JSON body, and PagerDuty.

A receiver only builds the request; the outbox sends, waits and retries. Its secrets (the routing key, the secret,
headers, the path of an address, which often is a secret too) stay in here: no repr, error or log contains them.

There is deliberately no switch that turns the check of certificates off. Pass a private authority as `ca_file`.
"""

import hashlib
import hmac
import platform
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, cast, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec

from interlock.engine.alerts.alert import KEY_CHARACTERS_MAX, Alert, iso
from interlock.errors import BadUsage, DefinitionError

Severity = Literal["critical", "error", "warning", "info"]

ENQUEUE = "https://events.pagerduty.com/v2/enqueue"
"""PagerDuty's service region in the United States; that in Europe is events.eu.pagerduty.com."""

SUMMARY_CHARACTERS_MAX = 1_024
"""PagerDuty permits no longer `payload.summary`."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = frozenset({"connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"})


class Post(msgspec.Struct, frozen=True):
    """One request as it is sent. Its repr is masked: its address, headers and body may hold secrets."""

    url: SplitResult
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Post({origin(self.url)!r})"


class Receiver(Protocol):
    """A receiver of alerts by HTTP POST."""

    @property
    def name(self) -> str:
        """The name in logs; holds no secret."""
        ...

    @property
    def timeout_s(self) -> float:
        """Seconds that one attempt may take in all."""
        ...

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context that verifies the receiver."""
        ...

    def post(self, alert: Alert, at_s: float) -> Post:
        """Build the request, at the wall time of this attempt. Runs in the receiver's own thread."""
        ...


class _Address:
    """An address that is checked when it is declared, and shown without its secret parts."""

    def __init__(self, cls: str, url: str, timeout_s: float, ca_file: str | Path | None, runbooks: str | None) -> None:
        self._url = _checked_url(cls, url)
        self._runbooks = None if runbooks is None else _checked_url(cls, runbooks, "runbooks").geturl()
        self._timeout_s = _checked_timeout(cls, timeout_s)
        self._tls = None if ca_file is None else _tls_context(cls, ca_file)
        self._name = f"{cls}({origin(self._url)!r})"

    @property
    def name(self) -> str:
        """The name in logs: class and host."""
        return self._name

    @property
    def timeout_s(self) -> float:
        """Seconds that one attempt may take in all."""
        return self._timeout_s

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context; certificates and host names are always checked. Built on first use: it is slow."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def __repr__(self) -> str:
        return self._name


class AlertWebhook(_Address):
    """Posts every alert as a plain JSON object.

    `runbooks` is the address at which your people read the page of runbooks; alerts link to their section of it.
    With `secret` each request is signed: `Interlock-Signature` is `v1=` and the HMAC-SHA256, in hexadecimal digits,
    of the text of `Interlock-Timestamp`, a dot and the body.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
        secret: str | bytes | None = None,
        ca_file: str | Path | None = None,
        runbooks: str | None = None,
    ) -> None:
        super().__init__("AlertWebhook", url, timeout_s, ca_file, runbooks)
        self._headers = _checked_headers(headers or {})
        self._secret = secret.encode() if isinstance(secret, str) else secret
        if self._secret is not None and not self._secret:
            raise DefinitionError(
                "AlertWebhook(secret=…) is empty.",
                why="Any client can sign with an empty secret.",
                fix="Give a secret of at least 16 random bytes, or None to send without a signature.",
                rule="bad-receiver",
            )

    def post(self, alert: Alert, at_s: float) -> Post:
        """Build the alert as JSON, signed for this attempt."""
        body = msgspec.json.encode(
            {
                "kind": alert.kind,
                "subject": alert.subject,
                "summary": alert.summary,
                "machine": alert.machine,
                "state": alert.state,
                "since": None if alert.since_us is None else iso(alert.since_us),
                "at": iso(alert.at_us),
                "resolved": alert.resolved,
                "dedup_key": alert.dedup_key,
                "advice": alert.advice,
                "runbook": alert.runbook(self._runbooks),
                "details": alert.details,
            }
        )
        headers = dict(self._headers)
        if self._secret is not None:
            timestamp = str(int(at_s))
            digest = hmac.new(self._secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
            headers |= {"Interlock-Timestamp": timestamp, "Interlock-Signature": f"v1={digest}"}
        return Post(self._url, headers, body)


class PagerDuty(_Address):
    """Opens and resolves PagerDuty alerts by the Events API v2.

    Its documentation (developer.pagerduty.com, "Send an Alert Event") limits `dedup_key` to 255 characters,
    `payload.summary` to 1024 and a request to 512 KB; a `resolve` needs no payload. With `runbooks`, the address of the
    page of runbooks, an alert has its section of it in `links` and as `client_url`.
    """

    def __init__(
        self,
        routing_key: str,
        *,
        url: str = ENQUEUE,
        source: str | None = None,
        severity: Severity = "error",
        timeout_s: float = 5.0,
        ca_file: str | Path | None = None,
        runbooks: str | None = None,
    ) -> None:
        super().__init__("PagerDuty", url, timeout_s, ca_file, runbooks)
        if not (routing_key.isascii() and routing_key.isalnum()):
            raise DefinitionError(
                f"PagerDuty(routing_key=…) of {len(routing_key)} characters is invalid.",
                why="It is the integration key of an Events API v2 integration: 32 letters and digits.",
                fix="Copy it from the page of the service's integration. It is not shown here because it is a secret.",
                rule="bad-receiver",
            )
        if severity not in get_args(Severity):
            raise DefinitionError(
                f"PagerDuty(severity={severity!r}) is unknown.",
                why=f"PagerDuty knows {', '.join(get_args(Severity))}.",
                fix="Give one of these.",
                rule="bad-receiver",
            )
        self._routing_key = routing_key
        self._source = source or platform.node() or "interlock"
        self._severity: Severity = severity

    def post(self, alert: Alert, at_s: float) -> Post:  # noqa: ARG002 -- a receiver that signs needs the time; this one does not.
        """Build a trigger event, or the resolve event with the same key."""
        event: dict[str, object] = {
            "routing_key": self._routing_key,
            "event_action": "resolve" if alert.resolved else "trigger",
            "dedup_key": alert.dedup_key[:KEY_CHARACTERS_MAX],
        }
        if not alert.resolved:
            event["payload"] = self._payload(alert)
            event["client"] = "Interlock"
            if self._runbooks is not None:
                event["client_url"] = alert.runbook(self._runbooks)
                event["links"] = [{"href": alert.runbook(self._runbooks), "text": f"Runbook: {alert.kind}"}]
        return Post(self._url, {}, msgspec.json.encode(event))

    def _payload(self, alert: Alert) -> dict[str, object]:
        summary = alert.summary
        if len(summary) > SUMMARY_CHARACTERS_MAX:
            summary = summary[: SUMMARY_CHARACTERS_MAX - 1] + "…"
        known = {
            "machine": alert.machine,
            "state": alert.state,
            "since": None if alert.since_us is None else iso(alert.since_us),
        }
        return {
            "summary": summary,
            "source": self._source,
            "severity": self._severity,
            "timestamp": iso(alert.at_us),
            "component": alert.machine or alert.subject,
            "group": "interlock",
            "class": alert.kind,
            "custom_details": {
                "subject": alert.subject,
                **{name: value for name, value in known.items() if value is not None},
                "advice": alert.advice,
                "runbook": alert.runbook(self._runbooks),
                **alert.details,
            },
        }


def origin(url: SplitResult) -> str:
    """Return the scheme, host and port of an address, without path and query."""
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port is not None else "")


def _checked_url(cls: str, url: str, name: str = "url") -> SplitResult:
    problem = ""
    try:
        parts = urlsplit(url)
        _ = parts.port  # Reading it checks it.
    except ValueError:
        parts, problem = SplitResult("", "", "", "", ""), "is not an address"
    if not problem and (parts.scheme not in {"http", "https"} or not parts.hostname):
        problem = "does not begin with https:// (or http://) and a host"
    if not problem and parts.username is not None:
        problem = "has a user or password in it"
    if not problem and not (url.isascii() and url.isprintable() and " " not in url):
        problem = "has characters that an address cannot have"
    if problem:
        raise DefinitionError(
            f"The {name} of {cls} {problem}.",
            why=("Alerts are posted to it" if name == "url" else "Alerts link to it")
            + " as it stands. It is not shown here because it may hold a secret.",
            fix='Give an address such as "https://alerts.example.com/interlock"; credentials belong into headers.',
            rule="bad-receiver",
        )
    return parts._replace(fragment="")


def _checked_timeout(cls: str, timeout_s: float) -> float:
    if not 0 < timeout_s <= 60:  # noqa: PLR2004 -- the error names the bound.
        raise DefinitionError(
            f"{cls}(timeout_s={timeout_s!r}) is out of bounds.",
            why="An attempt without an end would hold all later alerts back.",
            fix="Give more than 0 and at most 60 seconds.",
            rule="bad-receiver",
        )
    return timeout_s


def _tls_context(cls: str, ca_file: str | Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise DefinitionError(
            f"{cls}(ca_file={str(ca_file)!r}) cannot be used: {error.strerror or error}.",
            why="It holds the certificates of the authorities that the receiver's own is checked with.",
            fix="Give a readable PEM file, or None for the system's authorities.",
            rule="bad-receiver",
        ) from error


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        reserved = name.lower() in _OURS or name.lower().startswith("interlock-")
        if reserved or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            problem = "is set by Interlock itself" if reserved else "cannot be sent"
            raise DefinitionError(
                f"The header {name!r} of AlertWebhook {problem}.",
                why="A name is made of letters, digits and dashes; a value is printable ASCII on one line.",
                fix="Correct or leave out this header. Its value is not shown here because it may be a secret.",
                rule="bad-receiver",
            )
    return dict(headers)


# --- Receivers from the environment ----------------------------------------------------------------------------------
# A routing key and a secret are not command-line options, where every user of the machine could read them. An
# invalid value is refused when the program starts, not when the first alert is due.

PAGERDUTY_KEY = "INTERLOCK_PAGERDUTY_KEY"
PAGERDUTY_URL = "INTERLOCK_PAGERDUTY_URL"
PAGERDUTY_SEVERITY = "INTERLOCK_PAGERDUTY_SEVERITY"
ALERT_URL = "INTERLOCK_ALERT_URL"
ALERT_SECRET = "INTERLOCK_ALERT_SECRET"  # noqa: S105 -- the name of a variable.
RUNBOOKS_URL = "INTERLOCK_RUNBOOKS_URL"

NEEDED = {PAGERDUTY_URL: PAGERDUTY_KEY, PAGERDUTY_SEVERITY: PAGERDUTY_KEY, ALERT_SECRET: ALERT_URL}
"""Variables that require another one."""


def receivers_in(environment: Mapping[str, str]) -> list[Receiver]:
    """Return the declared receivers. Raises DefinitionError for an invalid one, BadUsage for an incomplete one."""
    values = {name: value for name, value in environment.items() if value}
    for name, needed in NEEDED.items():
        if name in values and needed not in values:
            raise BadUsage(
                f"{name} is set, and {needed} is not.",
                why="It is part of a receiver of alerts, which the other one names: no receiver would get alerts.",
                fix=f"Set {needed} too, or unset {name}.",
            )
    runbooks = values.get(RUNBOOKS_URL)
    found: list[Receiver] = []
    if ALERT_URL in values:
        found.append(AlertWebhook(values[ALERT_URL], secret=values.get(ALERT_SECRET), runbooks=runbooks))
    if PAGERDUTY_KEY in values:
        found.append(
            PagerDuty(
                values[PAGERDUTY_KEY],
                url=values.get(PAGERDUTY_URL, ENQUEUE),
                severity=cast("Severity", values.get(PAGERDUTY_SEVERITY, "error")),
                runbooks=runbooks,
            )
        )
    return found
