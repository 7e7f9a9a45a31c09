"""Incoming webhooks: verified by Standard Webhooks signatures, mapped to an event by the program, applied once.

    App(machines=[order], webhooks=[Webhook("stripe", secret="whsec_…", map=charged)])

The id of a delivery is the event's key, unless the mapper returns another: a delivery that arrives twice applies once.
It is sent with `if_allowed`: a sender cannot know the workflow's state, and would repeat a refused delivery for days. A
wrong signature, or one older than five minutes, is answered with 401 before the payload is read.
"""

import base64
import binascii
import hashlib
import hmac
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeGuard, cast

import msgspec

from interlock.core.events import Event
from interlock.engine.bound_machine import state_text
from interlock.engine.path.commands import check_id
from interlock.errors import DefinitionError, InterlockError, UserCodeError
from interlock.server.problems import HttpProblem, log_bug
from interlock.server.request import Request, decoded
from interlock.server.response import Answer, json_answer
from interlock.server.service import Service
from interlock.server.shapes import ShownDelivery

WINDOW_S = 300.0
"""Maximum age of a signature, and maximum lead of the sender's clock."""

SIGNATURES_MAX = 20
KINDS_MAX = 5
FRAMES_MAX = 20
NAME_CHARACTERS_MAX = 100
PREFIX = "whsec_"

Mapped = tuple[str, Event | str, str | None]
"""The workflow, the event (or its name, if it has no fields), and its key; None for the delivery's own id."""

Mapper = Callable[[dict[str, object], str], Mapped | Awaitable[Mapped | None] | None]
"""Maps a payload and the id of its delivery to the event to send; None for a payload to ignore."""

NO_FIELDS = b"{}"

_object = msgspec.json.Decoder(dict[str, object])


class Webhook:
    """A source of webhooks: its name in the address, its secret (or several, during a change), and its mapper."""

    def __init__(self, source: str, *, secret: str | Sequence[str], map: Mapper) -> None:  # noqa: A002 -- the public name.
        secrets = (secret,) if isinstance(secret, str) else tuple(secret)
        wrong = None
        if not source or "/" in source or not source.isprintable() or len(source) > NAME_CHARACTERS_MAX:
            wrong = f"the source {source!r:.100} is not a part of an address"
        elif not secrets or not all(isinstance(each, str) and each.removeprefix(PREFIX) for each in secrets):
            wrong = f"the source {source!r} has no secret"
        elif not callable(map):
            wrong = f"the mapper of {source!r} cannot be called"
        if wrong is not None:
            raise DefinitionError(
                f"{wrong}.",
                why="A delivery is verified by its secret, and mapped to an event by its mapper.",
                fix='Write Webhook("stripe", secret="whsec_…", map=function).',
                rule="bad-webhook",
            )
        self.source = source
        self.map = map
        self._keys = tuple(key for each in secrets for key in _keys(each))

    def __repr__(self) -> str:
        return f"Webhook({self.source!r}, secret=…)"

    def signed(self, delivery: str, timestamp: str, body: bytes, signatures: str) -> bool:
        """Return whether one of the signatures is valid. Takes the same time for an invalid one."""
        content = f"{delivery}.{timestamp}.".encode() + body
        expected = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in self._keys]
        found = False
        for each in signatures.split(" ")[:SIGNATURES_MAX]:
            version, _, signature = each.partition(",")
            for known in expected:
                found |= version == "v1" and hmac.compare_digest(known, signature.encode())
        return found


def _keys(secret: str) -> list[bytes]:
    """Return the keys for a secret. Without the prefix, senders disagree on whether it is base64; both are accepted."""
    plain = secret.removeprefix(PREFIX)
    keys = [] if plain is not secret and plain != secret else [secret.encode()]
    try:
        keys.append(base64.b64decode(plain, validate=True))
    except (binascii.Error, ValueError):
        if not keys:
            keys.append(plain.encode())
    return [key for key in keys if key]


async def deliver(service: Service, webhooks: Mapping[str, Webhook], request: Request) -> Answer:
    """Handle one delivery."""
    request.query()
    webhook = webhooks.get(request.parts[0])
    if webhook is None:
        raise HttpProblem(
            404,
            f"there is no source of webhooks {request.parts[0]!r:.300}.",
            code="webhook-not-found",
            why="A source is declared with its secret and its mapper.",
            fix='Declare it: App(webhooks=[Webhook("stripe", secret=…, map=…)]).',
        )
    request.check_media()
    body = await request.body()
    delivery = _verify(service, webhook, request, body)
    mapped = await _map_payload(webhook, decoded(body, _object, "the payload"), delivery)
    if mapped is None:
        return json_answer(ShownDelivery(ignored=True))
    workflow, event, key = mapped
    if isinstance(event, str):
        check_id(workflow, "the id of a workflow")
        event = await service.event_for(workflow, event, NO_FIELDS)
    moved = await service.engine.send(workflow, event, key=key or delivery, if_allowed=True)
    return json_answer(
        ShownDelivery(
            id=workflow,
            state=state_text(moved.state),
            version=moved.version,
            duplicate=moved.duplicate,
            ignored=moved.ignored,
        )
    )


def _verify(service: Service, webhook: Webhook, request: Request, body: bytes) -> str:
    """Return the id of a delivery with a valid, fresh signature. Raises 401 without naming the defect."""
    delivery = request.header(b"webhook-id") or ""
    timestamp = request.header(b"webhook-timestamp") or ""
    signatures = request.header(b"webhook-signature") or ""
    right = webhook.signed(delivery, timestamp, body, signatures)
    number = int(timestamp) if timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15 else None  # noqa: PLR2004
    fresh = number is not None and abs(service.clock.wall_s() - number) <= WINDOW_S
    if right and fresh and delivery:
        return delivery
    raise HttpProblem(
        401,
        "the signature of the delivery is missing, wrong, or older than five minutes.",
        code="bad-signature",
        why="Without a valid signature any client could send or repeat it.",
        fix="Sign webhook-id.webhook-timestamp.body with the secret (HMAC-SHA256), according to Standard Webhooks.",
    )


async def _map_payload(webhook: Webhook, payload: dict[str, object], delivery: str) -> Mapped | None:
    """Return the mapper's result for a payload. Raises UserCodeError when the mapper fails."""
    try:
        result = webhook.map(payload, delivery)
        if inspect.isawaitable(result):
            result = await result
    except InterlockError:
        raise
    except Exception as error:
        # The class and the frames, but not the text of the exception: it may hold the payload, or a secret.
        bug = UserCodeError(
            f"the mapper of webhook {webhook.source!r} raised {type(error).__name__}.",
            why="It maps a payload to a workflow, an event and a key, and may not raise.",
            fix="Correct the function, the log has the traceback; return None for a payload to ignore.",
        )
        frames = [f'  File "{each.filename}", line {each.lineno}, in {each.name}' for each in _frames(error)]
        log_bug(bug, frames="\n".join([*frames, f"{type(error).__name__}, for delivery {delivery!r:.200}"]))
        raise bug from error
    if result is None or _is_mapped(result):
        return result
    raise UserCodeError(
        f"the mapper of webhook {webhook.source!r} returned {_kinds(result)}.",
        why="It returns the id of a workflow, an event and a key, or None.",
        fix="Return (workflow id, event, key): a text, an event or the name of one, and a text or None.",
    )


def _frames(error: Exception) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__, limit=-FRAMES_MAX)


def _is_mapped(result: object) -> TypeGuard[Mapped]:
    """Return whether the mapper's result is valid: programs without a type checker may return anything."""
    match result:
        case (str(), Event() | str(), str() | None):
            return True
        case _:
            return False


def _kinds(result: object) -> str:
    """Describe the result by its types: its values come from the payload, and stay out of the answer."""
    if isinstance(result, tuple):
        parts = cast("tuple[object, ...]", result)
        return f"({', '.join(type(each).__name__ for each in parts[:KINDS_MAX])})"
    return type(result).__name__


def by_source(webhooks: Sequence[Webhook]) -> dict[str, Webhook]:
    """Return the webhooks by name. Raises DefinitionError for two of one name."""
    found: dict[str, Webhook] = {}
    for webhook in webhooks:
        entry: object = webhook  # Programs without a type checker may pass anything.
        if not isinstance(entry, Webhook) or entry.source in found:
            raise DefinitionError(
                f"webhooks= has {entry!r:.200}, "
                + ("a second time." if isinstance(entry, Webhook) else "which is not a Webhook."),
                why="The source in the address names one of them.",
                fix='Pass each once: webhooks=[Webhook("stripe", secret=…, map=…)].',
                rule="bad-webhook",
            )
        found[entry.source] = entry
    return found
