"""Many writers, one bucket, one seed: the real lane in virtual time, with everything that can go wrong.

A seed decides everything: who opens the lane when, what the bucket answers, which process stands still or is killed.
The same seed is the same story. Needs `pip install "interlock[objects]"`.
"""

from interlock.testing.campaigns import Campaign, Simulated
from interlock.testing.simulation.campaign import run_campaign
from interlock.testing.simulation.run import simulate

__all__ = ["Campaign", "Simulated", "run_campaign", "simulate"]
