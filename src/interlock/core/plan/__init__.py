"""Migration plans: what happens to stored workflows when a machine changes.

`plan(old, new)` compares two descriptions and returns a `Plan`; `accepts(new_schema, old_schema)` is the comparison of
JSON schemas that it uses for contexts and payloads. Everything here is pure and reads descriptions only.
"""

from interlock.core.plan.compare import plan
from interlock.core.plan.findings import Plan
from interlock.core.plan.schema_compatibility import accepts

__all__ = ["Plan", "accepts", "plan"]
