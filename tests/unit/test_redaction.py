"""No secret is shown: whatever the secret is, and wherever it stands."""

import json
import logging
import pickle
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock.clock import SystemClock
from interlock.errors import BadUsage, InterlockError
from interlock.redaction import (
    MASK,
    Redacting,
    Secret,
    bounded_text,
    bounded_traceback,
    logger_of,
    redacted_text,
    redacted_value,
)
from interlock.server.security.stores import security_at

CHARACTERS = string.ascii_letters + string.digits
SECRETS = st.text(CHARACTERS, min_size=12, max_size=60).map("Q9{}".format)
"""The first two characters are in nothing else that a test writes."""
AROUND = st.text(st.characters(codec="utf-8"), max_size=20)


@given(SECRETS, AROUND, AROUND)
def test_an_api_key_is_masked_wherever_it_stands(secret: str, before: str, after: str) -> None:
    assume(secret not in f"{before} {after} ilk_abcdefghijklmnop_")
    for key in (f"ilk_abcdefghijklmnop_{secret}", f"ilk_{secret}", f"whsec_{secret}"):
        assert secret not in redacted_text(f"{before} {key} {after}")


def test_the_id_of_a_key_stays_readable() -> None:
    shown = redacted_text("refused ilk_abcdefghijklmnop_" + "q" * 52 + " at once")
    assert shown == f"refused ilk_abcdefghijklmnop_{MASK} at once"
    assert redacted_text(shown) == shown


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'<>"), min_size=8))
def test_a_password_in_an_address_is_masked_whatever_is_in_it(password: str) -> None:
    """Also with a slash, a colon or an at sign of its own."""
    assume(password not in "postgresql://shop:***@db.internal/shop")
    shown = redacted_text(f"cannot reach postgresql://shop:{password}@db.internal/shop today")
    assert password not in shown
    assert "db.internal/shop today" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        "Authorization: Bearer {}",
        "authorization: basic {}",
        "bearer {}",
        "https://x.example/?token={}&a=1",
        "s3://bucket/shop?secret_access_key={}",
        "password={}",
        'password="{}"',
        "{{'webhook_secret': '{}'}}",
        '{{"api_key": "{}"}}',
        "db_password: {}",
        "signature={}",
        "redis://:{}@cache:6379/0",
        "Authorization: Token {}",
        'Authorization: Digest username="a", response="{}"',
        "Cookie: theme=dark; session={}",
        "password=basic{}",
        "DB_PASSWORD2={}",
        "passphrase: {}",
        "settings.password = {}",
        "b'password={}'",
        "{{'password': b'{}'}}",
        '{{"password": "a\\"{}"}}',
        '{{\\"password\\": \\"{}\\"}}',
        "[token={}]",
    ],
)
@given(secret=SECRETS)
def test_a_secret_is_masked_by_the_name_before_it(form: str, secret: str) -> None:
    assert secret not in redacted_text(form.format(secret))


@given(st.recursive(SECRETS, lambda inner: st.lists(inner, min_size=1) | st.dictionaries(st.just("a"), inner)))
def test_what_stands_in_a_secret_field_is_masked_whole(value: object) -> None:
    for name in ("password", "webhook_secret", "Authorization", "api-key", "refreshToken", "PRIVATE_KEY"):
        assert redacted_value({"outer": [{name: value}]}) == {"outer": [{name: MASK}]}


def test_plain_values_stay_as_they_are() -> None:
    value = {"cents": 5, "key": "click-7", "note": "refunded by hand", "ok": True, "none": None, "password": None}
    assert redacted_value(value) == value
    assert redacted_text("the key click-7 of o-1 was used; see https://shop.example/help?page=2") == (
        "the key click-7 of o-1 was used; see https://shop.example/help?page=2"
    )


def test_bytes_and_secrets_are_masked_and_deep_values_end() -> None:
    assert redacted_value([b"x", Secret("x")]) == [MASK, MASK]
    deep: object = "end"
    for _ in range(100):
        deep = [deep]
    assert MASK in json.dumps(redacted_value(deep))


@given(SECRETS)
def test_a_secret_shows_itself_to_nobody_who_does_not_ask(text: str) -> None:
    secret = Secret(text)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>10}",
        " ".join(map(str, [secret])),
        f"{[secret]}",
        f"{{1: {secret!r}}}",
    ]
    assert not any(text in each for each in shown)
    assert secret.reveal() == text
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@given(SECRETS)
def test_a_log_record_passes_without_its_secrets(secret: str) -> None:
    key = f"ilk_abcdefghijklmnop_{secret}"
    logger, lines = logging.Logger("test"), list[str]()  # noqa: LOG001 -- one that nobody else listens to.

    class Listing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Listing()
    handler.addFilter(Redacting())
    logger.addHandler(handler)
    logger.info("got %s from %r", key, {"password": secret})
    try:
        int(key)
    except ValueError:
        logger.exception("failed with %s", key)
    assert len(lines) == 2
    assert "ValueError" in lines[1]
    assert not any(secret in line for line in lines)


@given(SECRETS)
def test_no_address_of_a_home_shows_its_secret(secret: str) -> None:
    """Whatever is wrong with it: the scheme, the port, an option, or nothing at all."""
    for home in (
        f"mysql://shop:{secret}@db/shop",
        f"postgresql://shop:{secret}@db:x/shop",
        f"postgresql://shop:{secret}@db/shop?passwort={secret}",
        f"postgresql://shop:{secret}@db/shop",
        f"s3://bucket/shop?secret_access_key={secret}&endpoint=x",
        f"s3://{secret}@bucket/shop",
        f"lanes://shop:{secret}@host/x",
    ):
        try:
            shown = repr(security_at(home, clock=SystemClock()).keys.home)
        except InterlockError as error:
            shown = f"{error}{error!r}"
        assert secret not in shown, home


@given(st.text(CHARACTERS + "/?#@:&=%", min_size=1).map("Q9{}".format), st.sampled_from("/?#@:"))
def test_no_password_that_nobody_has_quoted_is_shown(secret: str, mark: str) -> None:
    """A slash or a question mark ends what an address calls a password, and not what a person calls one."""
    for home in (f"postgresql://shop:{secret}{mark}Q9z@db/shop", f"s3://shop:{secret}{mark}Q9z@bucket/shop"):
        try:
            shown = security_at(home, clock=SystemClock()).keys.home
        except InterlockError as error:
            shown = f"{error}{error!r}"
        assert "Q9" not in shown, shown


def test_an_address_that_is_no_home_is_refused() -> None:
    for home in ("", "shop", "file:///x", "lanes://x", "lanes:///", "lanes:///../x"):
        with pytest.raises(BadUsage):
            security_at(home, clock=SystemClock())


@pytest.mark.parametrize(
    "piece",
    ["a://b:", "://", "token=", 'token="', "bearer ", "ilk_", "whsec_", ", secret-", " ", 'token="\\', "token=\\"],
)
def test_a_megabyte_that_was_made_to_be_slow_is_masked_in_its_stride(piece: str) -> None:
    """With a pattern that reads on to the end from everywhere this takes minutes."""
    redacted_text(piece * (2**20 // len(piece)))


def test_a_secret_at_the_cut_is_masked() -> None:
    text = "x" * 90 + " postgresql://shop:Q9secret@db/shop"
    assert "Q9" not in bounded_text(text, 113)
    assert len(bounded_text(text * 9, 100)) == 100


def test_a_traceback_is_bounded_and_has_its_causes_and_no_secret() -> None:
    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1)
        raise ValueError("password=Q9secret " + "x" * 1_000_000)

    def wrapped() -> None:
        try:
            deeper(100)
        except ValueError as error:
            raise KeyError("\0 \ud800") from error

    with pytest.raises(KeyError) as raised:
        wrapped()
    shown = bounded_traceback(raised.value)
    assert len(shown) <= 8_000
    assert "in deeper" in shown
    assert "ValueError" in shown
    assert "KeyError" in shown
    assert "Q9" not in shown
    assert shown.encode()
    assert "\0" not in shown


def test_half_of_a_surrogate_can_be_written_to_a_log_file(caplog: pytest.LogCaptureFixture) -> None:
    """Python reads names of files as such where they are no Unicode."""
    logger_of("interlock.test").error("failed: %s", "\udcff", exc_info=OSError("no file \udcff"))
    assert "\\udcff" in caplog.text
    caplog.text.encode()


def test_a_text_with_line_breaks_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = logger_of("interlock.test")
    forged = "2026-11-17 12:00:00 INFO interlock.steps: all is well"
    try:
        int(f"broken\n{forged}\r{forged}\x85{forged}\u2028{forged}\x1b[2K")
    except ValueError:
        log.exception("failed: %s", f"a\n{forged}")
    [record] = caplog.records
    lines = logging.Formatter("%(message)s").format(record).splitlines()
    assert not any(line.startswith("2026") for line in lines)
    assert "\x1b" not in caplog.text


def test_every_logger_of_the_engine_masks_secrets_itself() -> None:
    """Also where a program has handlers of its own."""
    import interlock.server.app_declaration  # noqa: F401, PLC0415 -- it loads what has a logger.

    ours = [each for name, each in logging.Logger.manager.loggerDict.items() if name.startswith("interlock.")]
    loggers = [each for each in ours if isinstance(each, logging.Logger) and each.name != "interlock.transitions"]
    assert len(loggers) > 3
    for each in loggers:
        assert any(isinstance(one, Redacting) for one in each.filters), each.name
