"""The pure core: machines are declared, checked, decided, drawn, encoded and compared here.

Nothing below does I/O, reads a clock, starts a thread or asks for luck; import-linter keeps it so. That is what
makes a machine testable in microseconds and the same decision reproducible everywhere.
"""
