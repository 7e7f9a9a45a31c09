"""Incoming webhooks: verified by the signature of their scheme, mapped to an event by the program, applied once.

    App(machines=[order], webhooks=[Webhook("stripe", secret="whsec_…", map=charged)])

The id of a delivery is the event's key, unless the mapper returns another: a delivery that arrives twice applies once.
It is sent with `if_allowed`: a sender cannot know the workflow's state, and would repeat a refused delivery for days. A
wrong signature, or one older than five minutes, is answered with 401 before the payload is read.
"""

import inspect
import traceback
from typing import TypeGuard, cast

import msgspec

from interlock.core.events import Event
from interlock.core.machine import Machine
from interlock.engine.bound_machine import state_text
from interlock.engine.path.caller_commands import check_id
from interlock.errors import InterlockError, UserCodeError
from interlock.server.app_declaration import Mapped, Webhook
from interlock.server.http_messages import HttpAnswer, Request, decode_json, json_answer
from interlock.server.problems import HttpProblem, log_bug
from interlock.server.service import Service
from interlock.server.webhook_signatures import is_form, read_payload, scheme_of
from interlock.wire import ShownDelivery

KINDS_MAX = 5
FRAMES_MAX = 20

NO_FIELDS = b"{}"

_HOW_TO_SIGN = {
    "standard": "Sign webhook-id.webhook-timestamp.body with the secret (HMAC-SHA256), according to Standard Webhooks."
}

_object = msgspec.json.Decoder(dict[str, object])


async def deliver(service: Service, request: Request) -> HttpAnswer:
    """Handle one delivery."""
    webhook = service.webhooks.get(request.parts[0])
    if webhook is None:
        raise HttpProblem(
            "webhook-not-found",
            f"there is no source of webhooks {request.parts[0]!r:.300}.",
            why="A source is declared with its secret and its mapper.",
            fix='End the address with the name of a declared one: App(webhooks=[Webhook("stripe", secret=…, map=…)]).',
        )
    request.check_media()
    body = await request.body()
    delivery = _verify(service, webhook, request, body)
    payload = decode_json(read_payload(webhook.scheme, body), _object, "the payload")
    if webhook.scheme == "slack" and payload.get("type") == "url_verification":
        return json_answer({"challenge": payload.get("challenge")})
    mapped = await _map_payload(webhook, payload, delivery)
    if mapped is None:
        return _answer(webhook, body, ShownDelivery(ignored=True))
    workflow, event, key, *begin = mapped
    if isinstance(event, str):
        check_id(workflow, "the id of a workflow")
        event = await service.decode_event(workflow, event, NO_FIELDS)
    start = begin[0] if begin else None
    by = f"the webhook {request.parts[0]}"
    moved = await service.engine.send(workflow, event, key=key or delivery, if_allowed=True, start=start, by=by)
    outcome = ShownDelivery(
        id=workflow,
        state=state_text(moved.state),
        version=moved.version,
        duplicate=moved.duplicate,
        ignored=moved.ignored,
    )
    return _answer(webhook, body, outcome)


def _answer(webhook: Webhook, body: bytes, outcome: ShownDelivery) -> HttpAnswer:
    """Answer a delivery. Slack shows the answer to a form to its user, and acknowledges an empty one silently."""
    return HttpAnswer(200, headers=()) if webhook.scheme == "slack" and is_form(body) else json_answer(outcome)


def _verify(service: Service, webhook: Webhook, request: Request, body: bytes) -> str:
    """Return the id of a delivery with a valid, fresh signature. Raises 401 without naming the defect."""
    delivery = webhook.verify(request.header, body, service.clock.wall_s())
    if delivery is not None:
        return delivery
    other = scheme_of(request.header)
    if other is None or other == webhook.scheme:
        fix = _HOW_TO_SIGN.get(webhook.scheme, f"Use the signing secret that the settings of {webhook.source!r} show.")
        fix += " Check that the clock of this server is right."
    else:  # The header is the sender's own, so its scheme is not a secret.
        fix = f"It has the header of {other!r}, and the source is declared with another scheme: write scheme={other!r}."
    raise HttpProblem(
        "bad-signature",
        "the signature of the delivery is missing, wrong, or older than five minutes.",
        why="Without a valid signature any client could send or repeat it.",
        fix=fix,
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
        stack = traceback.extract_tb(error.__traceback__, limit=-FRAMES_MAX)
        frames = [f'  File "{each.filename}", line {each.lineno}, in {each.name}' for each in stack]
        log_bug(bug, frames="\n".join([*frames, f"{type(error).__name__}, for delivery {delivery!r:.200}"]))
        raise bug from error
    if result is None or _is_mapped(result):
        return result
    raise UserCodeError(
        f"the mapper of webhook {webhook.source!r} returned {_kinds(result)}.",
        why="It returns the id of a workflow, an event and a key, then the start if it may start one; or None.",
        fix="Return (workflow id, event, key): a text, an event or the name of one, and a text or None. "
        "To start a workflow that does not exist, add (machine, context) to an event that is not a name.",
    )


def _is_mapped(result: object) -> TypeGuard[Mapped]:
    """Return whether the mapper's result is valid: programs without a type checker may return anything."""
    match result:
        case (str(), Event() | str(), str() | None) | (str(), Event(), str() | None, (Machine(), object())):
            return True
        case _:
            return False


def _kinds(result: object) -> str:
    """Describe the result by its types: its values come from the payload, and stay out of the answer."""
    if isinstance(result, tuple):
        parts = cast("tuple[object, ...]", result)
        return f"({', '.join(type(each).__name__ for each in parts[:KINDS_MAX])})"
    return type(result).__name__
