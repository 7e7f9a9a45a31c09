"""Webhooks that come in: signed as Standard Webhooks has it, mapped to an event by the program, applied once.

    App(machines=[order], webhooks=[Webhook("stripe", secret="whsec_…", map=charged)])

A delivery is identified by its id, which is the event's key unless the mapper gives another: delivered twice it applies
once. It is sent with `if_allowed`, because a sender cannot know that a workflow has moved on, and would repeat what is
refused for days. A signature that is wrong, or older than five minutes, is 401 before anything is looked at.
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
from interlock.errors import DefinitionError, InterlockError, UserCodeError
from interlock.runtime.bound import state_text
from interlock.runtime.envelopes import check_id
from interlock.server.answers import Answer, shown
from interlock.server.problems import HttpProblem, log_bug
from interlock.server.requests import Request, decoded
from interlock.server.service import Service
from interlock.server.shapes import ShownDelivery

WINDOW_S = 300.0
"""How old a signature may be, and how far ahead the sender's clock."""

SIGNATURES_MAX = 20
KINDS_MAX = 5
FRAMES_MAX = 20
NAME_CHARACTERS_MAX = 100
PREFIX = "whsec_"

Mapped = tuple[str, Event | str, str | None]
"""The workflow, the event (or its name, if it has no fields), and its key; None for the delivery's own id."""

Mapper = Callable[[dict[str, object], str], Mapped | Awaitable[Mapped | None] | None]
"""From a payload and the id of its delivery to what is sent; None when it is of no interest."""

NO_FIELDS = b"{}"

_object = msgspec.json.Decoder(dict[str, object])


class Webhook:
    """A source of webhooks: its name in the address, its secret (or several, while one is changed), and the mapper."""

    def __init__(self, source: str, *, secret: str | Sequence[str], map: Mapper) -> None:  # noqa: A002 -- as it is read.
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
                why="A delivery is believed because of its secret, and means what its mapper says.",
                fix='Write Webhook("stripe", secret="whsec_…", map=function).',
                rule="bad-webhook",
            )
        self.source = source
        self.map = map
        self._keys = tuple(key for each in secrets for key in _keys(each))

    def __repr__(self) -> str:
        return f"Webhook({self.source!r}, secret=…)"

    def signed(self, delivery: str, timestamp: str, body: bytes, signatures: str) -> bool:
        """Whether one of the signatures is right. Takes the same time for a wrong one as for a right one."""
        content = f"{delivery}.{timestamp}.".encode() + body
        expected = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in self._keys]
        found = False
        for each in signatures.split(" ")[:SIGNATURES_MAX]:
            version, _, signature = each.partition(",")
            for known in expected:
                found |= version == "v1" and hmac.compare_digest(known, signature.encode())
        return found


def _keys(secret: str) -> list[bytes]:
    """The bytes that a secret stands for. Without the prefix, senders disagree whether it is base64; both are taken."""
    plain = secret.removeprefix(PREFIX)
    keys = [] if plain is not secret and plain != secret else [secret.encode()]
    try:
        keys.append(base64.b64decode(plain, validate=True))
    except (binascii.Error, ValueError):
        if not keys:
            keys.append(plain.encode())
    return [key for key in keys if key]


async def deliver(service: Service, webhooks: Mapping[str, Webhook], request: Request) -> Answer:
    """Take one delivery."""
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
    delivery = _verified(service, webhook, request, body)
    mapped = await _mapped(webhook, decoded(body, _object, "the payload"), delivery)
    if mapped is None:
        return shown(ShownDelivery(ignored=True))
    workflow, event, key = mapped
    if isinstance(event, str):
        check_id(workflow, "the id of a workflow")
        event = await service.event_for(workflow, event, NO_FIELDS)
    moved = await service.engine.send(workflow, event, key=key or delivery, if_allowed=True)
    return shown(
        ShownDelivery(
            id=workflow,
            state=state_text(moved.state),
            version=moved.version,
            duplicate=moved.duplicate,
            ignored=moved.ignored,
        )
    )


def _verified(service: Service, webhook: Webhook, request: Request, body: bytes) -> str:
    """The id of a delivery whose signature is right and fresh. Raises 401, and does not say what was wrong with it."""
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
        why="Anybody could send it otherwise, and send it again.",
        fix="Sign webhook-id.webhook-timestamp.body with the secret (HMAC-SHA256), as Standard Webhooks has it.",
    )


async def _mapped(webhook: Webhook, payload: dict[str, object], delivery: str) -> Mapped | None:
    """What the mapper makes of a payload. Raises UserCodeError when it fails."""
    try:
        result = webhook.map(payload, delivery)
        if inspect.isawaitable(result):
            result = await result
    except InterlockError:
        raise
    except Exception as error:
        # The class and the frames, and not the text of the exception: that may hold the payload, or a secret.
        bug = UserCodeError(
            f"the mapper of webhook {webhook.source!r} raised {type(error).__name__}.",
            why="It maps a payload to a workflow, an event and a key, and may not raise.",
            fix="Correct the function, the log has the traceback; return None for a payload that is of no interest.",
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


def _is_mapped(given: object) -> TypeGuard[Mapped]:
    """Not every program has a type checker."""
    match given:
        case (str(), Event() | str(), str() | None):
            return True
        case _:
            return False


def _kinds(given: object) -> str:
    """What was returned, by its types: the values are the payload's, and stay out of the answer."""
    if isinstance(given, tuple):
        parts = cast("tuple[object, ...]", given)
        return f"({', '.join(type(each).__name__ for each in parts[:KINDS_MAX])})"
    return type(given).__name__


def by_source(webhooks: Sequence[Webhook]) -> dict[str, Webhook]:
    """The webhooks by their names. Raises DefinitionError for two of one name."""
    found: dict[str, Webhook] = {}
    for webhook in webhooks:
        given: object = webhook  # Not every program has a type checker.
        if not isinstance(given, Webhook) or given.source in found:
            raise DefinitionError(
                f"webhooks= has {given!r:.200}, "
                + ("a second time." if isinstance(given, Webhook) else "which is no Webhook."),
                why="The source in the address names one of them.",
                fix='Give each once: webhooks=[Webhook("stripe", secret=…, map=…)].',
                rule="bad-webhook",
            )
        found[given.source] = given
    return found
