"""Where workflows are remembered: one protocol, and the stores that keep it."""
