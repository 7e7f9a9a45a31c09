"""Every public error crosses the wire as itself: the same class, and the same three parts."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from interlock import errors
from interlock.client.retries import CLASSES, class_for, error_of
from interlock.errors import InterlockError, UserCodeError
from interlock.wire import ERROR_MEMBERS
from tests.unit.client.server import problem


def _decided(error: errors.VersionConflict) -> errors.VersionConflict:
    error.decided = errors.DecidedMove("APPROVE", "ada", datetime(2027, 1, 15, tzinfo=UTC), "review", "paid", 4)
    return error


SAMPLES: list[InterlockError] = [
    errors.InvalidTransition(machine="order", state="draft", event="CHARGED", allowed=["SUBMIT", "CANCEL"]),
    errors.GuardRejected(machine="order", state="draft", event="SUBMIT", guards=[("rich", "No.")], allowed=["SUBMIT"]),
    errors.Refusal("no.", machine="order", state="draft", event="SUBMIT", allowed=(), fix="Do."),
    errors.PayloadTooLarge("the context", size_bytes=9, limit_bytes=8),
    errors.Overloaded(2.5),
    errors.MovedElsewhere("moved.", url="postgresql://shop@db/shop", epoch=3),
    errors.RetryAfter(3.5),
    errors.MissingExtra("it needs x.", extra="x"),
    errors.DefinitionError("wrong.", rule="some-rule", location="shop.py:3"),
    errors.LeaseHeld("held.", lease="nightly", owner="host:1", since=datetime(2027, 1, 15, tzinfo=UTC)),
    errors.TaskClaimed("claimed.", by="ada", since=datetime(2027, 1, 15, tzinfo=UTC)),
    _decided(errors.VersionConflict("decided.")),
]


def public_errors() -> list[type[InterlockError]]:
    found: list[type[InterlockError]] = [InterlockError]
    for cls in found:
        found += [below for below in cls.__subclasses__() if below.__module__ == "interlock.errors"]
    return list(dict.fromkeys(found))


def test_every_public_error_is_in_the_table_under_its_own_code() -> None:
    assert {cls.code: cls for cls in public_errors()} == CLASSES
    assert len(CLASSES) == len(public_errors())


def test_a_former_code_is_still_known() -> None:
    assert type(error_of({"code": "user-code", "title": "action 'pay' raised."}, status=500)) is UserCodeError


@pytest.mark.parametrize("cls", public_errors(), ids=lambda cls: cls.__name__)
def test_every_public_error_arrives_as_it_was_sent(cls: type[InterlockError]) -> None:
    sent = next((each for each in SAMPLES if type(each) is cls), None) or cls("what.", why="why.", fix="fix.")
    document = msgspec.json.decode(msgspec.json.encode(problem(sent)))
    got = error_of(document, status=400)
    assert type(got) is cls
    assert str(got) == str(sent)
    assert vars(got).items() >= vars(sent).items()
    assert (got.code, got.retry, got.args) == (sent.code, sent.retry, (sent.what,))


def test_a_document_of_an_older_server_says_the_same() -> None:
    """It had what happened in `title`, and the reason alone in `detail`."""
    sent = errors.WorkflowNotFound("there is no workflow 'o-1'.", why="Nothing was started under it.", fix="Start it.")
    older = {"code": sent.code, "title": sent.what, "detail": sent.why, "fix": sent.fix}
    assert str(error_of(older, status=404)) == str(sent) == str(error_of(problem(sent), status=404))


def test_every_error_that_takes_more_than_its_text_has_its_members_listed() -> None:
    listed = {cls for cls in public_errors() if any(issubclass(cls, each) for each in ERROR_MEMBERS)}
    own = {type(each) for each in SAMPLES}
    assert own <= listed


@pytest.mark.parametrize("cls", public_errors(), ids=lambda cls: cls.__name__)
def test_a_document_with_nothing_but_a_code_is_an_error_that_can_be_shown_and_pickled(
    cls: type[InterlockError],
) -> None:
    got = error_of({"code": cls.code}, status=400)
    assert cls.default_fix in str(got)
    for name in {name for each in cls.__mro__ for name in ERROR_MEMBERS.get(each, {})}:
        assert hasattr(got, name)
    assert type(error_of({"code": cls.code, "allowed": 7, "retry_after_s": "soon", "title": 3}, status=400)) is cls


@pytest.mark.parametrize(
    ("status", "cls"),
    [(401, errors.NotAuthenticated), (403, errors.NotPermitted),
     (404, errors.TargetNotFound), (412, errors.VersionConflict), (413, errors.PayloadTooLarge),
     (429, errors.Overloaded), (503, errors.UnavailableError), (500, errors.InternalError), (418, errors.RequestError)],
)  # fmt: skip
def test_a_status_alone_has_a_class_too(status: int, cls: type[InterlockError]) -> None:
    assert class_for(status) is cls
    got = error_of({"code": "new-thing"}, status=status, retry_after_s=4.0)
    assert isinstance(got, cls)
    assert got.code == "new-thing"
    assert not isinstance(got, errors.Overloaded) or got.retry_after_s == 4.0


def test_the_first_guard_alone_is_enough() -> None:
    got = error_of({"code": "guard-rejected", "guard": "affordable"}, status=422)
    assert isinstance(got, errors.GuardRejected)
    assert (got.guard, got.guards) == ("affordable", ("affordable",))


def test_the_reference_of_errors_is_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "errors.md").read_text()
    assert all(f"`{code}`" in page for code in CLASSES)
