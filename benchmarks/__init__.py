"""Comparisons with peers: `python -m benchmarks.NAME [--quick] [--json FILE]`."""
