"""The `Plan`: everything that comparing two versions of a machine found, as one frozen value.

`safe` is true only when nothing stored is known to break, all stored data are proved to decode without losing a value,
and all undos still exist. It is a field and not a property so that the JSON has it too.
"""

import msgspec

from interlock.core.plan.findings import (
    Decoding,
    Incompatibility,
    Obstacle,
    PayloadVerdict,
    RefusedEvent,
    StateVerdict,
)
from interlock.core.plan.report import report
from interlock.core.values import Finding


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The effects on stored workflows when one version of a machine replaces another."""

    old_name: str
    old_version: int
    new_name: str
    new_version: int
    changed: bool
    """Whether anything but the version number, prose and the order of declarations changed."""
    safe: bool
    """No error among the findings and no warning of `WITHOUT_PROOF`: no workflow stranded, no stored data lost."""
    side_by_side: bool = True
    """Whether processes of both versions may take events of the same workflows: each keeps what the other stores."""
    side_by_side_obstacles: tuple[Obstacle, ...] = ()
    states_added: tuple[str, ...] = ()
    states_removed: tuple[str, ...] = ()
    states_renamed: dict[str, str] = {}
    events_added: tuple[str, ...] = ()
    events_removed: tuple[str, ...] = ()
    events_refused: tuple[RefusedEvent, ...] = ()
    payloads: tuple[PayloadVerdict, ...] = ()
    context: Decoding = "decodes"
    context_incompatibilities: tuple[Incompatibility, ...] = ()
    states: tuple[StateVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()

    def text(self) -> str:
        """Return a readable report without colours: verdict first, then findings, then a table of states."""
        name = self.old_name if self.old_name == self.new_name else f"{self.old_name} → {self.new_name}"
        title = f"{name}, version {self.old_version} → {self.new_version}"
        return report(
            title,
            changed=self.changed,
            safe=self.safe,
            findings=self.findings,
            obstacles=self.side_by_side_obstacles,
            states=self.states,
        )
