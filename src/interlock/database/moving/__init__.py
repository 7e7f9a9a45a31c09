"""Moving a database between engines: its shape, its rows, and whether both places hold the same.

`shape` says what a database is in words that both engines take; `lane_shape` and `postgres_shape` read it from where it
lives. Rows travel in one form, the one in which a lane stores them (`interlock.sql.values`): `lane_rows` reads and
writes them as they are, `postgres_rows` lets PostgreSQL convert, `values` has what is left to Python. `digests` tells
whether two places hold the same rows without looking at both at once.
"""
