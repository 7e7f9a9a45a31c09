"""The note with the time before which no step may begin in a lane after an arrival.

Engines that shared the workflows before may be in the middle of attempts, and learn within a second that they are not
theirs any more. A lane has no leases of workflows that would keep others from beginning the same, so its owner waits.
"""

HELD = "held_us"
"""The name of the note: microseconds, by the time of the store."""

HELD_US = 2_000_000
"""Microseconds in which a live engine learns that its workflows have left: it checks every second."""
