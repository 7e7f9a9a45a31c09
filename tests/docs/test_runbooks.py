"""Every alert leads to a section of the runbooks: what it means, how to look, what to do, when it is over (C17)."""

import re
from typing import get_args

import pytest

from interlock.cli.program import program_for
from interlock.engine.alerts import AlertSettings, receivers
from interlock.engine.alerts.alert import RUNBOOK_PAGE, RUNBOOKS, AlertKind
from interlock.signals import AlertRaised
from tests.docs.test_code_blocks import ROOT, refusal
from tests.integration.ops.files import read_yaml

PAGE = (ROOT / RUNBOOK_PAGE).read_text(encoding="utf-8")
SECTIONS = {
    heading.lower(): text
    for heading, text in re.findall(r"^## (\S+)$\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
}
KINDS: tuple[AlertKind, ...] = get_args(AlertRaised.__annotations__["kind"])
PARTS = ("**It means:**", "**Look:**", "**Do:**", "**It is over**", "**Do not**")
COMMANDS = {
    command.name or (command.callback.__name__ if command.callback is not None else "")
    for command in program_for().registered_commands
} | {group.name for group in program_for().registered_groups}


def rules() -> dict[str, str]:
    """The alerts of Prometheus, and where each leads."""
    return {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in read_yaml("prometheus/rules.yml")["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


RULES = rules()


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_of_prometheus_leads_to_its_section(alert: str) -> None:
    assert RULES[alert] == f"{RUNBOOK_PAGE}#{alert.lower()}"
    assert alert.lower() in SECTIONS


@pytest.mark.parametrize("kind", KINDS)
def test_an_alert_of_an_engine_leads_to_a_section_that_names_it(kind: AlertKind) -> None:
    assert f"`{kind}`" in SECTIONS[RUNBOOKS[kind]]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_says_everything_that_is_needed_at_night(section: str) -> None:
    assert [part for part in PARTS if part not in SECTIONS[section]] == []
    assert section in {alert.lower() for alert in RULES} | set(RUNBOOKS.values()), "no alert leads there"


def typed() -> list[str]:
    """The commands that the page names in its text."""
    return [words for words in re.findall(r"`(interlock [^`]*)`", PAGE.replace("\n", " ")) if " " in words]


@pytest.mark.parametrize("command", sorted(set(typed())))
def test_a_command_in_the_text_is_one(command: str) -> None:
    """Whole ones are parsed by the real command line; those that are only named are commands."""
    words = re.sub(r'"[^"]*"', "x", command.partition("|")[0]).split()[1:]
    said = refusal(tuple(words))
    assert not said or ("Missing" in said and words[0] in COMMANDS), said


def test_the_variables_that_name_receivers_are_told() -> None:
    page = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8")
    known = {value for value in vars(receivers).values() if isinstance(value, str) and value.startswith("INTERLOCK_")}
    assert known == set(re.findall(r"^\| `(INTERLOCK_\w+)` \|", page, flags=re.MULTILINE))


def test_the_bounds_of_a_receiver_are_told_with_their_defaults() -> None:
    page = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8")
    for name, default in re.findall(r"^\| `(\w+_(?:max|s))` \| ([\d,]+) \|", page, flags=re.MULTILINE):
        assert getattr(AlertSettings(), name) == float(default.replace(",", ""))
