"""Faults on purpose: a disk that loses what was not synced, and processes that are killed where it hurts most."""
