"""The engine on a store, in virtual time, with everything that can go wrong; one seed is one story.

A seed decides who sends what when, how the world outside behaves, which commits fail and how, and when the process is
killed. The same seed is the same story. It needs no extra.
"""

from interlock.testing.engines.run import run_campaign, simulate

__all__ = ["run_campaign", "simulate"]
