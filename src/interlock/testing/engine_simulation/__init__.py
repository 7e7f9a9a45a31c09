"""Simulation of the engine on a store, in virtual time, with injected faults.

A seed decides the calls of the clients, the faults of the gateway and of commits, and the kills of the process. The
same seed gives the same story. It needs no extra.
"""

from interlock.testing.engine_simulation.simulate_engine import run_campaign, simulate

__all__ = ["run_campaign", "simulate"]
