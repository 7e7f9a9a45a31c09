"""Webhooks of Stripe, GitHub, Shopify and Slack: each is verified by its own scheme (B5).

The signatures below are constants. GitHub's and Slack's first ones are the examples of their documentation; the others
were computed with `openssl dgst -sha256 -hmac SECRET`, and not with the code under test.
"""

import httpx
import pytest

from interlock import DefinitionError, Webhook
from interlock.server.webhook_signatures import Scheme, matches, verify
from tests.unit.server.serving import Served, problem, served
from tests.unit.server.test_webhooks import NOW, FixedClock, mapped

STRIPE, GITHUB = "whsec_test_secret", "the secret of the repository"
SHOPIFY, SLACK = "the client secret", "the signing secret"
SOURCES: list[Webhook] = [
    Webhook("stripe", secret=["whsec_next", STRIPE], map=mapped, scheme="stripe"),
    Webhook("github", secret=GITHUB, map=mapped, scheme="github"),
    Webhook("shopify", secret=SHOPIFY, map=mapped, scheme="shopify"),
    Webhook("slack", secret=SLACK, map=mapped, scheme="slack"),
]
HOW = {"webhooks": SOURCES, "clock": FixedClock()}

PLAIN = b'{"order": "o-1", "cents": 5}'
STRIPE_BODY = b'{"id": "evt_1", "order": "o-1", "cents": 5}'
SLACK_BODY = b'{"event_id": "Ev1", "order": "o-1", "cents": 5}'
SLACK_BUTTON = b"payload=%7B%22trigger_id%22%3A%20%2217.1%22%2C%20%22order%22%3A%20%22o-1%22%2C%20%22cents%22%3A%205%7D"
SLACK_COMMAND = b"command=%2Fclose&ticket=o-1&trigger_id=9.9"
SLACK_URL = b'{"type": "url_verification", "challenge": "3eZbrw"}'

STRIPE_SIGNATURE = "919437900a6b4746dcf7ddf75aceab84ef9f04f3f4a65d036d507dbdd99ac0f5"
GITHUB_HEADERS = {
    "X-Hub-Signature-256": "sha256=eb342bfc1ea71f2120ebe03a21aef9740e4b42186d557e6ccaf39216b5f51188",
    "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
}
SHOPIFY_HEADERS = {
    "X-Shopify-Hmac-SHA256": "wwADwwkZ7v3K5ClXU7MR2X+n1RF81onkZRVohQmmS70=",
    "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
}


def stripe_headers(at: int = NOW, signature: str = STRIPE_SIGNATURE) -> dict[str, str]:
    return {"Stripe-Signature": f"t={at},v1={'0' * 64},v1={signature},v0=old"}


def slack_headers(signature: str, at: int = NOW) -> dict[str, str]:
    return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={signature}"}


DELIVERIES = {
    "stripe": (STRIPE_BODY, stripe_headers()),
    "github": (PLAIN, GITHUB_HEADERS),
    "shopify": (PLAIN, SHOPIFY_HEADERS),
    "slack": (SLACK_BODY, slack_headers("dd2c9b9fda847d0bf9787fcc29b488c4506969aaf766a9d92190073fc54ac397")),
}
KEYS = {
    "stripe": "evt_1",
    "github": GITHUB_HEADERS["X-GitHub-Delivery"],
    "shopify": SHOPIFY_HEADERS["X-Shopify-Webhook-Id"],
    "slack": "Ev1",
}


async def deliver(app: Served, source: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return await app.post(f"/v1/webhooks/{source}", content=body, headers=headers)


def test_the_examples_in_the_documentation_of_the_vendors_are_valid() -> None:
    github = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert matches("github", (b"It's a Secret to Everybody",), b"Hello, World!", (github,))
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
        b"%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        b"x-slack-request-timestamp": "1531420618",
        b"x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    delivery = verify("slack", (b"8f742231b10e8888abcd99yyyzzz85a5",), headers.get, body, 1_531_420_618.0)
    assert delivery == "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"


@pytest.mark.parametrize("source", DELIVERIES)
def test_a_delivery_of_a_vendor_applies_once_under_the_vendors_id(source: str) -> None:
    body, headers = DELIVERIES[source]

    async def test(app: Served) -> None:
        await app.start()
        first = await deliver(app, source, body, headers)
        assert (first.status_code, first.json()["state"], first.json()["duplicate"]) == (200, "charging", False)
        again = await deliver(app, source, body, headers)
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        history = (await app.get("/v1/workflows/o-1/history")).json()["items"]
        assert history[1]["key"] == KEYS[source]

    served(test, **HOW)


@pytest.mark.parametrize("source", DELIVERIES)
def test_a_source_declared_without_the_scheme_of_its_sender_says_which_one(source: str) -> None:
    body, headers = DELIVERIES[source]
    scheme = SOURCES[list(KEYS).index(source)].scheme

    async def test(app: Served) -> None:
        await app.start()
        refused = await deliver(app, source, body, headers)
        problem(refused, 401, "bad-signature")
        assert f"write scheme='{scheme}'" in refused.json()["fix"]

    served(test, webhooks=[Webhook(source, secret="another", map=mapped)], clock=FixedClock())


@pytest.mark.parametrize("source", DELIVERIES)
def test_a_changed_body_a_wrong_secret_and_missing_headers_are_refused(source: str) -> None:
    body, headers = DELIVERIES[source]

    async def test(app: Served) -> None:
        await app.start()
        problem(await deliver(app, source, body + b" ", headers), 401, "bad-signature")
        for name in headers:
            missing = {other: value for other, value in headers.items() if other != name}
            problem(await deliver(app, source, body, missing), 401, "bad-signature")
            problem(await deliver(app, source, body, {**headers, name: ""}), 401, "bad-signature")
        assert (await app.get("/v1/workflows/o-1")).json()["version"] == 1

    served(test, **HOW)
    other = {
        "webhooks": [Webhook(source, secret="another", map=mapped, scheme=SOURCES[list(KEYS).index(source)].scheme)]
    }

    async def refused(app: Served) -> None:
        await app.start()
        problem(await deliver(app, source, body, headers), 401, "bad-signature")

    served(refused, **other, clock=FixedClock())


class Later(FixedClock):
    def __init__(self, by_s: float) -> None:
        self.by_s = by_s

    def wall_s(self) -> float:
        return NOW + self.by_s


@pytest.mark.parametrize(("by_s", "status"), [(300.0, 200), (-300.0, 200), (301.0, 401), (-301.0, 401)])
@pytest.mark.parametrize("source", ["stripe", "slack"])
def test_a_signature_with_a_time_is_valid_for_five_minutes(source: str, by_s: float, status: int) -> None:
    async def test(app: Served) -> None:
        await app.start()
        assert (await deliver(app, source, *DELIVERIES[source])).status_code == status

    served(test, webhooks=SOURCES, clock=Later(by_s))


@pytest.mark.parametrize("at", ["", "-1", "1e9", "\uff19", "9" * 16])
def test_a_time_that_is_not_a_number_is_refused(at: str) -> None:
    headers = {b"stripe-signature": f"t={at},v1={STRIPE_SIGNATURE}"}
    assert verify("stripe", (STRIPE.encode(),), headers.get, STRIPE_BODY, float(NOW)) is None


def test_a_button_of_slack_is_a_payload_and_gets_an_empty_answer() -> None:
    headers = slack_headers("1a1f40d6e5353d00b632b3c9ae4db4755cdffb60bcecf5606fcd837f322e7e9c")

    async def test(app: Served) -> None:
        await app.start()
        answer = await deliver(app, "slack", SLACK_BUTTON, headers)
        assert (answer.status_code, answer.content) == (200, b"")
        row = (await app.get("/v1/workflows/o-1/history")).json()["items"][1]
        assert (row["event"], row["key"]) == ("SUBMIT", "17.1")

    served(test, **HOW)


def test_a_command_of_slack_is_its_fields() -> None:
    headers = slack_headers("e33b3aca601ee582c28d2d10c83a81fe4b25bb436cb96150c69aa9b1648c1498")

    async def test(app: Served) -> None:
        await app.start(machine="ticket")
        answer = await deliver(app, "slack", SLACK_COMMAND, headers)
        assert (answer.status_code, answer.content) == (200, b"")
        assert (await app.get("/v1/workflows/o-1/history")).json()["items"][1]["key"] == "9.9"

    served(test, **HOW)


def test_the_address_is_confirmed_to_slack_after_its_signature() -> None:
    signature = "2ab43600b00cf917b92c5f29813324218e32d8b0df1ed9f250c1f37b1462eed0"

    async def test(app: Served) -> None:
        answer = await deliver(app, "slack", SLACK_URL, slack_headers(signature))
        assert (answer.status_code, answer.json()) == (200, {"challenge": "3eZbrw"})
        problem(await deliver(app, "slack", SLACK_URL, slack_headers("0" * 64)), 401, "bad-signature")

    served(test, **HOW)


def test_a_payload_without_an_id_is_known_by_its_bytes() -> None:
    """The id is what `openssl dgst -sha256` prints for the body."""
    headers = {b"stripe-signature": "t=1700000000,v1=0dd5dfde4479f7f03bd154f2cc4f78662a90ae7bef32188082ea6422885c1ab6"}
    delivery = verify("stripe", (STRIPE.encode(),), headers.get, b"[]", float(NOW))
    assert delivery == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


def test_an_unknown_scheme_is_refused_where_it_is_declared() -> None:
    unknown: Scheme = "paypal"  # type: ignore[assignment]
    with pytest.raises(DefinitionError) as refused:
        Webhook("shop", secret="s", map=mapped, scheme=unknown)
    assert "'paypal'" in refused.value.what
    assert "stripe, github, shopify, slack" in refused.value.what
