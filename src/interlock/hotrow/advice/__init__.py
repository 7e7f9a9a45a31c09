"""Placement advice for workloads: evidence, the rule, its texts, hysteresis and the journal."""
