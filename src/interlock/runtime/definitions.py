"""Live workflows are checked against their machine when an engine opens.

A store keeps the description of every machine that has ever written to it. Where the description has changed and
workflows of the old one are there, the two are compared; unless it is proved that every stored workflow can be read and
can go on, opening is refused with the plan that says what is in the way. Versions are declared, never derived from the
source: an edit that changes nothing strands nobody.
"""

from collections.abc import Iterable

import msgspec

from interlock.core.description import MachineDescription, description_from_json
from interlock.core.plan import Plan, plan
from interlock.core.plan.findings import proves_safe
from interlock.core.values import Finding
from interlock.errors import DefinitionError
from interlock.runtime.bound import Bound
from interlock.store.protocol import Store

PREFIX = "machine/"

OWING = "owing/"
"""Notes of the states in which a definition that was replaced could owe something."""


async def check_definitions(
    store: Store, machines: Iterable[Bound], noted: dict[str, str], *, accept_changes: bool, worker: bool
) -> list[Plan]:
    """Compare each machine with those that have written here before; returns the plans that were accepted anyway.

    Only whoever runs steps replaces a description; the others write down what nobody has written before.
    """
    living: dict[tuple[str, int, str], int] | None = None
    accepted: list[Plan] = []
    for bound in machines:
        described = bound.machine.describe()
        for old in _before(bound.name, noted):
            if old == described:
                continue
            if living is None:
                living = await store.living()
            accepted += _compared(old, described, living, accept_changes=accept_changes)
        name = f"{PREFIX}{bound.name}/{described.version}"
        text = described.to_json().decode()
        if name not in noted or (worker and noted[name] != text):
            if name in noted:
                # The old text goes, and what it may have left owed is looked for by every later life all the same.
                owing = msgspec.json.encode(sorted(owing_before(bound, noted))).decode()
                await store.note(f"{OWING}{bound.name}", owing)
            await store.note(name, text)
    return accepted


def owing_before(bound: Bound, noted: dict[str, str]) -> set[str]:
    """The states in which any definition of the machine, so far, could owe a workflow something."""
    replaced = msgspec.json.decode(noted.get(f"{OWING}{bound.name}", "[]"), type=set[str])
    return replaced | {
        state.name
        for old in _before(bound.name, noted)
        for state in old.states
        if state.step is not None or state.timers or state.unwinds_to is not None
    }


def _before(machine: str, noted: dict[str, str]) -> list[MachineDescription]:
    found = [text for name, text in noted.items() if name.rpartition("/")[0] == f"{PREFIX}{machine}"]
    return [description_from_json(text.encode()) for text in found]


def _compared(
    old: MachineDescription,
    new: MachineDescription,
    living: dict[tuple[str, int, str], int],
    *,
    accept_changes: bool,
) -> list[Plan]:
    stored = {
        state: count
        for (machine, version, state), count in living.items()
        if machine == old.name and version == old.version
    }
    if not stored:
        return []
    found = plan(old, new)
    problems = [finding for finding in found.findings if _concerns(finding, old, stored)]
    if problems and not accept_changes:
        raise _refused(old, new, stored, found, problems)
    return [found] if problems else []


def _concerns(finding: Finding, old: MachineDescription, stored: dict[str, int]) -> bool:
    """Whether a finding is about workflows that are there. A version that was not raised is for `interlock plan`."""
    if proves_safe((finding,)) or finding.code == "version-same":
        return False
    return old.state(finding.location) is None or finding.location in stored


def _refused(
    old: MachineDescription, new: MachineDescription, stored: dict[str, int], found: Plan, problems: list[Finding]
) -> DefinitionError:
    where = ", ".join(f"{count:,} in {state!r}" for state, count in sorted(stored.items()))
    fixes = [finding.fix for finding in problems if finding.fix]
    return DefinitionError(
        f"machine {new.name!r} version {new.version} does not fit the workflows that are stored of version "
        f"{old.version} ({where}).\n{found.text()}",
        why="Going on could strand them, or lose what is stored of them.",
        fix="; ".join([*dict.fromkeys(fixes), "or open with accept_changes=True, if what the plan says is meant"])
        + ".",
        rule="definition-mismatch",
    )
