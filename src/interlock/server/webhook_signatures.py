"""Signatures of incoming webhooks: Standard Webhooks, and the schemes of Stripe, GitHub, Shopify and Slack.

Each scheme signs the raw body with HMAC-SHA256, and differs in headers, encoding and the id of a delivery:

    standard   base64 of "ID.TIMESTAMP.BODY"   webhook-signature         webhook-id
    stripe     hex of "TIMESTAMP.BODY"         Stripe-Signature          "id" of the payload
    github     hex of "BODY"                   X-Hub-Signature-256       X-GitHub-Delivery
    shopify    base64 of "BODY"                X-Shopify-Hmac-SHA256     X-Shopify-Webhook-Id
    slack      hex of "v0:TIMESTAMP:BODY"      X-Slack-Signature         "event_id" or "trigger_id" of the payload

GitHub and Shopify sign no timestamp, so their deliveries have no window, and their ids are not signed. Every comparison
takes constant time, and every signature is compared with every key.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Literal, get_args
from urllib.parse import parse_qsl

import msgspec

from interlock.errors import InvalidPayload

Scheme = Literal["standard", "stripe", "github", "shopify", "slack"]
SCHEMES: tuple[str, ...] = get_args(Scheme)

WINDOW_S = 300.0
"""Maximum age of a signature, and maximum lead of the sender's clock."""

PREFIX = "whsec_"
SIGNATURES_MAX = 20
TIMESTAMP_CHARACTERS_MAX = 15
FORM_FIELDS_MAX = 100

Header = Callable[[bytes], str | None]
"""Returns the value of a header by its lower-case name."""

_object = msgspec.json.Decoder(dict[str, object])


class Signed(msgspec.Struct, frozen=True):
    """The parts of a delivery that its scheme signs and names."""

    content: bytes
    signatures: tuple[str, ...]
    timestamp: str | None = None
    """None when the scheme signs no time."""
    delivery: str | None = None
    """None when the id is in the payload."""


def keys_of(scheme: Scheme, secret: str) -> list[bytes]:
    """Return the keys for a secret. The vendors use its text; in Standard Webhooks it is base64, or a text."""
    if scheme != "standard":
        return [secret.encode()]
    # Without the prefix, senders disagree on whether a secret is base64: both readings are accepted.
    plain = secret.removeprefix(PREFIX)
    keys = [secret.encode()] if plain == secret else []
    try:
        keys.append(base64.b64decode(plain, validate=True))
    except (binascii.Error, ValueError):
        if not keys:
            keys.append(plain.encode())
    return [key for key in keys if key]


def verify(scheme: Scheme, keys: tuple[bytes, ...], header: Header, body: bytes, now_s: float) -> str | None:
    """Return the id of a delivery with a valid and fresh signature, or None."""
    signed = _READERS[scheme](header, body)
    valid = matches(scheme, keys, signed.content, signed.signatures)
    if not valid or not _is_fresh(signed.timestamp, now_s) or signed.delivery == "":
        return None
    return signed.delivery or _id_of_payload(scheme, body)


def scheme_of(header: Header) -> Scheme | None:
    """Return the scheme whose signature header a delivery has."""
    return next((scheme for scheme, name in _SIGNATURE_HEADERS.items() if header(name) is not None), None)


def matches(scheme: Scheme, keys: tuple[bytes, ...], content: bytes, signatures: tuple[str, ...]) -> bool:
    """Return whether one of the signatures is valid. Takes the same time for an invalid one."""
    found = False
    for key in keys:
        digest = hmac.digest(key, content, hashlib.sha256)
        expected = base64.b64encode(digest) if scheme in {"standard", "shopify"} else digest.hex().encode()
        for each in signatures[:SIGNATURES_MAX]:
            found |= hmac.compare_digest(expected, each.encode())
    return found


def read_payload(scheme: Scheme, body: bytes) -> bytes:
    """Return the payload as JSON: Slack sends interactions and commands as a form."""
    if scheme != "slack" or not is_form(body):
        return body
    try:
        fields = dict(
            parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
        )
    except ValueError as error:
        raise InvalidPayload(
            f"the form has more than {FORM_FIELDS_MAX} fields.",
            why="Slack sends a handful, and the number is bounded.",
            fix="Check that Slack sends to this address.",
        ) from error
    return fields["payload"].encode() if "payload" in fields else msgspec.json.encode(fields)


def is_form(body: bytes) -> bool:
    """Return whether a body of Slack is a form. Its JSON is always an object."""
    return not body.lstrip().startswith(b"{")


def standard_content(delivery: str, timestamp: str, body: bytes) -> bytes:
    """Return the bytes that Standard Webhooks signs."""
    return f"{delivery}.{timestamp}.".encode() + body


def with_version(text: str, version: str, *, separator: str = " ", sign: str = ",") -> tuple[str, ...]:
    """Return the signatures of this version in a header's value."""
    pairs = (each.strip().partition(sign) for each in text.split(separator)[:SIGNATURES_MAX])
    return tuple(value for name, _, value in pairs if name == version)


def _standard(header: Header, body: bytes) -> Signed:
    delivery, timestamp = header(b"webhook-id") or "", header(b"webhook-timestamp") or ""
    signatures = with_version(header(b"webhook-signature") or "", "v1")
    return Signed(standard_content(delivery, timestamp, body), signatures, timestamp, delivery)


def _stripe(header: Header, body: bytes) -> Signed:
    text = header(b"stripe-signature") or ""
    timestamp = next(iter(with_version(text, "t", separator=",", sign="=")), "")
    return Signed(f"{timestamp}.".encode() + body, with_version(text, "v1", separator=",", sign="="), timestamp)


def _github(header: Header, body: bytes) -> Signed:
    signatures = with_version(header(b"x-hub-signature-256") or "", "sha256", sign="=")
    return Signed(body, signatures, delivery=header(b"x-github-delivery") or "")


def _shopify(header: Header, body: bytes) -> Signed:
    return Signed(body, (header(b"x-shopify-hmac-sha256") or "",), delivery=header(b"x-shopify-webhook-id") or "")


def _slack(header: Header, body: bytes) -> Signed:
    timestamp = header(b"x-slack-request-timestamp") or ""
    signatures = with_version(header(b"x-slack-signature") or "", "v0", sign="=")
    return Signed(f"v0:{timestamp}:".encode() + body, signatures, timestamp)


_READERS: Mapping[Scheme, Callable[[Header, bytes], Signed]] = {
    "standard": _standard,
    "stripe": _stripe,
    "github": _github,
    "shopify": _shopify,
    "slack": _slack,
}
_SIGNATURE_HEADERS: Mapping[Scheme, bytes] = {
    "standard": b"webhook-signature",
    "stripe": b"stripe-signature",
    "github": b"x-hub-signature-256",
    "shopify": b"x-shopify-hmac-sha256",
    "slack": b"x-slack-signature",
}
_IDS = {"stripe": ("id",), "slack": ("event_id", "trigger_id")}


def _is_fresh(timestamp: str | None, now_s: float) -> bool:
    if timestamp is None:
        return True
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= TIMESTAMP_CHARACTERS_MAX):
        return False
    return abs(now_s - int(timestamp)) <= WINDOW_S


def _id_of_payload(scheme: Scheme, body: bytes) -> str:
    """Return the id in a verified payload, or the digest of the body: the same bytes are then the same delivery."""
    try:
        payload = _object.decode(read_payload(scheme, body))
    except (msgspec.DecodeError, ValueError):
        payload = {}  # What is not JSON is refused when it is read.
    found = (payload.get(name) for name in _IDS[scheme])
    return next((each for each in found if isinstance(each, str) and each), hashlib.sha256(body).hexdigest())
