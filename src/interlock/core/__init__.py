"""The pure core: machines are declared, checked, decided, drawn, encoded and compared here.

Nothing in it does I/O, reads a clock, starts a thread or draws random numbers; import-linter enforces that. So a
machine is tested in microseconds, and the same inputs give the same decision everywhere.
"""
