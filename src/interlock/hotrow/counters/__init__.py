"""Counters that stay exact however many writers they have: one row, many, a log, or whichever is needed (D5-D7)."""
