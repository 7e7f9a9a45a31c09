"""Every way in which a server can fail to answer, and which of the three classes tells of it.

The rule: nothing but success is success, a conditional write is sent once, and no text shows a secret.
"""

from collections.abc import Callable

import pytest

from interlock.lanes.objectlog.bucket_protocol import BucketError, ConditionFailed, Denied, Unclear
from interlock.lanes.objectlog.remote_bucket import RETRIES, RemoteBucket, open_bucket
from interlock.urls import parse_bucket_url
from tests.integration.objects.scripted import Answer, Eof, Hang, Reply, Reset, ScriptedServer, xml

Call = Callable[[RemoteBucket], object]

TAG = {"e_tag": '"tag"'}
CONDITIONAL: dict[str, Call] = {
    "create": lambda bucket: bucket.create("log/1", b"mine"),
    "replace": lambda bucket: bucket.replace("log/1", b"mine", TAG),
}
PATIENT: dict[str, Call] = {
    "get": lambda bucket: bucket.get("log/1"),
    "get_many": lambda bucket: bucket.get_many(["log/1"], bytes_max=10),
    "put": lambda bucket: bucket.put("log/1", b"mine"),
    "delete": lambda bucket: bucket.delete(["log/1"]),
    "keys": lambda bucket: bucket.keys("log/"),
}
ANSWERS: dict[str, tuple[Answer, type[BucketError]]] = {
    "closed": (Eof(), Unclear),
    "reset": (Reset(), Unclear),
    "silent": (Hang(), Unclear),
    "cut": (Reply(200, b"half of it", cut=4), Unclear),
    "400": (xml(400, "ExpiredToken"), Unclear),
    "500": (xml(500, "InternalError"), Unclear),
    "503": (xml(503, "SlowDown"), Unclear),
    "401": (xml(401, "Unauthorized"), Denied),
    "403": (xml(403, "AccessDenied"), Denied),
    "no bucket": (xml(404, "NoSuchBucket"), Denied),
}


def opened(server: ScriptedServer, answer: str = "") -> RemoteBucket:
    """Patient enough for a busy machine, unless waiting is what the test is about."""
    return open_bucket(parse_bucket_url(server.url("shop/stock")), request_timeout_s=2.0 if answer == "silent" else 30)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["closed", "reset", "silent", "500", "503", "400"])
@pytest.mark.parametrize("call", CONDITIONAL)
def test_a_conditional_write_without_an_answer_is_unclear_and_was_sent_once(call: str, answer: str) -> None:
    with ScriptedServer(ANSWERS[answer][0]) as server:
        with pytest.raises(Unclear):
            CONDITIONAL[call](opened(server, answer))
        [request] = server.requests
        assert request.body == b"mine"
        assert request.headers.get("if-none-match" if call == "create" else "if-match") is not None


@pytest.mark.parametrize("call", CONDITIONAL)
@pytest.mark.parametrize(
    "answer", [xml(409, "ConditionalRequestConflict"), xml(412, "PreconditionFailed")], ids=["409", "412"]
)
def test_a_condition_that_failed_is_told_as_such(call: str, answer: Answer) -> None:
    with ScriptedServer(answer) as server:
        with pytest.raises(ConditionFailed):
            CONDITIONAL[call](opened(server))
        assert len(server.requests) == 1


@pytest.mark.parametrize("answer", ["401", "403", "no bucket"])
@pytest.mark.parametrize("call", [*CONDITIONAL, *PATIENT])
def test_a_refusal_for_good_is_told_as_such(call: str, answer: str) -> None:
    with ScriptedServer(ANSWERS[answer][0]) as server, pytest.raises(Denied):
        (CONDITIONAL | PATIENT)[call](opened(server))


def test_an_object_that_is_missing_is_none_where_it_may_be() -> None:
    with ScriptedServer(xml(404, "NoSuchKey")) as server:
        bucket = opened(server)
        assert bucket.get("log/1") is None
        assert bucket.get_many(["log/1", "log/2"], bytes_max=10) == [None, None]
        bucket.delete(["log/1"])


def test_nothing_is_missing_when_something_is_written() -> None:
    with ScriptedServer(xml(404, "NotFound")) as server:
        bucket = opened(server)
        with pytest.raises(Denied):
            bucket.create("log/1", b"mine")
        with pytest.raises(Denied):
            bucket.put("log/1", b"mine")


@pytest.mark.campaign
@pytest.mark.parametrize("answer", ["closed", "reset", "silent", "cut", "400", "500", "503"])
@pytest.mark.parametrize("call", ["get", "get_many"])
def test_a_read_without_a_whole_answer_is_unclear_and_never_none(call: str, answer: str) -> None:
    with ScriptedServer(ANSWERS[answer][0]) as server, pytest.raises(Unclear):
        PATIENT[call](opened(server, answer))


@pytest.mark.parametrize("answer", ["closed", "500"])
@pytest.mark.parametrize("call", ["put", "delete", "keys"])
def test_other_calls_without_an_answer_are_unclear(call: str, answer: str) -> None:
    with ScriptedServer(ANSWERS[answer][0]) as server, pytest.raises(Unclear):
        PATIENT[call](opened(server))


@pytest.mark.parametrize("call", ["get", "put"])
def test_what_may_be_repeated_is_repeated_a_few_times(call: str) -> None:
    with ScriptedServer(xml(503, "SlowDown"), Reply(200, b"at last")) as server:
        PATIENT[call](opened(server))
        assert len(server.requests) == 2
    with ScriptedServer(xml(503, "SlowDown")) as server:
        with pytest.raises(Unclear):
            PATIENT[call](opened(server))
        assert 1 < len(server.requests) <= RETRIES + 1


def test_a_server_without_ranges_is_read_whole() -> None:
    with ScriptedServer(Reply(200, b"0123456789")) as server:
        assert opened(server).get_many(["log/1"], bytes_max=4) == [b"0123"]


def test_one_that_cannot_be_read_spoils_the_whole_answer() -> None:
    def script(request: object) -> Answer:
        return xml(403, "AccessDenied") if "log/2" in str(request) else Reply(200, b"x")

    with ScriptedServer(script=script) as server, pytest.raises(Denied):
        opened(server).get_many(["log/1", "log/2", "log/3"])


def test_nobody_listens() -> None:
    with ScriptedServer(Eof()) as server:
        bucket = opened(server)
    for call in (CONDITIONAL | PATIENT).values():
        with pytest.raises(Unclear):
            call(bucket)


def test_the_text_is_one_short_line_without_secrets() -> None:
    answer = xml(403, "SignatureDoesNotMatch", "long " * 500)
    with ScriptedServer(answer) as server:
        bucket = opened(server)
        with pytest.raises(Denied) as caught:
            bucket.create("log/1", b"mine")
        text = str(caught.value)
        assert "403" in text
        assert "SignatureDoesNotMatch" in text
        assert "\n" not in text
        assert len(text) < 500
        assert "hidden" not in text + repr(bucket)
        assert caught.value.__cause__ is None
        with pytest.raises(Denied) as listed:
            bucket.keys("log/")
        assert "?" not in str(listed.value)


def test_a_panic_inside_the_driver_is_unclear_and_an_interrupt_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})
    with ScriptedServer(Eof()) as server:
        bucket = opened(server)
        for raised, expected in ((panic("index out of bounds"), Unclear), (KeyboardInterrupt(), KeyboardInterrupt)):

            def fail(*_: object, raised: BaseException = raised, **__: object) -> None:
                raise raised

            monkeypatch.setattr("obstore.put", fail)
            with pytest.raises(expected):
                bucket.create("log/1", b"mine")


def test_databases_of_one_bucket_share_their_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(Eof()) as server:
        first, second = (
            open_bucket(parse_bucket_url(server.url(f"shop/{name}")), request_timeout_s=9) for name in "ab"
        )
        assert first._once is second._once
        assert first._patient is second._patient
        assert first._once is not first._patient
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        assert open_bucket(parse_bucket_url(server.url("shop/a")), request_timeout_s=9)._once is not first._once
