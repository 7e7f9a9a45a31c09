"""Buckets for tests."""

from interlock.testing.objects.memory import MemoryBucket

__all__ = ["MemoryBucket"]
