"""Webhooks in: signed, mapped, applied once (B5)."""

import base64
import hashlib
import hmac

import httpx
import pytest

import interlock
from interlock import DefinitionError, Webhook
from interlock.server.app_declaration import Mapped
from tests.unit.server import shop
from tests.unit.server.serving import Served, problem, served

KEY = b"a secret of thirty-two bytes 123"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
NOW = 1_700_000_000


class FixedClock:
    def wall_s(self) -> float:
        return float(NOW)

    def monotonic_s(self) -> float:
        return 0.0


def mapped(payload: dict[str, object], delivery: str) -> Mapped | None:  # noqa: PLR0911 -- one for each payload.
    match payload:
        case {"order": str(order), "begin": int(cents)}:
            return order, shop.Submit(cents=cents), None, (shop.order, shop.Order(cents=cents))
        case {"order": str(order), "cents": int(cents)}:
            return order, shop.Submit(cents=cents), None
        case {"order": str(order)}:
            return order, shop.Remark(note=delivery), f"own-{delivery}"
        case {"ticket": str(order)}:
            return order, shop.Close(), None
        case {"named": str(order), "event": str(event)}:
            return order, event, None
        case {"wrong": wrong}:
            return (wrong, shop.Close(), None) if isinstance(wrong, list) else "o-1"  # type: ignore[return-value]
        case {"raise": _}:
            raise KeyError("a secret")
        case _:
            return None


async def awaited(payload: dict[str, object], delivery: str) -> Mapped | None:
    return mapped(payload, delivery)


def signature(body: bytes, delivery: str, timestamp: int, key: bytes = KEY) -> str:
    content = f"{delivery}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


async def deliver(
    app: Served, body: bytes, *, delivery: str = "msg_1", at: int = NOW, signed: str | None = None, source: str = "shop"
) -> httpx.Response:
    headers = {
        "webhook-id": delivery,
        "webhook-timestamp": str(at),
        "webhook-signature": signature(body, delivery, at) if signed is None else signed,
    }
    return await app.post(f"/v1/webhooks/{source}", content=body, headers=headers)


HOOKS = [Webhook("shop", secret=SECRET, map=mapped), Webhook("later", secret=SECRET, map=awaited)]
HOW = {"webhooks": HOOKS, "clock": FixedClock()}


def test_a_delivery_applies_once_and_a_late_one_is_ignored() -> None:
    async def test(app: Served) -> None:
        await app.start()
        first = await deliver(app, b'{"order": "o-1", "cents": 5}')
        assert (first.status_code, first.json()["state"], first.json()["duplicate"]) == (200, "charging", False)
        again = await deliver(app, b'{"order": "o-1", "cents": 5}')
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        late = await deliver(app, b'{"order": "o-1", "cents": 5}', delivery="msg_2")
        assert (late.status_code, late.json()["ignored"]) == (200, True)
        assert (await app.get("/v1/workflows/o-1")).json()["version"] == 2
        other = await deliver(app, b'{"of": "no interest"}', delivery="msg_3")
        assert other.json() == {"ignored": True, "duplicate": False, "id": None, "state": None, "version": None}

    served(test, **HOW)


def test_a_mapper_may_start_the_workflow() -> None:
    """E5: a delivery that arrives twice starts and moves it once."""

    async def test(app: Served) -> None:
        for duplicate in (False, True):
            sent = await deliver(app, b'{"order": "o-9", "begin": 5}')
            assert (sent.status_code, sent.json()["version"], sent.json()["duplicate"]) == (200, 2, duplicate)
        assert (await app.get("/v1/workflows/o-9")).json()["context"]["cents"] == 5
        problem(await deliver(app, b'{"order": "o-8", "begin": 0}', delivery="msg_2"), 422, "guard-rejected")
        problem(await app.get("/v1/workflows/o-8"), 404, "workflow-not-found")

    served(test, **HOW)


def test_a_mapper_may_name_the_event() -> None:
    """B13: a name that no machine knows has its own answer, and so has one whose fields are missing."""

    async def test(app: Served) -> None:
        await app.start()
        body = b'{"named": "o-1", "event": "%b"}'
        unknown = problem(await deliver(app, body % b"NOBODY"), 400, "invalid-payload")
        assert "there is no event 'NOBODY'" in str(unknown["what"])
        problem(await deliver(app, body % b"SUBMIT"), 400, "invalid-payload")
        problem(await deliver(app, b'{"named": "nobody", "event": "CANCEL"}'), 404, "workflow-not-found")
        problem(await deliver(app, b'{"named": "a/b", "event": "CANCEL"}'), 400, "invalid-payload")
        moved = await deliver(app, body % b"CANCEL")
        assert (moved.status_code, moved.json()["ignored"]) == (200, False)
        rows = (await app.get("/v1/workflows/o-1/history")).json()["items"]
        assert (rows[1]["event"], rows[1]["key"]) == ("CANCEL", "msg_1")

    served(test, **HOW)


def test_a_mapper_that_returns_something_else_is_told_by_its_types() -> None:
    async def test(app: Served) -> None:
        await app.start()
        document = problem(await deliver(app, b'{"wrong": ["4711"]}'), 500, "user-code-error")
        assert document["what"] == "the mapper of webhook 'shop' returned (list, Close, NoneType)."

    served(test, **HOW)


def test_a_mapper_may_be_async_and_give_its_own_key() -> None:
    async def test(app: Served) -> None:
        await app.start()
        await deliver(app, b'{"order": "o-1"}', source="later")
        rows = (await app.get("/v1/workflows/o-1/history")).json()["items"]
        assert rows[1]["key"] == "own-msg_1"

    served(test, **HOW)


def test_an_unknown_workflow_or_source_is_not_found() -> None:
    async def test(app: Served) -> None:
        problem(await deliver(app, b'{"order": "nobody"}'), 404, "workflow-not-found")
        problem(await deliver(app, b"{}", source="none"), 404, "webhook-not-found")

    served(test, **HOW)


@pytest.mark.parametrize(
    ("at", "signed"),
    [
        (NOW, ""),
        (NOW, "v1,"),
        (NOW, "v1," + base64.b64encode(b"x" * 32).decode()),
        (NOW, signature(b'{"order": "o-1"}', "msg_1", NOW, b"another key")),
        (NOW, signature(b'{"order": "o-1"}', "msg_2", NOW)),
        (NOW, signature(b'{"order": "o-2"}', "msg_1", NOW)),
        (NOW, "v1a" + signature(b'{"order": "o-1"}', "msg_1", NOW)[2:]),
        (NOW, "v1,\u00e4"),
        (NOW - 301, None),
        (NOW + 301, None),
        (-1, None),
    ],
)
def test_a_wrong_or_old_signature_is_refused(at: int, signed: str | None) -> None:
    async def test(app: Served) -> None:
        await app.start()
        headers = [
            (b"webhook-id", b"msg_1"),
            (b"webhook-timestamp", str(at).encode()),
            (
                b"webhook-signature",
                (signature(b'{"order": "o-1"}', "msg_1", at) if signed is None else signed).encode(),
            ),
        ]
        response = await app.post("/v1/webhooks/shop", content=b'{"order": "o-1"}', headers=headers)
        problem(response, 401, "bad-signature")
        assert (await app.get("/v1/workflows/o-1")).json()["version"] == 1

    served(test, **HOW)


def test_one_of_several_signatures_and_secrets_is_enough() -> None:
    async def test(app: Served) -> None:
        await app.start()
        body = b'{"order": "o-1"}'
        both = f"v1,AAAA {signature(body, 'msg_1', NOW)}"
        assert (await deliver(app, body, signed=both)).status_code == 200
        assert (await deliver(app, body, at=NOW - 299, delivery="msg_2")).status_code == 200

    served(test, webhooks=[Webhook("shop", secret=["whsec_AAAA", SECRET], map=mapped)], clock=FixedClock())


def test_a_secret_without_its_prefix_is_taken_as_it_is_or_as_base64() -> None:
    async def test(app: Served) -> None:
        await app.start()
        body = b'{"order": "o-1"}'
        assert (await deliver(app, body, signed=signature(body, "msg_1", NOW, b"AAAAAAAA"))).status_code == 200
        decoded = signature(body, "msg_1", NOW, base64.b64decode(b"AAAAAAAA"))
        assert (await deliver(app, body, signed=decoded)).status_code == 200

    served(test, webhooks=[Webhook("shop", secret="AAAAAAAA", map=mapped)], clock=FixedClock())


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid-payload"),
        (b"[]", 400, "invalid-payload"),
        (b'{"wrong": 1}', 500, "user-code-error"),
        (b'{"raise": 1}', 500, "user-code-error"),
        (b'{"order": "a/b"}', 400, "invalid-payload"),
        (b'{"order": "o-1", "cents": 0}', 422, "guard-rejected"),
    ],
)
def test_a_payload_that_cannot_be_used_is_refused(body: bytes, status: int, code: str) -> None:
    async def test(app: Served) -> None:
        await app.start()
        response = await deliver(app, body)
        problem(response, status, code)
        assert "a secret" not in response.text

    served(test, **HOW)


@pytest.mark.parametrize(
    ("source", "secret"),
    [("", SECRET), ("a/b", SECRET), ("shop", ""), ("shop", "whsec_"), ("shop", []), ("a\n", SECRET)],
)
def test_a_webhook_without_a_name_or_secret_is_refused(source: str, secret: "str | list[str]") -> None:
    with pytest.raises(DefinitionError):
        Webhook(source, secret=secret, map=mapped)


def test_an_unset_variable_is_a_missing_secret() -> None:
    unset: str = None  # type: ignore[assignment]
    with pytest.raises(DefinitionError, match="has no secret") as refused:
        Webhook("shop", secret=unset, map=mapped)
    assert "set the variable" in refused.value.fix


def test_a_mapper_with_other_arguments_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match="does not take two arguments"):
        Webhook("shop", secret=SECRET, map=lambda payload: None)  # type: ignore[arg-type, misc]


def test_a_mapper_without_a_signature_is_taken() -> None:
    assert Webhook("shop", secret=SECRET, map=dict).source == "shop"  # type: ignore[arg-type]


def test_two_webhooks_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError):
        interlock.App(machines=[shop.order], webhooks=[*HOOKS, HOOKS[0]])


def test_a_webhook_does_not_show_its_secret() -> None:
    assert SECRET not in repr(HOOKS[0])
    assert not any(SECRET in str(value) for value in vars(HOOKS[0]).values())


def test_duplicates_and_late_deliveries_are_counted() -> None:
    """B5: both are visible, beside what was applied."""

    async def test(app: Served) -> None:
        await app.start()
        body = b'{"order": "o-1", "cents": 5}'
        for delivery in ("msg_1", "msg_1", "msg_1", "msg_2"):
            assert (await deliver(app, body, delivery=delivery)).status_code == 200
        counts = (await app.get("/v1/workflows/o-1/stats")).json()
        assert counts == {"applied": 1, "duplicate": 2, "ignored": 1, "refused": 0}
        rows = (await app.get("/v1/workflows/o-1/history")).json()["items"]
        assert [row["key"] for row in rows] == [None, "msg_1"]

    served(test, **HOW)


def test_an_event_that_the_machine_does_not_have_is_400() -> None:
    """B13: an answer of its own, beside an unknown workflow and a bad signature."""

    async def test(app: Served) -> None:
        await app.start()
        problem(await deliver(app, b'{"ticket": "o-1"}'), 400, "invalid-payload")
        problem(await deliver(app, b'{"ticket": "nobody"}'), 404, "workflow-not-found")
        assert (await app.get("/v1/workflows/o-1")).json()["version"] == 1

    served(test, **HOW)


@pytest.mark.parametrize(
    "body", [b'{"order":"o-1"}\n', b' {"order": "o-1" }', b'{"order":"o-1","x":"\xc3\xa4"}', b'{"order":"\\u006f-1"}']
)
def test_the_body_is_signed_byte_by_byte(body: bytes) -> None:
    """Nothing is read and written again before the signature is checked."""

    async def test(app: Served) -> None:
        await app.start()
        assert (await deliver(app, body)).status_code == 200
        problem(await deliver(app, body + b" ", signed=signature(body, "msg_1", NOW)), 401, "bad-signature")

    served(test, **HOW)


def test_a_secret_is_changed_without_a_gap() -> None:
    """While both secrets are known, deliveries with either are taken; afterwards only those with the new one."""
    old, new = base64.b64encode(b"o" * 32).decode(), base64.b64encode(b"n" * 32).decode()
    body = b'{"order": "o-1"}'
    by_old = signature(body, "msg_1", NOW, b"o" * 32)
    by_new = signature(body, "msg_2", NOW, b"n" * 32)

    def statuses(secrets: list[str]) -> list[int]:
        found: list[int] = []

        async def test(app: Served) -> None:
            await app.start()
            found.append((await deliver(app, body, signed=by_old)).status_code)
            found.append((await deliver(app, body, delivery="msg_2", signed=by_new)).status_code)

        served(test, webhooks=[Webhook("shop", secret=secrets, map=mapped)], clock=FixedClock())
        return found

    assert statuses([f"whsec_{old}"]) == [200, 401]
    assert statuses([f"whsec_{old}", f"whsec_{new}"]) == [200, 200]
    assert statuses([f"whsec_{new}"]) == [401, 200]


@pytest.mark.parametrize(("at", "status"), [(NOW - 300, 200), (NOW + 300, 200), (NOW - 301, 401), (NOW + 301, 401)])
def test_the_window_is_five_minutes_both_ways(at: int, status: int) -> None:
    async def test(app: Served) -> None:
        await app.start()
        assert (await deliver(app, b'{"order": "o-1"}', at=at)).status_code == status

    served(test, **HOW)


def test_a_mapper_that_raises_tells_neither_secret_nor_payload(caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: Served) -> None:
        await app.start()
        body = b'{"raise": "4111 1111 1111 1111"}'
        response = await deliver(app, body)
        document = problem(response, 500, "user-code-error")
        assert document["what"] == "the mapper of webhook 'shop' raised KeyError."
        assert document["title"] == "A function of the application failed."
        for hidden in ("a secret", "4111", SECRET):
            assert hidden not in response.text
            assert hidden not in caplog.text
        [record] = [each for each in caplog.records if each.levelname == "ERROR"]
        assert document["correlation_id"] in record.getMessage()
        assert "raised KeyError" in caplog.text
        assert f'File "{__file__}", line' in caplog.text
        assert "'msg_1'" in caplog.text

    served(test, **HOW)


def test_too_many_deliveries_are_told_when_to_come_back() -> None:
    """C7: 429, with whole seconds from 1 up."""

    async def test(app: Served) -> None:
        await app.engine.start(shop.order, "o-1", shop.Order())
        answers = [await deliver(app, b'{"order": "o-1"}', delivery=f"m-{at}") for at in range(3)]
        late = [answer for answer in answers if answer.status_code == 429]
        assert late
        for answer in late:
            problem(answer, 429, "overloaded")
            assert answer.headers["retry-after"].isdigit()
            assert int(answer.headers["retry-after"]) >= 1

    served(test, **HOW, admission=interlock.Admission(rate_per_s=0.3, burst=1))
