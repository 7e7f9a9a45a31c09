"""Run steps, undos and effects: attempts, their time limits, threads, timers and errors."""
