"""Scopes are a ladder; limits narrow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import BadUsage, NotPermitted
from interlock.server.security.guard import LOCAL, Identity
from interlock.server.security.keys import LADDER, LIMITS_MAX, KeyBounds, Scope, checked_limits, with_lower_scopes


def test_each_scope_includes_those_below_it() -> None:
    assert [scope.value for scope in LADDER] == ["read", "send", "operate", "admin"]
    for place, scope in enumerate(LADDER):
        assert with_lower_scopes((scope,)) == set(LADDER[: place + 1])
    assert with_lower_scopes((Scope.READ, Scope.OPERATE)) == {Scope.READ, Scope.SEND, Scope.OPERATE}
    assert with_lower_scopes(()) == set()


@pytest.mark.parametrize(
    ("machine", "workflow", "allowed"),
    [
        ("order", "o-1", True),
        ("refund", "o-", True),
        ("order", None, True),
        (None, None, True),
        ("payroll", "o-1", False),
        ("order", "p-1", False),
        ("order", "O-1", False),
        ("orders", "o-1", False),
        (None, "", False),
    ],
)
def test_both_limits_must_hold(machine: str | None, workflow: str | None, allowed: bool) -> None:
    identity = Identity("abc", "", frozenset(), KeyBounds(("order", "refund"), ("o-", "x")))
    assert identity.allows(machine, workflow) is allowed


@given(st.text(), st.text())
def test_without_limits_everything_is_inside(machine: str, workflow: str) -> None:
    assert LOCAL.allows(machine, workflow)
    assert not LOCAL.limited


@pytest.mark.parametrize("value", ["", "a/b", "a\nb", "x" * 201, "\x00"])
def test_a_limit_that_can_mean_nothing_is_refused(value: str) -> None:
    """An empty prefix would be no limit at all, although one was asked for."""
    for machines, prefixes in (((value,), ()), ((), (value,))):
        with pytest.raises(BadUsage):
            checked_limits(machines, prefixes)


def test_limits_are_bounded_and_kept_once() -> None:
    assert checked_limits(("b", "a", "b"), ()) == KeyBounds(("a", "b"))
    with pytest.raises(BadUsage):
        checked_limits((), tuple(f"p{number}" for number in range(LIMITS_MAX + 1)))


def test_a_refusal_names_the_key_what_it_has_and_what_it_needs() -> None:
    identity = Identity("abc", "till", with_lower_scopes((Scope.SEND,)), KeyBounds(("order",)))
    with pytest.raises(NotPermitted) as caught:
        identity.require(Scope.OPERATE)
    assert str(caught.value).startswith("the key abc (till) has no scope operate; it has read, send.")
    with pytest.raises(NotPermitted, match="limited to machines order"):
        identity.require(Scope.READ, machine="payroll")
    assert str(Identity("abc", "", frozenset())) == "the key abc"
    assert str(LOCAL) == "local"
