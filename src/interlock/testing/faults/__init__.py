"""Faults on purpose: a disk that loses what was not synced, and processes that are killed where it hurts most."""

from interlock.testing.faults.disk import FaultyDisk
from interlock.testing.faults.listening import stop_listening
from interlock.testing.faults.processes import At, Process, Processes

__all__ = ["At", "FaultyDisk", "Process", "Processes", "stop_listening"]
