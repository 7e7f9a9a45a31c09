"""Checks of the whole graph (A2): what makes a machine unusable, and what is merely worth knowing.

`soundness` finds errors, `advice` finds what is milder. Both look at a compiled table, broken or not, and return
findings; only `demand_sound` raises, when a machine is first used.
"""

from interlock.core.checks.advice import advice
from interlock.core.checks.soundness import soundness
from interlock.core.table import Table
from interlock.core.values import Finding
from interlock.errors import DefinitionError

__all__ = ["demand_sound", "findings"]

_ORDER = ("error", "warning", "info")


def findings(table: Table) -> list[Finding]:
    """Everything there is to say about the machine, errors first."""
    found = [*soundness(table), *advice(table)]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))


def demand_sound(table: Table) -> None:
    """Raise the first error as a DefinitionError, with the number of the others."""
    errors = soundness(table)
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors) - 1} more: see check())" if len(errors) > 1 else ""
    raise DefinitionError(
        f"machine {table.name!r}: {first.what}{more}",
        why=first.why,
        fix=first.fix,
        rule=first.code,
        location=first.location,
    )
