"""Injected faults: a disk that loses unsynced writes, and processes that are killed at chosen points."""

from interlock.testing.faults.disk import FaultyDisk
from interlock.testing.faults.processes import At, Process, Processes, stop_listening

__all__ = ["At", "FaultyDisk", "Process", "Processes", "stop_listening"]
