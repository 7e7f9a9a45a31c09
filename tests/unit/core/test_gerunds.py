import pytest

from interlock.core.pipeline import gerund


@pytest.mark.parametrize(
    ("verb", "doing"),
    [
        ("charge", "charging"),
        ("validate", "validating"),
        ("reserve", "reserving"),
        ("ship", "shipping"),
        ("panic", "panicking"),
        ("fulfil", "fulfilling"),
        ("ship_goods", "shipping_goods"),
        ("get", "getting"),
        ("plan", "planning"),
        ("submit", "submitting"),
        ("transfer", "transferring"),
        ("visit", "visiting"),
        ("notify", "notifying"),
        ("pay", "paying"),
        ("fix", "fixing"),
        ("show", "showing"),
        ("tie", "tying"),
        ("see", "seeing"),
        ("be", "being"),
        ("do", "doing"),
        ("go", "going"),
        ("read", "reading"),
        ("run", "running"),
        ("Charge", "charging"),
        ("_charge", "charging"),
        ("step1", "step1ing"),
        ("x", "xing"),
        ("_", "ing"),
    ],
)
def test_a_step_is_named_by_its_gerund(verb: str, doing: str) -> None:
    assert gerund(verb) == doing
