"""The whole tree: unique codes, retry advice, three-part text, and nothing lost on the way to another process."""

import copy
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from interlock import errors

REFUSAL = {"machine": "order", "state": "draft", "event": "SHIP", "allowed": ("SUBMIT",)}

MADE: dict[type[errors.InterlockError], Callable[[], errors.InterlockError]] = {
    errors.DefinitionError: lambda: errors.DefinitionError("w", why="y", fix="f", rule="r", location="a.py:1"),
    errors.Refusal: lambda: errors.Refusal(
        "w", machine="order", state="draft", event="SHIP", allowed=["SUBMIT"], fix="f"
    ),
    errors.InvalidTransition: lambda: errors.InvalidTransition(
        machine="order", state="draft", event="SHIP", allowed=["SUBMIT"]
    ),
    errors.GuardRejected: lambda: errors.GuardRejected(
        machine="order", state="draft", event="SHIP", guards=[("has_items", "It has items.")], allowed=["SHIP"]
    ),
    errors.PayloadTooLarge: lambda: errors.PayloadTooLarge("the context", size_bytes=20, limit_bytes=10),
    errors.MissingExtra: lambda: errors.MissingExtra("it needs hypothesis", extra="testing"),
    errors.RetryAfter: lambda: errors.RetryAfter(2.5),
    errors.Overloaded: lambda: errors.Overloaded(0.5),
    errors.LeaseHeld: lambda: errors.LeaseHeld(
        "held", lease="report", owner="db1:4711", since=datetime(2027, 1, 15, tzinfo=UTC)
    ),
    errors.TaskClaimed: lambda: errors.TaskClaimed("claimed", by="ada", since=datetime(2027, 1, 15, tzinfo=UTC)),
}


def classes(root: type[errors.InterlockError] = errors.InterlockError) -> Iterator[type[errors.InterlockError]]:
    if root.__module__ == errors.__name__:
        yield root
        for below in root.__subclasses__():
            yield from classes(below)


ALL = sorted(set(classes()), key=lambda cls: cls.__name__)


def make(cls: type[errors.InterlockError]) -> errors.InterlockError:
    return MADE.get(cls, lambda: cls("it broke"))()


def test_the_walk_finds_the_tree() -> None:
    assert len(ALL) >= 30
    assert {errors.ConstraintViolation, errors.InternalError, errors.MovedElsewhere} <= set(ALL)


def test_every_code_is_unique_and_plain() -> None:
    codes = [cls.code for cls in ALL]
    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and code.replace("-", "").isalpha() for code in codes)


@pytest.mark.parametrize("cls", ALL)
def test_every_class_is_drawn_at_the_top_and_documented(cls: type[errors.InterlockError]) -> None:
    assert cls.__name__ in (errors.__doc__ or "")
    assert cls.__doc__


@pytest.mark.parametrize("cls", ALL)
def test_every_error_says_what_why_and_fix(cls: type[errors.InterlockError]) -> None:
    error = make(cls)
    assert cls.retry in {"never", "now", "later"}
    assert error.what
    assert error.why
    assert error.fix
    for part in (error.what, error.why, error.fix):
        assert part in str(error)


@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("cls", ALL)
def test_every_error_survives_the_way_to_another_process(
    cls: type[errors.InterlockError], duplicate: Callable[[errors.InterlockError], errors.InterlockError]
) -> None:
    error = make(cls)
    error.add_note("seen in the night")
    again = duplicate(error)
    assert type(again) is cls
    assert again.__dict__ == error.__dict__
    assert again.args == error.args
    assert str(again) == str(error)


@pytest.mark.parametrize(
    ("cls", "advice"),
    [
        (errors.DefinitionError, "never"),
        (errors.InvalidTransition, "never"),
        (errors.GuardRejected, "never"),
        (errors.NonRetryable, "never"),
        (errors.VersionConflict, "now"),
        (errors.OutcomeUnknown, "now"),
        (errors.Retryable, "later"),
        (errors.RetryAfter, "later"),
        (errors.Overloaded, "later"),
        (errors.WaitTimeout, "later"),
        (errors.CorruptionError, "never"),
    ],
)
def test_the_advice_on_retrying(cls: type[errors.InterlockError], advice: str) -> None:
    assert cls.retry == advice


def test_own_reason_and_fix_replace_the_general_ones() -> None:
    error = errors.KeyReused("w", why="because", fix="do this")
    assert (error.why, error.fix) == ("because", "do this")
    assert errors.KeyReused("w").fix == errors.KeyReused.default_fix


def test_a_definition_error_starts_with_its_place_and_names_its_rule() -> None:
    error = make(errors.DefinitionError)
    assert str(error).startswith("a.py:1: w [r]")
    bare = errors.DefinitionError("w")
    assert (bare.rule, bare.location) == ("", "")
    assert str(bare).startswith("w\n")


def test_an_invalid_transition_names_state_event_and_what_is_allowed() -> None:
    error = errors.InvalidTransition(machine="order", state="draft", event="SHIP", allowed=["SUBMIT", "CANCEL"])
    assert (error.machine, error.state, error.event, error.allowed) == ("order", "draft", "SHIP", ("SUBMIT", "CANCEL"))
    for word in ("order", "draft", "SHIP", "SUBMIT, CANCEL", "declare SHIP"):
        assert word in str(error)


def test_where_nothing_is_allowed_it_says_none() -> None:
    assert "none" in str(errors.InvalidTransition(machine="m", state="done", event="SHIP", allowed=[]))


def test_a_rejection_names_every_guard_and_the_reasons_there_are() -> None:
    error = errors.GuardRejected(
        machine="m", state="s", event="E", guards=[("rich", "It is rich."), ("tall", "")], allowed=["E"]
    )
    assert error.guard == "rich"
    assert error.guards == ("rich", "tall")
    assert error.reasons == ("It is rich.",)
    assert "rich (It is rich.); tall" in error.what


def test_sizes_and_seconds_are_attributes() -> None:
    large = errors.PayloadTooLarge("the context", size_bytes=2_000, limit_bytes=1_000)
    assert (large.size_bytes, large.limit_bytes) == (2_000, 1_000)
    assert "2,000" in large.what
    assert "1,000" in large.what
    assert errors.RetryAfter(2.5).seconds == 2.5
    assert errors.RetryAfter(1, "later").what == "later"
    assert errors.Overloaded(0.5).retry_after_s == 0.5
    assert errors.Overloaded(0.5, "full").what == "full"


def test_a_timeout_of_waiting_is_a_timeout_error() -> None:
    with pytest.raises(TimeoutError):
        raise errors.WaitTimeout("not yet")


def test_branches_of_the_tree() -> None:
    assert issubclass(errors.InvalidTransition, errors.Refusal)
    assert issubclass(errors.ConstraintViolation, errors.TransactionError)
    assert issubclass(errors.RetryAfter, errors.Retryable)
    assert not issubclass(errors.NonRetryable, errors.Retryable)
    assert not issubclass(errors.UserCodeError, errors.RequestError)
