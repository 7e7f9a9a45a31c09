"""Mapping of old states to new states.

The newer machine declares `renamed`; a caller of `plan` may add to it or override it. Names that do not exist are
findings, not exceptions: a plan should show all mistakes together.

Odd choice: a declaration that the old machine had too is skipped. One left from an earlier release (the old machine
lacks its old name and has its target) is only an info, because machines keep such declarations for as long as old
workflows may come back.
"""

from collections.abc import Mapping

from interlock.core.description import MachineDescription
from interlock.core.values import Finding


class Renames:
    """The checked mapping from old to new states, and the findings about it."""

    def __init__(self, old: MachineDescription, new: MachineDescription, overrides: Mapping[str, str] | None) -> None:
        self.mapping: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._old_names: set[str] = {state.name for state in old.states}
        self._new_names: set[str] = {state.name for state in new.states}
        explicit = dict(overrides or {})
        for source, target in {**new.renamed, **explicit}.items():
            told_before = source not in explicit and source not in self._old_names and old.renamed.get(source) == target
            if not told_before:
                self._enter(source, target, explicit=source in explicit)
        self._note_merged()

    def becomes(self, state: str) -> str | None:
        """Return the new name of an old state, or None when the new machine does not have it."""
        target = self.mapping.get(state, state)
        return target if target in self._new_names else None

    def _enter(self, source: str, target: str, *, explicit: bool) -> None:
        pair = f"renamed={{{source!r}: {target!r}}}"
        known = source in self._old_names
        if target not in self._new_names:
            self.findings.append(
                Finding(
                    code="rename-unknown-new",
                    severity="error",
                    what=f"{pair}: the new machine has no state `{target}`",
                    why="workflows parked there would be sent to a state that does not exist",
                    fix=f"use one of {_listed(self._new_names)}",
                    location=source,
                )
            )
        if not known:
            self.findings.append(self._unknown_old(source, target, pair, explicit=explicit))
        if not known or target not in self._new_names:
            return
        self.mapping[source] = target
        if source != target and source in self._new_names:
            self.findings.append(
                Finding(
                    code="rename-ambiguous",
                    severity="error",
                    what=f"{pair}: the new machine still has a state `{source}`",
                    why=f"a stored workflow or a row of history that names `{source}` could mean either of them, and "
                    "would be read under its own name",
                    fix=f"drop the mapping, or give the new machine another name for `{source}`",
                    location=source,
                )
            )

    def _unknown_old(self, source: str, target: str, pair: str, *, explicit: bool) -> Finding:
        leftover = not explicit and target in self._old_names
        return Finding(
            code="rename-leftover" if leftover else "rename-unknown-old",
            severity="info" if leftover else "error",
            what=f"{pair}: the old machine has no state `{source}`",
            why=f"`{target}` exists already, so this is left from an earlier change"
            if leftover
            else "the mapping has no effect: it is a misspelling, or it is meant for another version",
            fix="keep it while workflows of that earlier version may come back"
            if leftover
            else f"use one of {_listed(self._old_names)}",
            location=source,
        )

    def _note_merged(self) -> None:
        for target in sorted(set(self.mapping.values())):
            sources = sorted(name for name in self._old_names if self.becomes(name) == target)
            if len(sources) > 1:
                self.findings.append(
                    Finding(
                        code="rename-merged",
                        severity="info",
                        what=f"the states {_listed(sources)} all become `{target}`",
                        why="afterwards the state does not show which of them a workflow came from",
                        fix="nothing, if that is meant; otherwise map them to states of their own",
                        location=target,
                    )
                )


def _listed(names: set[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
