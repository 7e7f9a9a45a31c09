"""Check of stored workflows against their machines when an engine opens.

A store keeps the description of every machine that has ever written to it. Where the description has changed and has
workflows, the two are compared. Unless every stored workflow provably can be read and can go on, opening is refused
with the plan, which lists the problems. Versions are declared, never derived from the source: an edit that changes
nothing blocks no workflow.
"""

import logging
from collections.abc import Iterable

import msgspec

from interlock.core.describe import MachineDescription, description_from_json
from interlock.core.plan import Plan, plan
from interlock.core.plan.findings import proves_safe
from interlock.core.search import search_from_json, search_to_json
from interlock.core.values import Finding
from interlock.engine.bound_machine import BoundMachine
from interlock.errors import DefinitionError
from interlock.store.protocol import Store

PREFIX = "machine/"

SEARCH_PREFIX = "search/"
"""Prefix of the notes with what each machine declares searchable: see `search_to_json`."""

EVERYWHERE = frozenset({"rename-ambiguous"})
"""Findings about a state that concern every workflow: history names states without the version that wrote them."""

log = logging.getLogger("interlock.operators")

OWING = "owing/"
"""Prefix of the notes with the states in which a replaced definition could owe something."""


async def check_definitions(
    store: Store, machines: Iterable[BoundMachine], notes: dict[str, str], *, accept_changes: bool, worker: bool
) -> list[Plan]:
    """Compare each machine with its stored descriptions; return the plans with losses that were accepted.

    Only workers replace a description; other engines only add a missing one. Raises DefinitionError for losses.
    """
    living: dict[tuple[str, int, str], int] | None = None
    accepted: list[Plan] = []
    for bound in machines:
        described = bound.machine.describe()
        for old in _descriptions_of(bound.name, notes):
            if old == described:
                continue
            if living is None:
                living = await store.living()
            if accept_changes:
                bound.accepted.add(old.version)
            accepted += _compare(bound, old, described, living, accept_changes=accept_changes)
        name = f"{PREFIX}{bound.name}/{described.version}"
        text = described.to_json().decode()
        if name not in notes or (worker and notes[name] != text):
            if name in notes:
                # The old text is replaced; later engines still look for what it may have left owed.
                owing = msgspec.json.encode(sorted(owing_before(bound, notes))).decode()
                await store.note(f"{OWING}{bound.name}", owing)
            await store.note(name, text)
    return accepted


async def note_search(store: Store, machines: Iterable[BoundMachine], notes: dict[str, str]) -> None:
    """Record what the machines declare searchable, for programs without their code. A later version is not replaced."""
    for bound in machines:
        name, search = f"{SEARCH_PREFIX}{bound.name}", bound.machine.search
        text = search_to_json(search)
        if notes.get(name) == text or (search.fields is None and name not in notes):
            continue
        if name not in notes or search_from_json(bound.name, notes[name]).version <= search.version:
            await store.note(name, text)


def owing_before(bound: BoundMachine, notes: dict[str, str]) -> set[str]:
    """Return the states in which any definition of the machine so far could owe a workflow something."""
    replaced = msgspec.json.decode(notes.get(f"{OWING}{bound.name}", "[]"), type=set[str])
    return replaced | {
        state.name
        for old in _descriptions_of(bound.name, notes)
        for state in old.states
        if state.step is not None or state.timers or state.unwinds_to is not None
    }


def compare_version(bound: BoundMachine, version: int, state: str, notes: dict[str, str]) -> None:
    """Decide whether this process may decide on workflows that another version has stored in this state.

    Processes of several versions run side by side during a rollout, so a version may appear after an engine was
    opened. Its description is in the store before its first workflow is.
    """
    if version not in bound.plans:
        bound.plans[version] = _plan_from(bound, version, notes)
    compared = bound.plans[version]
    problems: list[str] = []
    if version in bound.accepted:
        pass
    elif isinstance(compared, str):
        problems = [compared]
    elif compared is not None:
        names = {verdict.state for verdict in compared.states}
        problems = [
            finding.what
            for finding in compared.findings
            if _is_problem(finding)
            and (finding.location not in names or finding.location == state or finding.code in EVERYWHERE)
        ]
    verdict = "; ".join(problems)
    bound.verdicts[version, state] = f"Deciding on it here could lose what is stored: {verdict}." if problems else ""
    if problems:
        log.warning(
            "workflows of machine %r that version %d has stored in %r are left to processes of that version; this "
            "process runs version %d: %s",
            bound.name, version, state, bound.version, verdict,
        )  # fmt: skip


def _plan_from(bound: BoundMachine, version: int, notes: dict[str, str]) -> Plan | str | None:
    text = notes.get(f"{PREFIX}{bound.name}/{version}")
    if text is None:
        return f"the store has no description of version {version}" if version > bound.version else None
    try:
        old = description_from_json(text.encode())
    except msgspec.MsgspecError as error:  # Written by a later release. It concerns the rows of its version only.
        return f"the description of version {version} cannot be read here: {error}"
    return plan(old, bound.machine.describe())


def _descriptions_of(machine: str, notes: dict[str, str]) -> list[MachineDescription]:
    found = [text for name, text in notes.items() if name.rpartition("/")[0] == f"{PREFIX}{machine}"]
    return [description_from_json(text.encode()) for text in found]


def _compare(
    bound: BoundMachine,
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
        raise _mismatch_error(old, new, stored, found, problems)
    bound.verdicts.update({(old.version, state): "" for state in stored})
    return [found] if problems else []


def _concerns(finding: Finding, old: MachineDescription, stored: dict[str, int]) -> bool:
    """Return whether a finding concerns stored workflows."""
    if not _is_problem(finding):
        return False
    return old.state(finding.location) is None or finding.location in stored or finding.code in EVERYWHERE


def _is_problem(finding: Finding) -> bool:
    """Return whether it prevents reading workflows here. Version numbers are checked by `interlock plan`."""
    return finding.code not in {"version-same", "version-lower"} and not proves_safe((finding,))


def _mismatch_error(
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
