"""Simulation of lanes on a bucket: real lanes of several processes in virtual time, with injected faults.

A seed decides everything: when a process opens the lane, the answers of the bucket, stalls and kills. The same seed
gives the same story. Needs `pip install "interlock[objects]"`.
"""

from interlock.testing.campaigns import Campaign, Simulated
from interlock.testing.lane_simulation.simulate_lanes import run_campaign, simulate

__all__ = ["Campaign", "Simulated", "run_campaign", "simulate"]
